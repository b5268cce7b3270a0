"""The operators of differential evolution, registered in a toolbox of DEAP.

DEAP has none of them, and its operators draw from the global `random`. These take a generator, and
are registered under DEAP's usual names.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from deap import base

from search.direction import Direction
from search.evolution.population_search import Individual
from search.evolution.settings import EvolutionSettings
from search.space.sampling import latin_hypercube

PBEST = 0.2
"""The share of the population that counts as its best (p of current-to-pbest)."""


def make_toolbox(
    dimensions: int,
    settings: EvolutionSettings,
    *,
    direction: Direction,
    rng: random.Random,
) -> Any:
    """Return a toolbox with `population`, `select`, `mutate`, `mate` and `repair`.

    Args:
        dimensions: Dimensions of the space.
        settings: The settings; `population` returns a Latin hypercube of `popsize` points.
        direction: Direction of the objective.
        rng: The operators' generator.
    """
    toolbox = base.Toolbox()
    toolbox.register("population", latin_hypercube, settings.popsize, dimensions, rng)
    mutate: Callable[..., list[float]]
    if settings.variant == "rand1bin":
        toolbox.register("select", select_rand1, rng=rng)
        mutate = mutate_rand1
    else:
        toolbox.register("select", select_current_to_pbest, direction=direction, rng=rng)
        mutate = mutate_current_to_best
    if isinstance(settings.mutation, tuple):
        toolbox.register("mutate", mutate_dithered, mutate, settings.mutation, rng)
    else:
        toolbox.register("mutate", mutate, weight=settings.mutation)
    toolbox.register("mate", mate_binomial, rate=settings.crossover, rng=rng)
    toolbox.register("repair", repair_between, rng=rng)
    return toolbox


def breed(toolbox: Any, population: Sequence[Individual], index: int) -> list[float]:
    """Return a trial vector for individual number `index`, a point of the unit cube."""
    target = population[index]
    mutant = toolbox.mutate(*toolbox.select(population, index))
    vector: list[float] = toolbox.repair(toolbox.mate(target, mutant), target)
    return vector


def select_rand1(
    population: Sequence[list[float]], index: int, *, rng: random.Random
) -> list[list[float]]:
    """Return three different individuals other than number `index`."""
    others = [number for number in range(len(population)) if number != index]
    return [population[number] for number in rng.sample(others, 3)]


def mutate_rand1(
    base_vector: list[float], plus: list[float], minus: list[float], *, weight: float
) -> list[float]:
    """Return base + F * (plus - minus), equation (1) of Storn and Price 1997."""
    vectors = zip(base_vector, plus, minus, strict=True)
    return [x + weight * (a - b) for x, a, b in vectors]


def select_current_to_pbest(
    population: Sequence[Individual], index: int, *, direction: Direction, rng: random.Random
) -> list[list[float]]:
    """Return individual number `index`, one of the best fifth, and two that are neither.

    The individual itself may be the one drawn from the best.
    """
    merits = [direction.merit(member.score) for member in population]
    ranking = sorted(range(len(merits)), key=merits.__getitem__, reverse=True)
    best = rng.choice(ranking[: max(1, round(PBEST * len(ranking)))])
    others = [number for number in range(len(population)) if number not in (index, best)]
    return [population[number] for number in (index, best, *rng.sample(others, 2))]


def mutate_current_to_best(
    target: list[float], best: list[float], plus: list[float], minus: list[float], *, weight: float
) -> list[float]:
    """Return target + F * (best - target) + F * (plus - minus).

    Equation (6) of Zhang, Sanderson: JADE (IEEE Transactions on Evolutionary Computation 13, 2009).
    """
    vectors = zip(target, best, plus, minus, strict=True)
    return [x + weight * (top - x) + weight * (a - b) for x, top, a, b in vectors]


def mutate_dithered(
    mutate: Callable[..., list[float]],
    weights: Sequence[float],
    rng: random.Random,
    *vectors: list[float],
) -> list[float]:
    """Call an operator with a weight drawn evenly between two."""
    return mutate(*vectors, weight=rng.uniform(*weights))


def mate_binomial(
    target: list[float], mutant: list[float], *, rate: float, rng: random.Random
) -> list[float]:
    """Return the target with coordinates of the mutant: each with probability `rate`, at least one.

    One of them, each equally likely, is taken in any case.
    """
    forced = rng.randrange(len(target))
    return [
        m if rng.random() < rate or index == forced else t
        for index, (t, m) in enumerate(zip(target, mutant, strict=True))
    ]


def repair_between(vector: list[float], target: list[float], *, rng: random.Random) -> list[float]:
    """Redraw each coordinate outside the unit cube, between the target and the bound crossed.

    Clipping would pile up points on the bounds ("bounce-back": Price, Storn, Lampinen: Differential
    Evolution, 2005, section 4.3.1).
    """
    return [
        x if 0 <= x <= 1 else t + rng.random() * ((0.0 if x < 0 else 1.0) - t)
        for x, t in zip(vector, target, strict=True)
    ]
