"""Screening: the most promising of several points, judged by evaluated points near them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search.direction import Direction
from search.space.spaces import Choice, Space

NEIGHBOURS = 5
"""Nearest evaluated points by which a point is judged."""

ANOTHER_CHOICE = 0.5
"""Distance between any two values of an unordered choice; an axis is 1 long."""


class Screen:
    """Judges points by the mean rank of their nearest neighbours among the evaluated points.

    Args:
        space: The search space.
        direction: Direction of the objective.
    """

    def __init__(self, space: Space, direction: Direction) -> None:
        self._space = space
        self._direction = direction
        self._choices = np.array(
            [isinstance(domain, Choice) and not domain.ordered for domain in space.values()]
        )
        self._points: list[tuple[float, ...]] = []
        self._merits: list[float] = []

    def __len__(self) -> int:
        return len(self._points)

    def add(self, point: Sequence[float], score: float | None) -> None:
        """Add a point of the unit cube with its score; None, of a failed trial, is the worst."""
        self._points.append(self._space.snap(point))
        self._merits.append(self._direction.merit(score))

    def rescore(self, number: int, score: float | None) -> None:
        """Replace the score of point `number`, counted from 0 in the order of `add`."""
        self._merits[number] = self._direction.merit(score)

    def most_promising(self, points: Sequence[list[float]]) -> list[float]:
        """Return the best point, the first of equals; at least one point must be evaluated."""
        merits = np.array(self._merits)
        ranks = np.searchsorted(np.sort(merits), merits)  # number of worse points
        snapped = np.array([self._space.snap(point) for point in points])
        offsets = snapped[:, np.newaxis] - np.array(self._points)
        offsets[(offsets != 0) & self._choices] = ANOTHER_CHOICE
        distances = (offsets**2).sum(axis=-1)
        count = min(NEIGHBOURS, len(merits))
        nearest = np.argpartition(distances, count - 1, axis=-1)[:, :count]
        return points[int(ranks[nearest].mean(axis=-1).argmax())]
