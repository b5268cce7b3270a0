"""Which configurations a search has tried, so that none is tried twice."""

from __future__ import annotations

import random
from collections.abc import Sequence

from search.grid import grid_of
from search.sampling import random_point
from search.space import Space

_DRAWS = 20
"""Points drawn before a new one is looked for in order; a space may have hardly any left."""

_LOOKED_AT = 10_000
"""Points of a grid looked at for a new one, where some are the same or not allowed."""


class Tried:
    """The configurations of a space that were tried.

    Two points of the unit cube are one configuration where they decode to the same values.

    Args:
        space: What is searched.
        rng: Drawn from by `another`.
    """

    def __init__(self, space: Space, rng: random.Random) -> None:
        self._space, self._rng, self._grid = space, rng, grid_of(space)
        self._snapped: set[tuple[float, ...]] = set()

    def __contains__(self, point: Sequence[float]) -> bool:
        return self.has_snapped(self._space.snap(point))

    def has_snapped(self, snapped: tuple[float, ...]) -> bool:
        """Was the configuration tried that lies there, going by `Space.snap`?"""
        return snapped in self._snapped

    def add(self, point: Sequence[float]) -> None:
        """Note that the configuration at a point is tried."""
        self._snapped.add(self._space.snap(point))

    def another(self) -> list[float]:
        """Return a point at random whose configuration is allowed and was not tried.

        Once all were tried that is forgotten, so that each may be tried a second time, and so on.
        """
        for _ in range(_DRAWS):
            point = random_point(self._space, self._rng)
            if point not in self:
                return point
        return self._next_of_grid() or self._begin_again(point)

    def _next_of_grid(self) -> list[float] | None:
        """Go through a space without real numbers from anywhere in it."""
        if self._grid is None:
            return None
        start = self._rng.randrange(self._grid.total)
        all_differ = not self._space.conditional and self._space.constraint is None
        most = len(self._snapped) + 1 if all_differ else _LOOKED_AT
        for step in range(min(self._grid.total, most)):
            point = self._space.encode(self._grid.point((start + step) % self._grid.total))
            if point not in self and self._space.allows(point):
                return point
        return None

    def forget(self) -> None:
        """Let each configuration be tried once more."""
        self._snapped.clear()

    def _begin_again(self, point: list[float]) -> list[float]:
        self.forget()
        return point
