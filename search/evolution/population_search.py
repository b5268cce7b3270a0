"""The base of algorithms with a population: trials in flight, selection, statistics by generation.

The logbook and the statistics are DEAP's.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from deap import base, tools

from search.counted import BudgetedSearch
from search.direction import Direction, Goal
from search.searcher import Selection
from search.space.spaces import Space
from search.trial import Outcome, Trial


class _Fitness(base.Fitness):  # type: ignore[misc]  # deap has no types
    """DEAP's fitness, with weights per object; DEAP's own needs a class per set of weights."""

    def __init__(self, weights: tuple[float, ...]) -> None:
        self.weights = weights
        super().__init__()

    def __deepcopy__(self, memo: dict[int, Any]) -> _Fitness:
        copy = _Fitness(self.weights)
        copy.wvalues = self.wvalues
        return copy


class Individual(list[float]):
    """A point of the unit cube with its fitness; the fitness is invalid until it was evaluated.

    Not made by `deap.creator`, which writes classes into a global module.

    Attributes:
        fitness: DEAP's fitness.
        parent: The trial from whose checkpoint this one resumes; None to start from scratch.
        params: The exact hyperparameters, where they are given; None for those at the point.
        trial: The individual's trial; None before `ask` returned it, and for a prior observation.
    """

    def __init__(
        self,
        point: Sequence[float],
        direction: Goal,
        parent: int | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(point)
        self.parent = parent
        self.params = params
        self.trial: int | None = None
        self.fitness = _Fitness(direction.weights)

    @property
    def score(self) -> float | None:
        """The objective, the first of several; None for a trial that failed or is in flight."""
        return self.fitness.values[0] if self.fitness.valid else None


IndividualT = TypeVar("IndividualT", bound=Individual)


class PopulationSearch(BudgetedSearch, ABC, Generic[IndividualT]):
    """A `Searcher` with a population of `popsize` individuals, for some generations.

    Trial number i belongs to generation `i // popsize`. The last generation may be smaller: a space
    with fewer configurations than trials ends the search early.

    Args:
        space: The search space.
        direction: Direction of the objective, or of each of several.
        popsize: Number of individuals.
        generations: Number of generations after the initial one.
        share: The logbook's name for the share that `_end_generation` is called with.

    Attributes:
        selections: The changes of the population by the last `tell`.
    """

    def __init__(
        self,
        space: Space,
        *,
        direction: Goal,
        popsize: int,
        generations: int,
        share: str,
    ) -> None:
        super().__init__(popsize * (generations + 1))
        self._space = space
        self._goal = direction
        self.popsize = popsize
        self.generations = generations
        self._statistics = _statistics(direction)
        self._share = share
        self.logbook = tools.Logbook()
        self.logbook.header = ["gen", "evals", *self._statistics.fields, share]
        one = isinstance(direction, Direction)
        # Members are copies, so none is the same: a point that is evaluated again may do better.
        fame = tools.HallOfFame(1, similar=operator.is_) if one else tools.ParetoFront()
        self.hall_of_fame = fame
        self._population: list[IndividualT] = []
        self.selections: list[Selection] = []
        self._in_flight: dict[int, IndividualT] = {}

    @property
    def population(self) -> list[dict[str, Any]]:
        """The hyperparameters of each individual of the population."""
        return [self._params(member) for member in self._population]

    def ask(self) -> Trial | None:
        """Return the next candidate's trial, or None while there is none."""
        candidate = None if self.finished else self._next()
        if candidate is None:
            return None
        generation = self._asked // self.popsize
        trial = Trial(
            self._asked, self._params(candidate), generation=generation, parent=candidate.parent
        )
        self._in_flight[trial.id] = candidate
        candidate.trial = trial.id
        self._asked += 1
        return trial

    def tell(self, outcome: Outcome) -> None:
        """Give a candidate its fitness, and let it compete."""
        self.selections = []
        candidate = self._in_flight.pop(outcome.trial)
        scores = self._goal.scores(outcome)
        if scores is not None:
            candidate.fitness.values = scores
        self._take(candidate)

    def _selected(
        self, candidate: IndividualT, holder: IndividualT | None, *, accepted: bool
    ) -> None:
        """Note whether a candidate took a place in the population, and the place's holder."""
        assert candidate.trial is not None, "`ask` returned it"
        held = None if holder is None else holder.trial
        self.selections.append(Selection(candidate.trial, accepted, held))

    def _ends_generation(self, received: int) -> bool:
        """Return whether these are the candidates of a generation: `popsize`, or the last ones."""
        return received == self.popsize or (self.finished and not self._in_flight)

    def _end_generation(
        self, candidates: Sequence[IndividualT], share: float | None, *, evals: int
    ) -> None:
        """Record the population in the logbook after a generation.

        Args:
            candidates: Those among which the hall of fame looks for the best.
            share: The share of the generation that the logbook has, if any.
            evals: The number of evaluated trials of the generation.
        """
        self.hall_of_fame.update([member for member in candidates if member.fitness.valid])
        record = self._statistics.compile(self._population)
        generation = len(self.logbook)
        self.logbook.record(gen=generation, evals=evals, **record, **{self._share: share})

    def _params(self, individual: IndividualT) -> dict[str, Any]:
        params = individual.params
        return self._space.decode(individual) if params is None else dict(params)

    @abstractmethod
    def _next(self) -> IndividualT | None:
        """Return the next trial's candidate; None while there is none.

        It may also be None since the space is used up; then the last generation is complete.
        """

    @abstractmethod
    def _take(self, candidate: IndividualT) -> None:
        """Take in an evaluated candidate."""


class RankedSearch(PopulationSearch[IndividualT]):
    """A `PopulationSearch` with one objective, by which individuals are ranked."""

    def __init__(self, space: Space, *, direction: Direction, **arguments: Any) -> None:
        super().__init__(space, direction=direction, **arguments)
        self._direction = direction

    def _begin_with(self, known: Iterable[IndividualT]) -> None:
        """Take the best prior observations as the population: those with values, each once."""
        best: dict[tuple[float, ...], IndividualT] = {}
        for individual in known:
            place = self._space.snap(individual)
            if self._direction.better(
                individual.score, best[place].score if place in best else None
            ):
                best[place] = individual
        ranking = sorted(best.values(), key=lambda item: -self._direction.merit(item.score))
        self._population = ranking[: self.popsize]

    def _score(self, individual: Individual, value: float | None) -> None:
        if self._direction.better(value, None):  # any number is better than None
            individual.fitness.values = (value,)


class GenerationalSearch(RankedSearch[IndividualT]):
    """A search that evaluates one generation after the other.

    Trial number i is for individual `i % popsize`. `ask` returns None while the last trials of a
    generation are in flight, so the next generation does not depend on the order of the outcomes.
    `population` is the population after the last finished generation.
    """

    _candidates: Sequence[IndividualT] = ()  # the generation in flight

    @property
    def batch(self) -> int:
        """The trials of a generation."""
        return self.popsize

    def _next(self) -> IndividualT | None:
        index = self._asked % self.popsize
        if index == 0:
            if self._in_flight:
                return None
            self._candidates = self._breed()
            if len(self._candidates) < self.popsize:
                self.total = self._asked + len(self._candidates)
        return self._candidates[index] if index < len(self._candidates) else None

    def _take(self, candidate: IndividualT) -> None:
        if self._in_flight or (self._asked % self.popsize != 0 and not self.finished):
            return
        share = None
        if len(self._population) == self.popsize:
            share = self._replace()
        else:
            self._population = self._best_of([*self._population, *self._candidates])
            there = set(map(id, self._population))
            for individual in self._candidates:
                self._selected(individual, None, accepted=id(individual) in there)
        self._end_generation(self._candidates, share, evals=len(self._candidates))

    def _best_of(self, individuals: list[IndividualT]) -> list[IndividualT]:
        """Return the best `popsize` individuals, in their order."""
        merits = [self._direction.merit(individual.score) for individual in individuals]
        ranking = sorted(range(len(merits)), key=merits.__getitem__, reverse=True)
        return [individuals[index] for index in sorted(ranking[: self.popsize])]

    @abstractmethod
    def _breed(self) -> list[IndividualT]:
        """Return the next generation; the population is not full before the first.

        With fewer than `popsize` individuals it is the last one.
        """

    @abstractmethod
    def _replace(self) -> float:
        """Select the population from itself and the evaluated candidates; return the share."""


def _statistics(direction: Goal) -> Any:
    statistics = tools.Statistics()
    if isinstance(direction, Direction):
        statistics.register("best", _over_scores(lambda scores: direction.best(scores, float)))
        statistics.register("mean", _over_scores(np.mean))
        statistics.register("std", _over_scores(np.std))
    else:
        statistics.register("front", _size_of_front)
    statistics.register("diversity", _diversity)
    return statistics


def _diversity(population: Sequence[Individual]) -> float | None:
    return float(np.std(population, axis=0).mean()) if population else None


def _size_of_front(population: Sequence[Individual]) -> int:
    fronts = tools.sortNondominated(population, len(population), first_front_only=True)
    return sum(map(len, fronts))


def _over_scores(function: Callable[[Any], Any]) -> Callable[[Sequence[Individual]], float | None]:
    def apply(population: Sequence[Individual]) -> float | None:
        scores = [member.score for member in population if member.score is not None]
        if not scores:
            return None
        with np.errstate(all="ignore"):  # the mean of huge scores overflows
            value = float(function(scores))
        return value if math.isfinite(value) else None

    return apply
