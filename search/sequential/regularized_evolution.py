"""Regularised evolution: a queue of models of which the oldest dies, whatever its score.

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
from search.searcher import Problem, Searcher
from search.sequential.sequential_search import SampledSearch
from search.space.sampling import random_point
from search.space.spaces import Choice, Domain, Space

STEP = 0.1
"""Standard deviation, in the unit cube, of the step by which a number is mutated."""

_DOUBLINGS = 20
"""After so many a step leads anywhere, so the domain has but one value within reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularizedEvolution:
    """Settings of regularised (ageing) evolution; see `RegularizedEvolutionSearch`.

    Args:
        popsize: How many trials, the last ones that ended with a value, are the population: P of
            the paper, at least 2. There it is 100 of 20,000 trials.
        tournament: How many of them are drawn to find a parent: S of the paper, from 2 to
            `popsize`. There it is 25.

    Raises:
        InvalidArgument: A number beyond these bounds.
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
        """See `Algorithm`."""
        return RegularizedEvolutionSearch(problem, self)

    def to_json(self) -> dict[str, Any]:
        """See `Algorithm`."""
        return {"type": "regularized evolution", **asdict(self)}


class RegularizedEvolutionSearch(SampledSearch):
    """Regularised evolution without a barrier (Real et al. 2019, Algorithm 1).

    The population are the last `popsize` trials that ended with a value: each one that ends joins
    it, and the oldest dies, however good it is. The first `popsize` trials are random points. Each
    later one is a mutant of the best of `tournament` members, drawn with replacement. There is
    always another trial: as long as fewer than `tournament` have ended with a value, it is random.

    A mutant differs from its parent in one hyperparameter, each as likely; see `mutated`. The
    paper's mutation of nothing, one time in twenty, is left out, since no configuration is tried
    twice, or although it is known, as long as the space has others. The points that the user gives
    are tried literally. A failed trial does not join the population, so nobody dies for it.

    The same `rng` and the same order of asking and telling give the same trials.

    Args:
        problem: What to search, by one objective. What is known is the population to begin with,
            the last being the youngest. With `popsize` of them or more that have values no trial is
            random.
        settings: See `RegularizedEvolution`.
    """

    def __init__(self, problem: Problem, settings: RegularizedEvolution) -> None:
        super().__init__(problem)
        self._tournament = settings.tournament
        self._population: collections.deque[tuple[list[float], float]] = collections.deque(
            maxlen=settings.popsize
        )
        self._take_known(problem.known)
        self._random = settings.popsize - len(self._population)  # trials before the first mutant

    @property
    def population(self) -> list[dict[str, Any]]:
        """The hyperparameters of each member of the population, the oldest first."""
        return [self._space.decode(point) for point, _ in self._population]

    def _propose(self) -> list[float]:
        if self._asked < self._random or len(self._population) < self._tournament:
            return random_point(self._space, self._rng)
        drawn = self._rng.choices(self._population, k=self._tournament)
        winner = self._direction.best(drawn, lambda member: member[1])
        assert winner is not None  # members have scores
        return mutated(self._space, winner[0], self._rng)

    def _take(self, point: list[float], score: float | None) -> None:
        if score is not None:
            self._population.append((point, score))


def mutated(space: Space, point: Sequence[float], rng: random.Random) -> list[float]:
    """Return a point of the unit cube where one hyperparameter has another value.

    It is one of the active ones that are no constants. A choice without an order gets any of its
    other values, each as likely. What has an order, numbers and ordered choices, takes a normal
    step of standard deviation 0.1 in the unit cube, reflected at its bounds, twice as long each
    time that led to the same value. So small steps are common, and few values are no trap.

    What becomes active by the mutation gets a random value.
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
    if isinstance(domain, Choice) and not domain.ordered:
        return (unit + rng.randrange(1, domain.size) / domain.size) % 1.0  # the middle of a bin
    value, moved = domain.decode(unit), unit
    for doublings in range(_DOUBLINGS):
        moved = _reflected(unit + rng.gauss(0.0, STEP * 2**doublings))
        if domain.decode(moved) != value:
            break
    return moved


def _reflected(unit: float) -> float:
    """Return where in [0, 1] a number ends that is thrown back by both bounds."""
    return 1.0 - abs(1.0 - unit % 2.0)
