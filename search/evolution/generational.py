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
from search.space.sampling import TRIES
from search.space.tried import Tried


class DifferentialEvolution(GenerationalSearch[Individual]):
    """Differential evolution, one generation after the other.

    Generation 0 is a Latin hypercube. In each later generation every individual competes with one
    trial vector, which replaces it unless the individual is better. There are
    `popsize * (generations + 1)` trials in all. `ask` returns None while the last trials of a
    generation are in flight.

    No configuration is tried twice, prior observations included: a space with fewer of them than
    trials ends the search early, with a smaller generation. The user's points are tried in any
    case. A random point replaces a point of the hypercube that the space's constraint does not
    allow, and a trial vector where none of 20 is new and allowed.

    With `popsize` or more prior observations, the best of them are the population that generation 0
    is bred from; with fewer, the best of them and of generation 0 are the next population.

    The same `rng` gives the same trials in whatever order the outcomes come. A failed trial never
    replaces an individual that has a value.

    Args:
        problem: The problem to search, with one objective and at most `popsize` points, with which
            generation 0 begins.
        settings: The settings, with `generational`.

    Attributes:
        toolbox: DEAP's toolbox with `population`, `select`, `mutate`, `mate` and `repair`; to
            replace one, register a function of the same signature before the first `ask`.
        logbook: DEAP's logbook, one record per generation: gen, evals, best, mean, std, diversity
            (the population's standard deviation in the unit cube, averaged over the axes),
            acceptance (the share of trial vectors that replaced their individual; None for a
            generation before which the population was not full).
        hall_of_fame: DEAP's hall of fame, the best individual so far.
    """

    def __init__(self, problem: Problem, settings: EvolutionSettings) -> None:
        super().__init__(
            problem.space,
            direction=one_direction(problem),
            popsize=settings.popsize,
            generations=settings.generations,
            share="acceptance",
        )
        self.toolbox = make_toolbox(
            len(problem.space), settings, direction=self._direction, rng=problem.rng
        )
        check_points(problem.points, settings.popsize, "individuals")
        self._points = [self._individual(params) for params in problem.points]
        self._tried = Tried(problem.space, problem.rng, problem.given)
        self._try_each_once(self._tried, len(problem.points))
        self._begin_with([self._individual(item.params, item.value) for item in problem.known])

    def _individual(self, params: Mapping[str, Any], score: float | None = None) -> Individual:
        individual = Individual(self._space.encode(params), self._direction, params=params)
        self._score(individual, score)
        return individual

    def _breed(self) -> list[Individual]:
        first, self._points = self._points, []
        design: list[list[float]] | None = None
        if len(self._population) < self.popsize:
            design = self.toolbox.population()
        bred = list(first)
        for index in range(len(first), self.popsize):
            if design is None:
                point = self._trial_vector(index)
            else:
                point = self._tried.this_or_another(design[index])
            if point is None:
                break
            self._tried.add(point)
            bred.append(Individual(point, self._direction))
        return bred

    def _trial_vector(self, index: int) -> list[float] | None:
        for _ in range(TRIES):
            vector = breed(self.toolbox, self._population, index)
            if self._tried.is_new(vector):
                return vector
        return self._tried.another()

    def _replace(self) -> float:
        # The last generation may be smaller.
        pairs = list(zip(self._population, self._candidates, strict=False))
        accepted = [not self._direction.better(p.score, child.score) for p, child in pairs]
        for (parent, child), taken in zip(pairs, accepted, strict=True):
            self._selected(child, parent, accepted=taken)
        self._population[: len(pairs)] = [
            child if taken else parent
            for (parent, child), taken in zip(pairs, accepted, strict=True)
        ]
        return sum(accepted) / len(pairs)
