"""The operators of genetic algorithms on real numbers, registered in a toolbox of DEAP.

DEAP's draw from the global `random`; so these are our own, take a generator, and are registered
under the usual names. Its non-dominated sorting draws nothing, and is DEAP's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from deap import base, tools

from search.evolution.population_search import Individual
from search.space.sampling import latin_hypercube
from search.space.spaces import Choice, Space

CROSSOVER_ETA = 5.0
"""Distribution index of the crossover: the higher, the nearer are children to their parents."""

MUTATION_ETA = 5.0
"""Distribution index of the mutation."""


def make_toolbox(
    space: Space, *, popsize: int, crossover: float, mutation: float | None, rng: random.Random
) -> Any:
    """Return a toolbox with `population`, `select`, `parent`, `mate` and `mutate`.

    Args:
        space: What is searched; of choices without an order nothing lies between two.
        popsize: Points that `population` makes, a Latin hypercube.
        crossover: Probability of [0, 1] that a child has two parents.
        mutation: Probability of [0, 1] that a coordinate mutates; None makes it one of those that
            are no constants.
        rng: Drawn from by the operators.
    """
    if mutation is None:
        mutation = 1 / max(sum(domain.size != 1 for domain in space.values()), 1)
    unordered = [isinstance(d, Choice) and not d.ordered for d in space.values()]
    toolbox = base.Toolbox()
    toolbox.register("population", latin_hypercube, popsize, len(space), rng)
    toolbox.register("select", tools.selNSGA2)
    toolbox.register("parent", select_tournament, rng=rng)
    toolbox.register("mate", mate_simulated_binary, rate=crossover, unordered=unordered, rng=rng)
    toolbox.register("mutate", mutate_polynomial, rate=mutation, unordered=unordered, rng=rng)
    return toolbox


def breed(toolbox: Any, population: Sequence[Individual]) -> list[float]:
    """Return a child of two individuals that `select` has kept, a point of the unit cube."""
    parents = [toolbox.parent(population) for _ in range(2)]
    child: list[float] = toolbox.mutate(toolbox.mate(*parents))
    return child


def select_tournament(population: Sequence[Individual], *, rng: random.Random) -> Individual:
    """Return the better of two different individuals.

    It dominates the other, else it has more room around it on its front (the crowded comparison of
    Deb et al. 2002, as DEAP's `selTournamentDCD` makes it), else it was drawn first.
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
    """Return a child of two points at `rate`, else the first of them.

    Each coordinate is crossed as often as not: simulated binary crossover within the bounds (Deb,
    Agrawal: Complex Systems 9, 1995, as DEAP's `cxSimulatedBinaryBounded`), of which one of the two
    children is taken; without an order, the other parent's coordinate.
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
    """Return a point each of whose coordinates has mutated at `rate`.

    Polynomial mutation within the bounds (Deb, Agrawal: A niched-penalty approach for constraint
    handling in genetic algorithms, 1999, as DEAP's `mutPolynomialBounded`); without an order, drawn
    anew.
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
