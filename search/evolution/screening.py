"""Which of several points is the most promising, going by what was evaluated near them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search.direction import Direction
from search.space.spaces import Choice, Space

NEIGHBOURS = 5
"""Evaluated points around a point by which it is judged."""

ANOTHER_CHOICE = 0.5
"""Distance between any two values of a choice without an order; an axis is 1 long."""


class Screen:
    """Judges points by the mean rank of their nearest neighbours among the evaluated points.

    Args:
        space: What is searched.
        direction: 'max' or 'min' of the objective.
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
        """Take in the score of a point of the unit cube; None, that of a failed trial, is worst."""
        self._points.append(self._space.snap(point))
        self._merits.append(self._direction.merit(score))

    def rescore(self, number: int, score: float | None) -> None:
        """Replace the score of point `number`, from 0 in the order in which they were added."""
        self._merits[number] = self._direction.merit(score)

    def most_promising(self, points: Sequence[list[float]]) -> list[float]:
        """Return one of the points, the first of equals; at least one point was evaluated."""
        merits = np.array(self._merits)
        ranks = np.searchsorted(np.sort(merits), merits)  # how many are worse
        snapped = np.array([self._space.snap(point) for point in points])
        offsets = snapped[:, np.newaxis] - np.array(self._points)
        offsets[(offsets != 0) & self._choices] = ANOTHER_CHOICE
        distances = (offsets**2).sum(axis=-1)
        count = min(NEIGHBOURS, len(merits))
        nearest = np.argpartition(distances, count - 1, axis=-1)[:, :count]
        return points[int(ranks[nearest].mean(axis=-1).argmax())]
