"""The operators of genetic algorithms on real numbers, registered in a toolbox of DEAP.

DEAP's operators draw from the global `random`. These take a generator instead, and are registered
under DEAP's usual names. The selection draws nothing; it selects as DEAP's, in less time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from deap import base, tools

from search.evolution.population_search import Individual
from search.space.domains import count_varying, is_unordered
from search.space.sampling import latin_hypercube
from search.space.spaces import Space

CROSSOVER_ETA = 5.0
"""Distribution index of the crossover: the higher, the nearer children are to their parents."""

MUTATION_ETA = 5.0
"""Distribution index of the mutation."""


def make_toolbox(
    space: Space, *, popsize: int, crossover: float, mutation: float | None, rng: random.Random
) -> Any:
    """Return a toolbox with `population`, `select`, `parent`, `mate` and `mutate`.

    Args:
        space: The search space; unordered choices are not interpolated.
        popsize: Points of the Latin hypercube that `population` returns.
        crossover: Probability of [0, 1] that a child has two parents.
        mutation: Probability of [0, 1] that a coordinate mutates; None for one coordinate on
            average, of those that are not constant.
        rng: The operators' generator.
    """
    if mutation is None:
        mutation = 1 / count_varying(space.values())
    unordered = [is_unordered(domain) for domain in space.values()]
    toolbox = base.Toolbox()
    toolbox.register("population", latin_hypercube, popsize, len(space), rng)
    toolbox.register("select", select_best)
    toolbox.register("parent", select_tournament, rng=rng)
    toolbox.register("mate", mate_simulated_binary, rate=crossover, unordered=unordered, rng=rng)
    toolbox.register("mutate", mutate_polynomial, rate=mutation, unordered=unordered, rng=rng)
    return toolbox


def breed(toolbox: Any, population: Sequence[Individual]) -> list[float]:
    """Return a child of two individuals that `select` kept, a point of the unit cube."""
    parents = [toolbox.parent(population) for _ in range(2)]
    child: list[float] = toolbox.mutate(toolbox.mate(*parents))
    return child


def select_best(individuals: Sequence[Individual], count: int) -> list[Individual]:
    """Return the best individuals by non-dominated sorting and crowding distance, the best first.

    The same ones in the same order as DEAP's `selNSGA2`, which compares all pairs one by one.
    """
    fronts = _fronts(individuals, count)
    for front in fronts:
        tools.emo.assignCrowdingDist(front)
    fronts[-1].sort(key=lambda member: member.fitness.crowding_dist, reverse=True)
    return list(itertools.chain(*fronts))[:count]


def _fronts(individuals: Sequence[Individual], count: int) -> list[list[Individual]]:
    """Return the first fronts, with `count` individuals or more; all if there are not so many."""
    alike: dict[tuple[float, ...], list[Individual]] = {}
    for individual in individuals:
        alike.setdefault(individual.fitness.wvalues, []).append(individual)
    groups, merits = list(alike.values()), np.array(list(zip(*alike, strict=True)))

    def no_better(group: int) -> Any:
        """Return which groups have no better value than one: those that it dominates, and it."""
        return (merits <= merits[:, [group]]).all(axis=0)

    dominating = np.full(len(groups), -1)  # how many others dominate each
    for group in range(len(groups)):
        dominating += no_better(group)
    front, fronts = np.flatnonzero(dominating == 0).tolist(), []
    while True:
        fronts.append([individual for group in front for individual in groups[group]])
        if sum(map(len, fronts)) >= min(count, len(individuals)):
            return fronts
        below: list[int] = []
        for group in front:
            others = no_better(group)
            dominating -= others
            below.extend(np.flatnonzero(others & (dominating == 0)).tolist())
        front = below


def select_tournament(population: Sequence[Individual], *, rng: random.Random) -> Individual:
    """Return the better of two different individuals.

    The one that dominates the other wins, else the one with the larger crowding distance (the
    crowded comparison of Deb et al. 2002, as in DEAP's `selTournamentDCD`), else the first drawn.
    """
    one, other = rng.sample(population, 2)
    if one.fitness.dominates(other.fitness):
        return one
    if other.fitness.dominates(one.fitness):
        return other
    return one if one.fitness.crowding_dist >= other.fitness.crowding_dist else other


def mate_simulated_binary(
    one: Sequence[float],
    other: Sequence[float],
    *,
    rate: float,
    unordered: Sequence[bool],
    rng: random.Random,
    eta: float = CROSSOVER_ETA,
) -> list[float]:
    """Return a child of two points with probability `rate`, else the first of them.

    Each coordinate is crossed with probability 0.5, by simulated binary crossover within the bounds
    (Deb, Agrawal: Complex Systems 9, 1995, as DEAP's `cxSimulatedBinaryBounded`), which yields two
    children, of which one is drawn. An unordered coordinate becomes the other parent's.
    """
    if rng.random() >= rate:
        return list(one)
    child = []
    for a, b, without_order in zip(one, other, unordered, strict=True):
        if rng.random() >= 0.5 or a == b:
            child.append(a)
        elif without_order:
            child.append(b)
        else:
            child.append(_between(min(a, b), max(a, b), eta, rng))
    return child


def _between(low: float, high: float, eta: float, rng: random.Random) -> float:
    """Return one of the two children of two numbers of [0, 1]."""
    upper, draw = rng.random() < 0.5, rng.random()
    room = 1.0 - high if upper else low  # to the bound behind the nearer parent
    alpha = 2.0 - (1.0 + 2.0 * room / (high - low)) ** -(eta + 1.0)
    power = 1.0 / (eta + 1.0)
    draw *= alpha
    spread: float = draw**power if draw <= 1.0 else (1.0 / (2.0 - draw)) ** power
    child = 0.5 * (low + high + (spread if upper else -spread) * (high - low))
    return min(max(child, 0.0), 1.0)


def mutate_polynomial(
    point: Sequence[float],
    *,
    rate: float,
    unordered: Sequence[bool],
    rng: random.Random,
    eta: float = MUTATION_ETA,
) -> list[float]:
    """Return a point with each coordinate mutated with probability `rate`.

    Polynomial mutation within the bounds (Deb, Agrawal: A niched-penalty approach for constraint
    handling in genetic algorithms, 1999, as DEAP's `mutPolynomialBounded`). An unordered coordinate
    is drawn anew.
    """
    return [
        x if rng.random() >= rate else rng.random() if without_order else _near(x, eta, rng)
        for x, without_order in zip(point, unordered, strict=True)
    ]


def _near(x: float, eta: float, rng: random.Random) -> float:
    draw, power = rng.random(), 1.0 / (eta + 1.0)
    delta: float
    if draw < 0.5:
        delta = (2.0 * draw + (1.0 - 2.0 * draw) * (1.0 - x) ** (eta + 1.0)) ** power - 1.0
    else:
        rest = 1.0 - draw
        delta = 1.0 - (2.0 * rest + (1.0 - 2.0 * rest) * x ** (eta + 1.0)) ** power
    return min(max(x + delta, 0.0), 1.0)
