"""Differential evolution by generation, with DEAP's toolbox, statistics, logbook, hall of fame.

Storn, Price: Differential Evolution (Journal of Global Optimization 11, 1997), rand/1/bin.
DEAP has no operators of differential evolution, and those that it has draw from the global
`random`; so the operators here are our own, take a generator, and are registered under DEAP's
usual names.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from deap import base

from search.checks import check_number
from search.direction import Direction
from search.generations import GenerationalSearch, Individual
from search.sampling import latin_hypercube
from search.space import Space


class DifferentialEvolution(GenerationalSearch[Individual]):
    """Differential evolution, one generation after the other.

    Generation 0 is a Latin hypercube; then every individual of the population meets one trial
    vector per generation and is replaced by it unless it is better. `popsize * (generations + 1)`
    trials in all. `ask` returns None while the last trials of a generation are out.

    The same `rng` gives the same trials whatever the order in which outcomes are told. A failed
    trial never replaces an individual that has a value.

    Args:
        space: What to search.
        direction: 'max' or 'min' of the objective.
        popsize: Individuals, at least 4, since rand/1 takes three parents beside the individual.
        generations: After the initial one, at least 1.
        crossover: Crossover rate CR of [0, 1]: the share of coordinates taken from the mutant.
        mutation: Differential weight F of (0, 2].
        rng: Owned by the searcher from now on.

    Attributes:
        toolbox: DEAP's, with `population`, `select`, `mutate`, `mate`, `repair` registered; swap
            one by registering another function of the same signature before the first `ask`.
        logbook: DEAP's, one record per generation: gen, evals, best, mean, std, diversity (the mean
            over the axes of the population's standard deviation in the unit cube), acceptance (the
            share of trial vectors that took their individual's place; None for generation 0).
        hall_of_fame: DEAP's, the best individual so far.
    """

    def __init__(
        self,
        space: Space,
        *,
        rng: random.Random,
        direction: Direction = Direction.MAX,
        popsize: int = 10,
        generations: int = 3,
        crossover: float = 0.7,
        mutation: float = 0.5,
    ) -> None:
        super().__init__(
            space,
            direction=direction,
            popsize=popsize,
            generations=generations,
            least=4,
            share="acceptance",
        )
        check_number("crossover", crossover, "a number of [0, 1]", lambda rate: 0 <= rate <= 1)
        check_number("mutation", mutation, "a number of (0, 2]", lambda weight: 0 < weight <= 2)
        self.toolbox = _toolbox(len(space), popsize, crossover, mutation, rng)

    def _breed(self) -> list[Individual]:
        if not self._population:
            points = self.toolbox.population()
        else:
            points = [self._trial_vector(index) for index in range(self.popsize)]
        return [Individual(point, self._direction) for point in points]

    def _trial_vector(self, index: int) -> list[float]:
        target = self._population[index]
        mutant = self.toolbox.mutate(*self.toolbox.select(self._population, index))
        vector: list[float] = self.toolbox.repair(self.toolbox.mate(target, mutant), target)
        return vector

    def _replace(self) -> float:
        pairs = list(zip(self._population, self._candidates, strict=True))
        accepted = [not self._direction.better(p.score, child.score) for p, child in pairs]
        self._population = [
            child if taken else parent
            for (parent, child), taken in zip(pairs, accepted, strict=True)
        ]
        return sum(accepted) / self.popsize


def _toolbox(
    dimensions: int, popsize: int, crossover: float, mutation: float, rng: random.Random
) -> Any:
    toolbox = base.Toolbox()
    toolbox.register("population", latin_hypercube, popsize, dimensions, rng)
    toolbox.register("select", select_rand1, rng=rng)
    toolbox.register("mutate", mutate_rand1, weight=mutation)
    toolbox.register("mate", mate_binomial, rate=crossover, rng=rng)
    toolbox.register("repair", repair_between, rng=rng)
    return toolbox


def select_rand1(
    population: Sequence[list[float]], index: int, *, rng: random.Random
) -> list[list[float]]:
    """Return three different individuals, none of them number `index`."""
    others = [number for number in range(len(population)) if number != index]
    return [population[number] for number in rng.sample(others, 3)]


def mutate_rand1(
    base_vector: list[float], plus: list[float], minus: list[float], *, weight: float
) -> list[float]:
    """Return base + F * (plus - minus), equation (1) of Storn and Price 1997."""
    vectors = zip(base_vector, plus, minus, strict=True)
    return [x + weight * (a - b) for x, a, b in vectors]


def mate_binomial(
    target: list[float], mutant: list[float], *, rate: float, rng: random.Random
) -> list[float]:
    """Return the target with each coordinate, and one for sure, taken from the mutant at `rate`."""
    forced = rng.randrange(len(target))
    return [
        m if rng.random() < rate or index == forced else t
        for index, (t, m) in enumerate(zip(target, mutant, strict=True))
    ]


def repair_between(vector: list[float], target: list[float], *, rng: random.Random) -> list[float]:
    """Draw each coordinate that left the unit cube anew, between the target and the bound crossed.

    Clipping instead would heap points up on the bounds ("bounce-back": Price, Storn, Lampinen:
    Differential Evolution, 2005, section 4.3.1).
    """
    return [
        x if 0 <= x <= 1 else t + rng.random() * ((0.0 if x < 0 else 1.0) - t)
        for x, t in zip(vector, target, strict=True)
    ]
