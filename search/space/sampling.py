"""Searches that draw points at random, and the draws that other algorithms start from."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from search.checks import check_integer
from search.searcher import Evaluated
from search.space.points import check_points
from search.space.spaces import Space, nothing_allowed
from search.trial import Outcome, Trial

DRAWS = 10_000
"""Points drawn for one that the constraint of a space allows, before that is given up."""

_NEW = 1_000  # points drawn for one that is not known, at the most; all may be
_CHECKS = 10  # points found before a search starts: a constraint may stumble over a few only


def random_point(space: Space, rng: random.Random) -> list[float]:
    """Return a point drawn evenly from those of the unit cube that the constraint allows.

    Raises:
        NothingAllowed: None of `DRAWS` points was one.
        InvalidArgument: The constraint raised, or returned no bool.
    """
    for _ in range(DRAWS):
        point = [rng.random() for _ in space]
        if space.allows(point):
            return point
    raise nothing_allowed(DRAWS, "drawn at random", space.decode(point))


def check_constraint(space: Space, rng: random.Random) -> None:
    """Make sure that a space's constraint can be asked and does not refuse next to everything.

    Raises:
        NothingAllowed: It refuses nearly everything, as `random_point`.
        InvalidArgument: It raised, or returned no bool.
    """
    if space.constraint is not None:
        for _ in range(_CHECKS):
            random_point(space, rng)


def allowed(space: Space, points: Sequence[list[float]], rng: random.Random) -> list[list[float]]:
    """Return points of the unit cube, those that are not allowed replaced by random ones."""
    return [point if space.allows(point) else random_point(space, rng) for point in points]


class RandomSearch:
    """Independent uniform points of the unit cube, of those that the space's constraint allows.

    None of them is known, where the space has others.

    Args:
        space: What to search.
        samples: How many trials, at least 1.
        rng: Owned by the searcher from now on.
        points: Configurations that are tried first.
        known: Configurations evaluated before, which are not tried again.
    """

    def __init__(
        self,
        space: Space,
        *,
        samples: int,
        rng: random.Random,
        points: Sequence[Mapping[str, Any]] = (),
        known: Sequence[Evaluated] = (),
    ) -> None:
        check_integer("samples", samples, 1)
        check_points(points, samples, "samples")
        self._space, self._rng, self._points = space, rng, points
        self._known = {space.snap(space.encode(item.params)) for item in known}
        self._next = 0
        self.total = samples

    @property
    def finished(self) -> bool:
        """See `Searcher`."""
        return self._next >= self.total

    def ask(self) -> Trial | None:
        """See `Searcher`."""
        if self.finished:
            return None
        first = self._next < len(self._points)
        params = dict(self._points[self._next]) if first else self._space.decode(self._draw())
        trial = Trial(self._next, params)
        self._next += 1
        return trial

    def _draw(self) -> list[float]:
        for _ in range(_NEW):
            point = random_point(self._space, self._rng)
            if not self._known or self._space.snap(point) not in self._known:
                break
        return point

    def tell(self, outcome: Outcome) -> None:
        """See `Searcher`; random search learns nothing."""


def latin_hypercube(count: int, dimensions: int, rng: random.Random) -> list[list[float]]:
    """Return `count` points of the unit cube, one in each of `count` slices of every axis.

    McKay, Beckman, Conover: A comparison of three methods for selecting values of input variables
    (Technometrics, 1979). Not scipy's, whose import takes longer than all of ours.
    """
    columns = []
    for _ in range(dimensions):
        slices = list(range(count))
        rng.shuffle(slices)
        columns.append([(index + rng.random()) / count for index in slices])
    return [list(point) for point in zip(*columns, strict=True)]
