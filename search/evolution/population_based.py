"""Population based training: hyperparameters that change while their models are trained.

Jaderberg et al.: Population Based Training of Neural Networks (arXiv:1711.09846, 2017), with
truncation selection as in its section 4.1.1, by generation instead of asynchronously.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import msgspec

from search.checks import check_integer, check_number, make_plain
from search.errors import InvalidArgument
from search.evolution.population_search import GenerationalSearch, Individual
from search.searcher import Problem, Searcher, check_own_budget, one_direction
from search.space.domains import nearest
from search.space.points import check_points
from search.space.sampling import TRIES, allowed, latin_hypercube
from search.space.spaces import Choice, Domain, Space
from search.trial import Outcome

FACTORS = (0.8, 1.2)
"""Factors by which numbers are perturbed, equally likely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationTraining:
    """Settings of population based training; see `PopulationBasedTraining`.

    `popsize * (generations + 1)` trials.

    Args:
        popsize: Members, at least 2.
        generations: Generations after the initial one, at least 1.
        quantile: Share of [0, 0.5] of the members that copy others, rounded up, but at most half of
            them. At 0 only members without a value copy, and they copy the best.
        resample_probability: Probability of [0, 1] that a copied hyperparameter is drawn anew
            rather than perturbed.

    Raises:
        InvalidArgument: A number is out of its range.
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
        """Return a searcher for the problem."""
        check_own_budget(problem)
        if problem.known:
            expected = "none for population based training"
            hint = "its members resume from checkpoints of the same run; use points="
            raise InvalidArgument("warm_start", expected, "some", hint)
        return PopulationBasedTraining(problem, self)

    def to_json(self) -> dict[str, Any]:
        """Return the type and the arguments as JSON."""
        return {"type": "population based training", **asdict(self)}


class PopulationBasedTraining(GenerationalSearch[Individual]):
    """Train a population; after each generation the worst resume from the best (Jaderberg 2017).

    A trial is one member's training during one generation. Generation 0 is a Latin hypercube whose
    trials start from scratch. Every later trial resumes from the checkpoint of a trial of the
    generation before, `Trial.parent`: its member's own, with the same hyperparameters, or, for the
    worst `quantile` of the members, that of a member drawn from the best `quantile`, whose
    hyperparameters it copies and explores. There are `popsize * (generations + 1)` trials in all;
    that of member m in generation g is number `g * popsize + m`.

    Exploring treats every hyperparameter by itself. With `resample_probability` it is drawn anew
    from the space. Otherwise a number, on a log scale too, is multiplied by 0.8 or 1.2 and kept
    within its bounds; an integer, or a number with steps, moves by at least one step; a `Choice`
    changes to the value before or after, so its order counts. At a bound a value may stay the same.
    A hyperparameter that has become active is drawn. If the space's constraint allows none of 20
    explorations, the member keeps the hyperparameters that it copied.

    A trial that failed or was stopped ranks last and no trial resumes from it: its member copies
    another one. When no trial of a generation has a value, the next one starts from scratch like
    generation 0.

    With two members the worse one resumes from the better one, as in a pair of LBANN's tournament
    (Jacobs et al.: Towards Scalable Parallel Training of Deep Neural Networks, 2017). There each of
    the two decides by data of its own, pairs are drawn anew, and nothing need be explored.

    The same `rng` gives the same trials in whatever order the outcomes come. `ask` returns None
    while the last trials of a generation are in flight.

    Args:
        problem: The problem to search, with one objective and at most `popsize` points, the
            hyperparameters of the first members in generation 0.
        settings: The settings.

    Attributes:
        logbook: DEAP's logbook, one record per generation: gen, evals, best, mean, std, diversity
            (the population's standard deviation in the unit cube, averaged over the axes), copied
            (the share of members that resumed from another member's trial; None for generation 0).
        hall_of_fame: DEAP's hall of fame, the best trial so far.
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
        """Take in an outcome; only a finished trial has a model to copy."""
        if outcome.status != "finished":  # a stopped trial may have a value, yet no model
            outcome = msgspec.structs.replace(outcome, value=None)
        super().tell(outcome)

    def _replace(self) -> float:
        for member, before in zip(self._candidates, self._population, strict=True):
            self._selected(member, before, accepted=True)
        self._population = list(self._candidates)
        owns = enumerate(self._population)
        copied = [m.parent is not None and m.parent % self.popsize != own for own, m in owns]
        return sum(copied) / self.popsize

    def _breed(self) -> list[Individual]:
        merits = [self._direction.merit(member.score) for member in self._population]
        ranking = sorted(range(len(merits)), key=merits.__getitem__, reverse=True)
        alive = [index for index in ranking if self._population[index].score is not None]
        if not alive:
            points = latin_hypercube(self.popsize, len(self._space), self._rng)
            points = allowed(self._space, points, self._rng)
            first, self._points = self._points, []
            params = [*first, *(self._space.decode(point) for point in points[len(first) :])]
            return [self._member(each, None) for each in params]
        quantile = Fraction(repr(self._settings.quantile))  # with floats, 100 * 0.07 is above 7
        copies = min(math.ceil(self.popsize * quantile), self.popsize // 2)
        top = alive[: max(copies, 1)]
        worst = {*ranking[self.popsize - copies :], *ranking[len(alive) :]}
        return [
            self._successor(index, top if index in worst else None) for index in range(self.popsize)
        ]

    def _successor(self, index: int, top: Sequence[int] | None) -> Individual:
        chosen = index if top is None else self._rng.choice(top)
        params = self._params(self._population[chosen])
        if top is not None:
            params = explore(self._space, params, self._settings.resample_probability, self._rng)
        return self._member(params, self._asked - self.popsize + chosen)

    def _member(self, params: Mapping[str, Any], parent: int | None) -> Individual:
        return Individual(self._space.encode(params), self._direction, parent, params)


def explore(
    space: Space, params: Mapping[str, Any], resample_probability: float, rng: random.Random
) -> dict[str, Any]:
    """Return hyperparameters of the space with each one resampled or perturbed.

    A hyperparameter that has become active is drawn. If the constraint allows none of a few
    explorations, all hyperparameters stay the same.
    """

    def explored(name: str) -> Any:
        if rng.random() < resample_probability or name not in params:
            return space[name].decode(rng.random())
        return perturb(space[name], params[name], rng)

    for _ in range(TRIES):
        found = space.assemble(explored)
        if space.allows_params(found):
            return found
    return dict(params)


def perturb(domain: Domain, value: Any, rng: random.Random) -> Any:
    """Return the value times 0.8 or 1.2 within its domain, or a neighbour of a choice's value."""
    if isinstance(domain, Choice):
        distinct = Choice(domain.distinct)  # a step to an equal one changes nothing
        index = distinct.index(value) + rng.choice((-1, 1))
        return distinct.values[min(max(index, 0), distinct.size - 1)]
    factor = rng.choice(FACTORS)
    moved = nearest(domain, value * factor)
    if domain.step is not None and moved == value:
        upwards = (factor > 1) == (value >= 0)
        moved = nearest(domain, value + (domain.step if upwards else -domain.step))
    return moved
