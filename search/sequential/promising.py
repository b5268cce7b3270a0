"""The point of a space where a function is highest, found by random and local search."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from search.space.domains import is_unordered
from search.space.spaces import Space

Array = npt.NDArray[np.float64]

RANDOM, NEAR = 500, 300
"""Candidates for a trial: random ones, and those near the best evaluated points."""

ROUNDS, REFINED = 4, 100
"""Rounds in which points near the best candidates are added, and how many per round."""

_BEST = 8  # points near which candidates are drawn
_DISTANCES = (0.3, 0.1, 0.03, 0.01)  # standard deviations of these draws, on an axis 1 long


class Promising:
    """Finds the point that a model finds most promising.

    Args:
        space: The search space.
        rng: The generator; whoever owns it may seed it before each call.
        may_try: Returns whether the configuration at a position of `Space.snap` may be tried.
    """

    def __init__(
        self,
        space: Space,
        rng: random.Random,
        may_try: Callable[[tuple[float, ...]], bool],
    ) -> None:
        self._space = space
        self._rng = rng
        self._may_try = may_try
        self._categorical = tuple(is_unordered(domain) for domain in space.values())
        varied = [axis for axis, domain in enumerate(space.values()) if domain.size != 1]
        self._varied = np.array(varied or [0])  # one at least, also where all are constant

    def point(
        self, score: Callable[[Array], Array], good: Array
    ) -> tuple[list[float], float] | None:
        """Return the point of the highest score found that may be tried, and its score, or None.

        Args:
            score: Returns the scores of points, one per row.
            good: Good points, the best first; candidates are drawn near the first few.
        """
        generator = np.random.default_rng(self._rng.getrandbits(64))
        good = good[:_BEST]
        distances = generator.choice(_DISTANCES, size=(NEAR, 1))
        candidates = [
            generator.random((RANDOM, len(self._space))),
            self._near(good[np.arange(NEAR) % len(good)], distances, generator),
        ]
        found, scores = np.empty((0, len(self._space))), np.empty(0)
        for number in range(1 + ROUNDS):
            new = self._new(np.vstack(candidates))
            if len(new):
                found, scores = np.vstack([found, new]), np.append(scores, score(new))
            if not len(found):
                return None
            order = np.argsort(-scores, kind="stable")[:_BEST]
            found, scores = found[order], scores[order]
            around = found[np.arange(REFINED) % len(found)]
            candidates = [self._near(around, 0.1 * 0.4**number, generator)]
        return found[0].tolist(), float(scores[0])

    def _near(
        self, points: Array, distances: Array | float, generator: np.random.Generator
    ) -> Array:
        """Return points with about a third of the coordinates, and at least one, moved.

        That one is not constant, if any is not.
        """
        moved = points + distances * generator.normal(size=points.shape)
        moved = np.clip(np.where(moved < 0, -moved, np.where(moved > 1, 2 - moved, moved)), 0, 1)
        moved = np.where(self._categorical, generator.random(points.shape), moved)
        chosen = generator.random(points.shape) < max(0.3, 1.5 / len(self._varied))
        one = self._varied[generator.integers(len(self._varied), size=len(points))]
        chosen[np.arange(len(points)), one] = True
        return np.where(chosen, moved, points)

    def _new(self, points: Array) -> Array:
        """Return the snapped positions of points that may be tried, each once."""
        space = self._space
        snapped = dict.fromkeys(
            space.snap(point) for point in points.tolist() if space.allows(point)
        )
        return np.array([point for point in snapped if self._may_try(point)])
