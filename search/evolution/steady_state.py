"""Differential evolution without a barrier: whoever is free gets the next trial.

The population is replaced one individual at a time, as results come in (steady state). The
operator is that of Zhang, Sanderson: JADE (IEEE Transactions on Evolutionary Computation 13, 2009),
without its archive and its adaptation.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np

from search.direction import Direction
from search.evolution.operators import breed, make_toolbox
from search.evolution.population_search import Individual, RankedSearch
from search.evolution.screening import Screen
from search.evolution.settings import EvolutionSettings
from search.searcher import Problem, one_direction
from search.space.points import check_points
from search.space.spaces import Space
from search.space.tried import Tried
from search.trial import Evaluated

CANDIDATES = 5
"""Trial vectors of which the most promising one is evaluated."""

SCREENED = 80
"""Trials up to which each one is screened so; after n, one is with probability 80 / n."""

COLLAPSED = 0.01
"""Standard deviation below which, on every axis of the unit cube, a population is renewed."""

REPEATED = 10
"""Where the objective is noisy, one trial in so many evaluates the best individual again."""

_TRIES = 20
"""Trial vectors made for a trial at the most; many may have been tried, or not be allowed."""


class _Candidate(Individual):
    """An individual that knows where its values lie and which place it competes for.

    Attributes:
        snapped: See `Space.snap`.
        place: In the population; None for a design point, which has no target.
        repeats: The individual that it evaluates again, if any.
        values: All that its evaluations came to.
        screened: Its number in the screen.
    """

    def __init__(
        self,
        space: Space,
        point: Sequence[float],
        direction: Direction,
        *,
        place: int | None = None,
        params: Mapping[str, Any] | None = None,
        repeats: _Candidate | None = None,
    ) -> None:
        super().__init__(point, direction, params=params)
        self.snapped = space.snap(point)
        self.place = place
        self.repeats = repeats
        self.values: list[float] = []
        self.screened = 0


class SteadyStateEvolution(RankedSearch[_Candidate]):
    """Differential evolution that always has another trial, whatever is still out.

    The first trials are design points: Latin hypercubes of `popsize` points, until `popsize` of
    them were told and one has a value. So where more are evaluated at once than `popsize`, more of
    them are drawn at random, and the best `popsize` become the population.

    From then on trial number i is a trial vector for individual `i % popsize`, and takes the place
    of whoever holds that place when it is told, unless that one is better. It is the one of five
    whose five nearest neighbours among the points evaluated so far rank best; beyond 80 trials,
    fewer and fewer are chosen so. When the population has collapsed, all but its best are replaced
    by design points. A failed trial takes nobody's place.

    No configuration is tried twice, going by the values of the hyperparameters, unless the space
    has fewer of them than there are trials: then none is tried a third time before all were twice,
    and so on. Where the space's constraint does not allow a design point, or any of 20 trial
    vectors, a random point takes its place. What is known counts as tried, and `points` are tried
    in any case.

    Of what is known the best `popsize` are the first population; design points fill it up where
    they are fewer.

    Where the objective is noisy, one trial in ten evaluates the best individual again, and the
    score of an individual is the mean of its values: who was lucky once does not stay the best.

    The same `rng` and the same order of asking and telling give the same trials.

    Args:
        problem: What to search, by one objective.
        settings: Without `generational`.

    Attributes:
        toolbox: DEAP's, with `population`, `select`, `mutate`, `mate`, `repair` registered; swap
            one by registering another function of the same signature before the first `ask`.
        logbook: DEAP's, one record per `popsize` trials told: gen, evals, best, mean, std,
            diversity (the mean over the axes of the population's standard deviation in the unit
            cube), acceptance (the share of these trials that took a place; None for the first).
        hall_of_fame: DEAP's, the best individual at the last of these records; where the objective
            is noisy, the one with the best mean.
    """

    def __init__(self, problem: Problem, settings: EvolutionSettings) -> None:
        space, rng = problem.space, problem.rng
        super().__init__(
            space,
            direction=one_direction(problem),
            popsize=settings.popsize,
            generations=settings.generations,
            share="acceptance",
        )
        self.toolbox = make_toolbox(len(space), settings, direction=self._direction, rng=rng)
        check_points(problem.points, self.total, "trials")
        self._noisy = settings.noisy
        self._points = problem.points
        self._rng = rng
        self._tried = Tried(space, rng)
        self._screen = Screen(space, self._direction)
        self._design: list[list[float]] = []  # points of a Latin hypercube that are left
        self._told: list[_Candidate] = []  # since the last record of the logbook
        self._accepted = 0  # of these
        self._learn(problem.known)

    def _learn(self, known: Sequence[Evaluated]) -> None:
        first: dict[tuple[float, ...], _Candidate] = {}
        individuals = []
        for item in known:
            candidate = self._given(item.params)
            self._score(candidate, item.value)
            self._tried.add(candidate)
            same = first.setdefault(candidate.snapped, candidate)
            candidate.repeats = same if self._noisy and same is not candidate else None
            individuals.append(self._evaluated(candidate))
        self._begin_with(individuals)

    def _given(self, params: Mapping[str, Any]) -> _Candidate:
        return _Candidate(self._space, self._space.encode(params), self._direction, params=params)

    def _next(self) -> _Candidate:
        if self._asked < len(self._points):
            candidate = self._given(self._points[self._asked])
        else:
            best = self._best() if len(self._population) == self.popsize else None
            candidate = self._design_point() if best is None else self._bred(best)
        self._tried.add(candidate)
        return candidate

    def _bred(self, best: _Candidate) -> _Candidate:
        if self._noisy and self._asked % REPEATED == REPEATED - 1:
            params = self._params(best)
            return _Candidate(self._space, best, self._direction, params=params, repeats=best)
        place = self._asked % self.popsize
        return _Candidate(self._space, self._trial_vector(place), self._direction, place=place)

    def _design_point(self) -> _Candidate:
        if not self._design:
            self._design = list(self.toolbox.population())
        point = self._design.pop(0)
        point = point if self._is_new(point) else self._tried.another()
        return _Candidate(self._space, point, self._direction)

    def _trial_vector(self, place: int) -> list[float]:
        screened = self._rng.random() * len(self._screen) < SCREENED
        vectors = (breed(self.toolbox, self._population, place) for _ in range(_TRIES))
        new = filter(self._is_new, vectors)
        candidates = list(itertools.islice(new, CANDIDATES if screened else 1))
        if not candidates:
            return self._tried.another()
        return self._screen.most_promising(candidates) if screened else candidates[0]

    def _is_new(self, point: list[float]) -> bool:
        return point not in self._tried and self._space.allows(point)

    def _take(self, candidate: _Candidate) -> None:
        individual = self._evaluated(candidate)
        self._accepted += individual is candidate and self._replace(candidate)
        self._told.append(candidate)
        if len(self._told) == self.popsize:
            share = self._accepted / self.popsize if self.logbook else None
            if self._noisy:
                self.hall_of_fame.clear()  # who is in there may have been lucky
            self._end_generation(self._population if self._noisy else self._told, share)
            self._told, self._accepted = [], 0
        if self._has_collapsed():
            self._renew()

    def _evaluated(self, candidate: _Candidate) -> _Candidate:
        """Learn the score of a candidate; return it, or the individual that it repeats."""
        individual = candidate if candidate.repeats is None else candidate.repeats
        if candidate.score is not None:
            individual.values.append(candidate.score)
            self._score(individual, mean(individual.values))
        if individual is candidate:
            individual.screened = len(self._screen)
            self._screen.add(individual, individual.score)
        else:
            self._screen.rescore(individual.screened, individual.score)
        return individual

    def _replace(self, candidate: _Candidate) -> bool:
        """Put a candidate into the population, unless who has its place is better."""
        place = candidate.place
        if place is None:
            if len(self._population) < self.popsize:
                self._selected(candidate, None, accepted=True)
                self._population.append(candidate)
                return True
            merits = [self._direction.merit(member.score) for member in self._population]
            place = merits.index(min(merits))
        holder = self._population[place]
        better = self._direction.better(holder.score, candidate.score)
        accepted = candidate.score is not None and not better
        self._selected(candidate, holder, accepted=accepted)
        if accepted:
            self._population[place] = candidate
        return accepted

    def _best(self) -> _Candidate | None:
        return self._direction.best(self._population, lambda member: member.score)

    def _has_collapsed(self) -> bool:
        if len(self._population) < self.popsize:
            return False
        # By the values: within its bin, a coordinate of a choice may wander for ever.
        snapped = [member.snapped for member in self._population]
        return bool(np.std(snapped, axis=0).max() < COLLAPSED)

    def _renew(self) -> None:
        """Keep the best alone, for whose place all compete that were bred from the others."""
        best = self._best()
        if best is not None:
            self._population = [best]
            self._design = []
            for candidate in self._out.values():
                if candidate.place is not None:
                    candidate.place = 0
