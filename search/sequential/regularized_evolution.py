"""Regularised evolution: a population from which the oldest member leaves, whatever its score.

Real, Aggarwal, Huang, Le: Regularized Evolution for Image Classifier Architecture Search (AAAI
2019, arXiv:1802.01548), Algorithm 1.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from search.checks import check_integer, make_plain
from search.errors import InvalidArgument, shown
from search.searcher import Problem, Searcher, Selection, one_direction
from search.sequential.sequential_search import SequentialSearch
from search.space.domains import Domain, is_unordered
from search.space.sampling import random_point
from search.space.spaces import Space
from search.trial import Outcome

STEP = 0.1
"""Standard deviation, in the unit cube, of the step that mutates a number."""

_DOUBLINGS = 20
"""Maximum doublings of a step; beyond, it covers the whole domain, which has only one value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularizedEvolution:
    """Settings of regularised (ageing) evolution; see `RegularizedEvolutionSearch`.

    Args:
        popsize: Size of the population, the last trials that ended with a value: P of the paper,
            where it is 100 of 20,000 trials; at least 2.
        tournament: Members drawn to select a parent: S of the paper, where it is 25; from 2 to
            `popsize`.

    Raises:
        InvalidArgument: A number is out of its range.
    """

    popsize: int = 20
    tournament: int = 10

    def __post_init__(self) -> None:
        make_plain(self)
        check_integer("popsize", self.popsize, 2)
        check_integer("tournament", self.tournament, 2)
        if self.tournament > self.popsize:
            expected = f"at most popsize, which is {self.popsize}"
            raise InvalidArgument("tournament", expected, shown(self.tournament))

    def start(self, problem: Problem) -> Searcher:
        """Return a searcher for the problem."""
        return RegularizedEvolutionSearch(problem, self)

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        return {"type": "regularized evolution", **asdict(self)}


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of the population; one from prior observations has no trial."""

    point: list[float]
    score: float
    trial: int | None


class RegularizedEvolutionSearch(SequentialSearch):
    """Regularised evolution without a barrier (Real et al. 2019, Algorithm 1).

    The population is the last `popsize` trials that ended with a value: each new one joins it, and
    the oldest leaves, however good it is. The first `popsize` trials are random points. Each later
    one is a mutant of the best of `tournament` members, drawn with replacement. There is always
    another trial: it is random while fewer than `tournament` trials have ended with a value.

    A mutant differs from its parent in one hyperparameter, each equally likely; see `mutated`. The
    paper's identity mutation, one time in twenty, is omitted, since no configuration is tried
    twice, prior observations included: a space with fewer of them than trials ends the search
    early. The user's points are tried literally.
    A failed trial does not join the population, so no member leaves.

    The same `rng` and the same order of `ask` and `tell` give the same trials.

    Args:
        problem: The problem to search, with one objective. The prior observations are the initial
            population, the last one being the youngest. With `popsize` or more that have values no
            trial is random.
        settings: The settings.

    Attributes:
        selections: The change of the population by the last `tell`.
    """

    def __init__(self, problem: Problem, settings: RegularizedEvolution) -> None:
        self._direction = one_direction(problem)
        super().__init__(problem)
        self._tournament = settings.tournament
        self._popsize = settings.popsize
        self._population: collections.deque[_Member] = collections.deque()
        self.selections: list[Selection] = []
        self._take_known(problem.known)
        self._random = settings.popsize - len(self._population)  # trials before the first mutant

    def _propose(self) -> list[float]:
        if self._asked < self._random or len(self._population) < self._tournament:
            return random_point(self._space, self._rng)
        drawn = self._rng.choices(self._population, k=self._tournament)
        winner = self._direction.best(drawn, lambda member: member.score)
        assert winner is not None  # members have scores
        return mutated(self._space, winner.point, self._rng)

    def tell(self, outcome: Outcome) -> None:
        """Let a trial with a value join the population."""
        point, scores = self._in_flight.pop(outcome.trial), self._goal.scores(outcome)
        oldest = None if scores is None else self._join(_Member(point, scores[0], outcome.trial))
        holder = None if oldest is None else oldest.trial
        self.selections = [Selection(outcome.trial, scores is not None, holder)]

    def _take(self, point: list[float], scores: tuple[float, ...] | None) -> None:
        if scores is not None:
            self._join(_Member(point, scores[0], None))

    def _join(self, member: _Member) -> _Member | None:
        """Add a member to the population; return the oldest one, if it leaves."""
        self._population.append(member)
        return self._population.popleft() if len(self._population) > self._popsize else None


def mutated(space: Space, point: Sequence[float], rng: random.Random) -> list[float]:
    """Return a point of the unit cube where one hyperparameter has another value.

    It is one of the active hyperparameters that are not constant. An unordered choice gets any of
    its other values, each equally likely. A number or an ordered choice takes a normal step of
    standard deviation 0.1 in the unit cube, reflected at its bounds, and doubled while it leads to
    the same value. So small steps are common, and domains of few values change, too.

    A hyperparameter that the mutation makes active gets a random value.
    """
    active = space.decode(point)
    mutant = [
        unit if name in active else rng.random() for name, unit in zip(space, point, strict=True)
    ]
    names = list(space)
    variable = [name for name in names if name in active and space[name].size != 1]
    if variable:
        name = rng.choice(variable)
        position = names.index(name)
        mutant[position] = _moved(space[name], space[name].encode(active[name]), rng)
    return mutant


def _moved(domain: Domain, unit: float, rng: random.Random) -> float:
    if is_unordered(domain):
        return (unit + rng.randrange(1, domain.size) / domain.size) % 1.0  # the middle of a bin
    value, moved = domain.decode(unit), unit
    for doublings in range(_DOUBLINGS):
        moved = _reflected(unit + rng.gauss(0.0, STEP * 2**doublings))
        if domain.decode(moved) != value:
            break
    return moved


def _reflected(unit: float) -> float:
    """Return a number reflected into [0, 1] at both bounds."""
    return 1.0 - abs(1.0 - unit % 2.0)
