"""Differential evolution by generation, with DEAP's toolbox, statistics, logbook, hall of fame.

Storn, Price: Differential Evolution (Journal of Global Optimization 11, 1997).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search.evolution.operators import breed, make_toolbox
from search.evolution.population_search import GenerationalSearch, Individual
from search.evolution.settings import EvolutionSettings
from search.searcher import Problem, one_direction
from search.space.points import check_points
from search.space.sampling import allowed, random_point

_TRIES = 20
"""Trial vectors made for a trial at the most; the constraint may allow none of them."""


class DifferentialEvolution(GenerationalSearch[Individual]):
    """Differential evolution, one generation after the other.

    Generation 0 is a Latin hypercube; then every individual of the population meets one trial
    vector per generation and is replaced by it unless it is better. `popsize * (generations + 1)`
    trials in all. `ask` returns None while the last trials of a generation are out.

    Where the space's constraint does not allow a point of the hypercube, or any of 20 trial
    vectors, a random point takes its place.

    Where `popsize` configurations are known, the best of them are the population that generation 0
    is bred from; where fewer are, the best of them and of generation 0 are the next population.

    The same `rng` gives the same trials whatever the order in which outcomes are told. A failed
    trial never replaces an individual that has a value.

    Args:
        problem: What to search, by one objective. Its points are the first of generation 0, at most
            `popsize`.
        settings: With `generational`.

    Attributes:
        toolbox: DEAP's, with `population`, `select`, `mutate`, `mate`, `repair` registered; swap
            one by registering another function of the same signature before the first `ask`.
        logbook: DEAP's, one record per generation: gen, evals, best, mean, std, diversity (the mean
            over the axes of the population's standard deviation in the unit cube), acceptance (the
            share of trial vectors that took their individual's place; None for generation 0).
        hall_of_fame: DEAP's, the best individual so far.
    """

    def __init__(self, problem: Problem, settings: EvolutionSettings) -> None:
        super().__init__(
            problem.space,
            direction=one_direction(problem),
            popsize=settings.popsize,
            generations=settings.generations,
            share="acceptance",
        )
        self._rng = problem.rng
        self.toolbox = make_toolbox(
            len(problem.space), settings, direction=self._direction, rng=problem.rng
        )
        check_points(problem.points, settings.popsize, "individuals")
        self._points = [self._individual(params) for params in problem.points]
        self._begin_with([self._individual(item.params, item.value) for item in problem.known])

    def _individual(self, params: Mapping[str, Any], score: float | None = None) -> Individual:
        individual = Individual(self._space.encode(params), self._direction, params=params)
        self._score(individual, score)
        return individual

    def _breed(self) -> list[Individual]:
        if len(self._population) < self.popsize:
            points = allowed(self._space, self.toolbox.population(), self._rng)
        else:
            points = [self._trial_vector(index) for index in range(self.popsize)]
        bred = [Individual(point, self._direction) for point in points]
        first, self._points = self._points, []
        return [*first, *bred[len(first) :]]

    def _trial_vector(self, index: int) -> list[float]:
        for _ in range(_TRIES):
            vector = breed(self.toolbox, self._population, index)
            if self._space.allows(vector):
                return vector
        return random_point(self._space, self._rng)

    def _replace(self) -> float:
        pairs = list(zip(self._population, self._candidates, strict=True))
        accepted = [not self._direction.better(p.score, child.score) for p, child in pairs]
        for (parent, child), taken in zip(pairs, accepted, strict=True):
            self._selected(child, parent, accepted=taken)
        self._population = [
            child if taken else parent
            for (parent, child), taken in zip(pairs, accepted, strict=True)
        ]
        return sum(accepted) / self.popsize
