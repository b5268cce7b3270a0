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

CLIMBS = 2
"""Candidates from which the gradient is followed, in place of all rounds but the first."""

MOST_CLIMBED = 50
"""Maximum real numbers over which a gradient is followed: each step evaluates a point for each."""

_STEP = 1e-4  # of finite differences, and so about the error of a maximum between bounds
_ITERATIONS = 30
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
        self._real = {name: axis for axis, name in enumerate(space) if space[name].size is None}

    def point(
        self, score: Callable[[Array], Array], good: Array, *, climb: bool = False
    ) -> tuple[list[float], float] | None:
        """Return the point of the highest score found that may be tried, and its score, or None.

        Args:
            score: Returns the scores of points, one per row.
            good: Good points, the best first; candidates are drawn near the first few.
            climb: Whether to follow the gradient over the hyperparameters that are real numbers, at
                most 50, up to the bounds of the space. Not in a space with a constraint, which the
                gradient does not know.
        """
        climb = climb and 0 < len(self._real) <= MOST_CLIMBED and self._space.constraint is None
        generator = np.random.default_rng(self._rng.getrandbits(64))
        good = good[:_BEST]
        distances = generator.choice(_DISTANCES, size=(NEAR, 1))
        candidates = [
            generator.random((RANDOM, len(self._space))),
            self._near(good[np.arange(NEAR) % len(good)], distances, generator),
        ]
        found, scores = np.empty((0, len(self._space))), np.empty(0)
        rounds = 2 if climb else ROUNDS
        for number in range(1 + rounds):
            new = self._new(np.vstack(candidates))
            if len(new):
                found, scores = np.vstack([found, new]), np.append(scores, score(new))
            if not len(found):
                return None
            order = np.argsort(-scores, kind="stable")[:_BEST]
            found, scores = found[order], scores[order]
            around = found[np.arange(REFINED) % len(found)]
            candidates = [self._near(around, 0.1 * 0.4**number, generator)]
            if climb and number + 1 == rounds:
                candidates = [self._highest_from(start, score) for start in found[:CLIMBS]]
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

    def _highest_from(self, start: Array, score: Callable[[Array], Array]) -> Array:
        """Return the end of the way from a point along the gradient, by finite differences."""
        from scipy.optimize import minimize  # late: it takes a part of a second

        active = self._space.decode(start.tolist())
        axes = [axis for name, axis in self._real.items() if name in active]
        if not axes:
            return start
        count = len(axes)

        def loss(real: Array) -> tuple[float, Array]:
            steps = np.where(real < 0.5, _STEP, -_STEP)
            points = np.tile(start, (1 + count, 1))
            points[:, axes] = real + np.vstack([np.zeros(count), np.diag(steps)])
            scores = score(points)
            return -scores[0], (scores[0] - scores[1:]) / steps

        found = minimize(
            loss,
            start[axes],
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, 1)] * count,
            options={"maxiter": _ITERATIONS, "maxfun": 2 * _ITERATIONS},
        )
        end = start.copy()
        end[axes] = found.x
        return end

    def _new(self, points: Array) -> Array:
        """Return the snapped positions of points that may be tried, each once."""
        space = self._space
        snapped = dict.fromkeys(
            space.snap(point) for point in points.tolist() if space.allows(point)
        )
        return np.array([point for point in snapped if self._may_try(point)])
