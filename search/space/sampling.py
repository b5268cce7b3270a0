"""Random points, from which algorithms start."""

from __future__ import annotations

import random
from collections.abc import Sequence

from search.space.spaces import Space, nothing_allowed

DRAWS = 10_000
"""Maximum draws for each of the points that show that a search may start."""

DRAWS_OF_ONE = 10 * DRAWS
"""Maximum draws for a point of a search, or for what a point of the user leaves out.

More than before a search: a constraint that allows one in a few thousand may start, and would then
soon end the search, since 10,000 draws fail for one point in a hundred."""

TRIES = 20
"""Maximum proposals per trial; all may have been tried, or not be allowed."""

_CHECKS = 10  # allowed points drawn before a search starts: a constraint may raise for a few only


def random_point(space: Space, rng: random.Random, draws: int = DRAWS_OF_ONE) -> list[float]:
    """Return a uniform point of the unit cube that the constraint allows.

    Args:
        space: The search space.
        rng: The generator.
        draws: Maximum draws; by default 100,000.

    Raises:
        NothingAllowed: The constraint allowed none of `draws` points.
        InvalidArgument: The constraint raised, or returned no bool.
    """
    for _ in range(draws):
        point = [rng.random() for _ in space]
        if space.allows(point):
            return point
    raise nothing_allowed(draws, "drawn at random", space.decode(point))


def check_constraint(space: Space, rng: random.Random) -> None:
    """Make sure that a space's constraint returns bools and does not refuse nearly everything.

    Raises:
        NothingAllowed: The constraint allowed none of `DRAWS` points.
        InvalidArgument: The constraint raised, or returned no bool.
    """
    if space.constraint is not None:
        for _ in range(_CHECKS):
            random_point(space, rng, DRAWS)


def allowed(space: Space, points: Sequence[list[float]], rng: random.Random) -> list[list[float]]:
    """Return the points with those that are not allowed replaced by random ones."""
    return [point if space.allows(point) else random_point(space, rng) for point in points]


def latin_hypercube(count: int, dimensions: int, rng: random.Random) -> list[list[float]]:
    """Return `count` points of the unit cube, one in each of `count` slices of every axis.

    McKay, Beckman, Conover: A comparison of three methods for selecting values of input variables
    (Technometrics, 1979). Not scipy's: its import takes longer than all of ours.
    """
    columns = []
    for _ in range(dimensions):
        slices = list(range(count))
        rng.shuffle(slices)
        columns.append([(index + rng.random()) / count for index in slices])
    return [list(point) for point in zip(*columns, strict=True)]
