"""Population based training: hyperparameters that change while their models are trained.

Jaderberg et al.: Population Based Training of Neural Networks (arXiv:1711.09846, 2017), with
truncation selection as in its section 4.1.1, by generation instead of asynchronously.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from search.checks import check_integer, check_number, make_plain
from search.direction import Direction
from search.errors import InvalidArgument
from search.evolution.population_search import GenerationalSearch, Individual
from search.searcher import Problem, Searcher, check_own_budget, one_direction
from search.space.points import check_points
from search.space.sampling import allowed, latin_hypercube
from search.space.spaces import Choice, Domain, Float, Integer, Space
from search.trial import Outcome

FACTORS = (0.8, 1.2)
"""What a number is multiplied by when it is perturbed, either as likely."""

_TRIES = 20
"""Explored hyperparameters made for a member at the most; the constraint may allow none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationTraining:
    """Settings of population based training; see `PopulationBasedTraining`.

    `popsize * (generations + 1)` trials.

    Args:
        popsize: Members, at least 2.
        generations: After the initial one, at least 1.
        quantile: The share of [0, 0.5] of the members that copy, rounded up, but not beyond half of
            them. At 0 only those without a value copy, namely the best.
        resample_probability: Of each hyperparameter of a member that copies, of [0, 1]: that it is
            drawn anew rather than perturbed.

    Raises:
        InvalidArgument: A number beyond these bounds.
    """

    popsize: int = 10
    generations: int = 10
    quantile: float = 0.25
    resample_probability: float = 0.25

    def __post_init__(self) -> None:
        make_plain(self)
        check_integer("popsize", self.popsize, 2)
        check_integer("generations", self.generations, 1)
        share, probability = self.quantile, self.resample_probability
        check_number("quantile", share, "a number of [0, 0.5]", lambda share: 0 <= share <= 0.5)
        expected, inside = "a number of [0, 1]", lambda probability: 0 <= probability <= 1
        check_number("resample_probability", probability, expected, inside)

    def start(self, problem: Problem) -> Searcher:
        """See `Algorithm`."""
        check_own_budget(problem)
        if problem.known:
            expected = "nothing for population based training"
            hint = "its members go on from checkpoints of the same run; say points="
            raise InvalidArgument("warm_start", expected, "some", hint)
        return PopulationBasedTraining(problem, self)

    def to_json(self) -> dict[str, Any]:
        """See `Algorithm`."""
        return {"type": "population based training", **asdict(self)}


class _Member(Individual):
    """A member's state in one generation, as hyperparameters: they are to go on unchanged."""

    def __init__(
        self, space: Space, params: Mapping[str, Any], direction: Direction, parent: int | None
    ) -> None:
        super().__init__(space.encode(params), direction, parent)
        self.params: Mapping[str, Any] = params


class PopulationBasedTraining(GenerationalSearch[_Member]):
    """Train a population; after each generation the worst go on from the best (Jaderberg 2017).

    A trial is one member's training during one generation. Generation 0 is a Latin hypercube whose
    trials begin anew; every later trial goes on from the checkpoint of a trial of the generation
    before, `Trial.parent`: its member's own with the same hyperparameters, or, for the worst
    `quantile` of the members, that of one drawn from the best `quantile`, whose hyperparameters it
    takes and explores. `popsize * (generations + 1)` trials in all, that of member m in generation
    g being number `g * popsize + m`.

    To explore is to treat every hyperparameter by itself: with `resample_probability` it is drawn
    from the space anew. Otherwise a number, on a log scale too, is multiplied by 0.8 or 1.2 and
    kept within its bounds, an integer and what has steps moved by one step at least; of a `Choice`
    the value before or after is taken, so its order counts. At a bound or an end it may stay what
    it is. One that has become active is drawn. Where the space's constraint allows nothing of what
    was explored in 20 tries, a member goes on with the hyperparameters of the one it copies.

    A trial that failed or was stopped ranks last and nobody goes on from it: its member is one of
    those that copy. When no trial of a generation has a value, the next one begins anew like
    generation 0.

    With two members the worse one goes on from the better one, as in a pair of LBANN's tournament
    (Jacobs et al.: Towards Scalable Parallel Training of Deep Neural Networks, 2017). There each of
    the two decides by data of its own, pairs are drawn anew, and nothing need be explored.

    The same `rng` gives the same trials whatever the order in which outcomes are told. `ask`
    returns None while the last trials of a generation are out.

    Args:
        problem: What to search, by one objective. Its points are the hyperparameters of the first
            members in generation 0, at most `popsize`.
        settings: See `PopulationTraining`.

    Attributes:
        logbook: DEAP's, one record per generation: gen, evals, best, mean, std, diversity (the mean
            over the axes of the population's standard deviation in the unit cube), copied (the
            share of members that went on from another member's trial; None for generation 0).
        hall_of_fame: DEAP's, the best trial so far.
    """

    def __init__(self, problem: Problem, settings: PopulationTraining) -> None:
        super().__init__(
            problem.space,
            direction=one_direction(problem),
            popsize=settings.popsize,
            generations=settings.generations,
            share="copied",
        )
        check_points(problem.points, settings.popsize, "members")
        self._settings = settings
        self._rng = problem.rng
        self._points = list(problem.points)

    def tell(self, outcome: Outcome) -> None:
        """See `Searcher`."""
        if outcome.status != "finished":  # a trial that was stopped may have a value, yet no model
            outcome = msgspec.structs.replace(outcome, value=None)
        super().tell(outcome)

    def _replace(self) -> float:
        for member, before in zip(self._candidates, self._population, strict=True):
            self._selected(member, before, accepted=True)
        self._population = list(self._candidates)
        owns = enumerate(self._population)
        copied = [m.parent is not None and m.parent % self.popsize != own for own, m in owns]
        return sum(copied) / self.popsize

    def _breed(self) -> list[_Member]:
        merits = [self._direction.merit(member.score) for member in self._population]
        ranking = sorted(range(len(merits)), key=merits.__getitem__, reverse=True)
        alive = [index for index in ranking if self._population[index].score is not None]
        if not alive:
            points = latin_hypercube(self.popsize, len(self._space), self._rng)
            points = allowed(self._space, points, self._rng)
            first, self._points = self._points, []
            params = [*first, *(self._space.decode(point) for point in points[len(first) :])]
            return [self._member(each, None) for each in params]
        copies = min(math.ceil(self.popsize * self._settings.quantile), self.popsize // 2)
        top = alive[: max(copies, 1)]
        worst = {*ranking[self.popsize - copies :], *ranking[len(alive) :]}
        return [
            self._successor(index, top if index in worst else None) for index in range(self.popsize)
        ]

    def _successor(self, index: int, top: Sequence[int] | None) -> _Member:
        chosen = index if top is None else self._rng.choice(top)
        params = self._population[chosen].params
        if top is not None:
            params = explore(self._space, params, self._settings.resample_probability, self._rng)
        return self._member(params, self._asked - self.popsize + chosen)

    def _member(self, params: Mapping[str, Any], parent: int | None) -> _Member:
        return _Member(self._space, params, self._direction, parent)


def explore(
    space: Space, params: Mapping[str, Any], resample_probability: float, rng: random.Random
) -> dict[str, Any]:
    """Return hyperparameters of the space with each one resampled or perturbed.

    One that has become active is drawn. Where the constraint allows nothing of what is made so in a
    few tries, the hyperparameters stay what they are.
    """

    def explored(name: str) -> Any:
        if rng.random() < resample_probability or name not in params:
            return space[name].decode(rng.random())
        return perturb(space[name], params[name], rng)

    for _ in range(_TRIES):
        found = space.assemble(explored)
        if space.allows_params(found):
            return found
    return dict(params)


def perturb(domain: Domain, value: Any, rng: random.Random) -> Any:
    """Return a number of the domain times 0.8 or 1.2, or a neighbour of a choice's value."""
    if isinstance(domain, Choice):
        index = domain.index(value) + rng.choice((-1, 1))
        return domain.values[min(max(index, 0), len(domain.values) - 1)]
    factor = rng.choice(FACTORS)
    moved = value * factor
    if domain.step is not None:
        moved = _on_grid(domain, moved)
        if moved == value:
            upwards = (factor > 1) == (value >= 0)
            moved = _on_grid(domain, value + (domain.step if upwards else -domain.step))
    return min(max(moved, domain.low), domain.high)


def _on_grid(domain: Float | Integer, value: float) -> float:
    """Return the value of a domain with steps that is nearest."""
    if domain.step == 1 and isinstance(domain, Integer):  # exact, however far apart the bounds are
        return round(value)
    return domain.decode(domain.encode(min(max(value, domain.low), domain.high)))
