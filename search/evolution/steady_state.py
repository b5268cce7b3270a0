"""Differential evolution without a barrier: a free slot gets the next trial at once.

The population is replaced one individual at a time, as outcomes come in (steady state). The
operator is that of Zhang, Sanderson: JADE (IEEE Transactions on Evolutionary Computation 13, 2009),
without its archive and its adaptation.
"""

from __future__ import annotations

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
from search.space.sampling import TRIES
from search.space.spaces import Space
from search.space.tried import Tried
from search.trial import Evaluated

COLLAPSED = 0.01
"""A population with a lower standard deviation on every axis of the unit cube is renewed."""

REPEATED = 10
"""With a noisy objective, one trial in this many evaluates the best individual again."""


class _Candidate(Individual):
    """An individual with the place in the population that it competes for.

    Attributes:
        snapped: The point at which its values lie, see `Space.snap`.
        place: Its place in the population; None for a design point, which has no target.
        repeats: The individual that it evaluates again, if any.
        values: The values of all its evaluations.
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
    """Differential evolution that always has another trial, whatever is in flight.

    The first trials are design points: Latin hypercubes of `popsize` points, until `popsize` of
    them were evaluated and one has a value. With more than `popsize` trials in flight there are
    more design points, and the best `popsize` become the population.

    From then on trial number i, repetitions not counted, is a trial vector for individual
    `i % popsize`, and replaces the individual that holds this place when the outcome comes, unless
    that one is better. Of `candidates` trial vectors, the most promising one is chosen: by the mean
    rank of its five nearest evaluated points and, the more trials have ended, the more by its
    distance from the nearest, see `Screen`; beyond 160 trials, fewer and fewer are screened. When
    the population has collapsed, all but its best are replaced by design points. A failed trial
    replaces no individual.

    No configuration (going by the values of the hyperparameters) is tried twice, prior observations
    included: a space with fewer of them than trials ends the search early. The user's points are
    tried in any case. A random point replaces a design point that the space's constraint does not
    allow, and a trial vector where it allows none of `2 * candidates`, at least 20.

    The best `popsize` prior observations are the first population; if there are fewer, design
    points fill it up.

    With a noisy objective, one trial in ten is a repetition: it evaluates the best individual
    again. The score of an individual is the mean of its values, so that one lucky evaluation does
    not stay the best.
    Once all configurations were tried, each may be tried once more, and so on.

    The same `rng` and the same order of `ask` and `tell` give the same trials.

    Args:
        problem: The problem to search, with one objective.
        settings: The settings, without `generational`.

    Attributes:
        toolbox: DEAP's toolbox with `population`, `select`, `mutate`, `mate` and `repair`; to
            replace one, register a function of the same signature before the first `ask`.
        logbook: DEAP's logbook, one record per `popsize` evaluated trials: gen, evals, best, mean,
            std, diversity (the population's standard deviation in the unit cube, averaged over the
            axes), acceptance (the share of these trials that took a place; None for the first).
        hall_of_fame: DEAP's hall of fame as of the last record: the best individual, with a noisy
            objective the one with the best mean.
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
        assert settings.candidates is not None, "the settings have chosen it"
        self._candidates = settings.candidates
        self._points = problem.points
        self._rng = rng
        self._tried = Tried(space, rng, problem.given, repeats=settings.noisy)
        self._try_each_once(self._tried, len(problem.points))
        self._screen = Screen(space, self._direction)
        self._design: list[list[float]] = []  # unused points of the Latin hypercube
        self._received: list[_Candidate] = []  # candidates since the last record of the logbook
        self._accepted = 0  # how many of these took a place
        self._learn(problem.known)

    def _learn(self, known: Sequence[Evaluated]) -> None:
        first: dict[tuple[float, ...], _Candidate] = {}
        individuals = []
        for item in known:
            candidate = self._given(item.params)
            self._score(candidate, item.value)
            same = first.setdefault(candidate.snapped, candidate)
            candidate.repeats = same if self._noisy and same is not candidate else None
            individuals.append(self._evaluated(candidate))
        self._begin_with(individuals)

    def _given(self, params: Mapping[str, Any]) -> _Candidate:
        return _Candidate(self._space, self._space.encode(params), self._direction, params=params)

    def _next(self) -> _Candidate | None:
        if self._asked < len(self._points):
            return self._given(self._points[self._asked])
        best = self._best() if len(self._population) == self.popsize else None
        candidate = self._design_point() if best is None else self._bred(best)
        if candidate is None:
            self.total = self._asked
            if self._received and not self._in_flight:  # no outcome is to come
                self._record()
        else:
            self._tried.add(candidate)
        return candidate

    def _bred(self, best: _Candidate) -> _Candidate | None:
        if self._noisy and self._asked % REPEATED == REPEATED - 1:
            params = self._params(best)
            return _Candidate(self._space, best, self._direction, params=params, repeats=best)
        # Repetitions have no place, and every tenth trial would always leave out the same places.
        number = self._asked - self._asked // REPEATED if self._noisy else self._asked
        place = number % self.popsize
        vector = self._trial_vector(place)
        if vector is None:
            return None
        return _Candidate(self._space, vector, self._direction, place=place)

    def _design_point(self) -> _Candidate | None:
        if not self._design:
            self._design = list(self.toolbox.population())
        new = self._tried.this_or_another(self._design.pop(0))
        return None if new is None else _Candidate(self._space, new, self._direction)

    def _trial_vector(self, place: int) -> list[float] | None:
        tries = max(TRIES, 2 * self._candidates)
        vectors = (breed(self.toolbox, self._population, place) for _ in range(tries))
        new = filter(self._tried.is_new, vectors)
        chosen = self._screen.choose(new, self._candidates, self._rng)
        return chosen or self._tried.another()

    def _take(self, candidate: _Candidate) -> None:
        individual = self._evaluated(candidate)
        self._accepted += individual is candidate and self._replace(candidate)
        self._received.append(candidate)
        if self._ends_generation(len(self._received)):
            self._record()
        if self._has_collapsed():
            self._renew()

    def _record(self) -> None:
        """Record the candidates since the last record as a generation."""
        share = self._accepted / len(self._received) if self.logbook else None
        if self._noisy:
            self.hall_of_fame.clear()  # its member may have been lucky
        best = self._population if self._noisy else self._received
        self._end_generation(best, share, evals=len(self._received))
        self._received = []
        self._accepted = 0

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
        """Put a candidate into its place, unless the place's holder is better."""
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
        # By the values: a coordinate of a choice may drift within its bin for ever.
        snapped = [member.snapped for member in self._population]
        return bool(np.std(snapped, axis=0).max() < COLLAPSED)

    def _renew(self) -> None:
        """Keep the best alone; candidates bred from the others compete for its place."""
        best = self._best()
        if best is not None:
            self._population = [best]
            self._design = []
            for candidate in self._in_flight.values():
                if candidate.place is not None:
                    candidate.place = 0
