"""Random search."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from search.checks import check_integer
from search.space.points import check_points
from search.space.sampling import random_point
from search.space.spaces import Space
from search.trial import Evaluated, Outcome, Trial

_NEW = 1_000  # points drawn for one that is not known, at the most; all may be


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
