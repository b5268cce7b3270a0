"""Screening: the most promising of several points, judged by the evaluated points near them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from search.direction import Goal, Merits, dominating, merits_of
from search.space.domains import count_varying, is_unordered
from search.space.spaces import Space

NEIGHBOURS = 5
"""Nearest evaluated points by which a point is judged."""

SCREENED = 160
"""Evaluated points up to which every trial is screened; with n of them, 160 / n of the trials."""

EXPLORING = 60
"""Evaluated points with which the cube's diagonal counts as much as the whole range of ranks."""

FEW = 10
"""Hyperparameters up to which the distance has its whole weight; with d of them it has 10 / d."""

ANOTHER_CHOICE = 0.5
"""Distance between any two values of an unordered choice; an axis is 1 long."""

_ROOM = 64
"""Points for which there is room at first."""


class Screen:
    """Judges points by the ranks of their nearest neighbours, and by how far these are.

    A point's rank is estimated by the mean rank of the five evaluated points nearest to it: 0 is
    the worst, 1 the best. With several objectives the rank is by the number of points that dominate
    one, the fewer the better. To the estimate is added how far the nearest of them is, as a share
    of the cube's diagonal, times n / 60 after n evaluated points: the more is known, the less a
    point is worth that lies where others do. With d > 10 hyperparameters the distance has 10 / d of
    this weight: the farthest trial vector is mostly the one that changes the most hyperparameters,
    and of many it is better to change few at once. Neither constants nor trials in flight count.
    Regis, Shoemaker: A stochastic radial basis function method for the global optimization of
    expensive functions (INFORMS Journal on Computing 19, 2007) weighs an estimate and this
    distance, too, by weights that go through a cycle.

    The points that are as far as the last neighbour count alike, each for its part of the places
    that nearer ones leave: which of them `numpy.argpartition` returns depends on the processor.

    Args:
        space: The search space.
        goal: Direction of the objective, or of each of several.
    """

    def __init__(self, space: Space, goal: Goal) -> None:
        self._space = space
        self._goal = goal
        self._several = len(goal.each) > 1
        self._choices = [axis for axis, domain in enumerate(space.values()) if is_unordered(domain)]
        self._dimensions = count_varying(space.values())
        self._count = 0  # of evaluated points; the arrays have more rows
        self._points = np.empty((_ROOM, len(space)))
        self._squares = np.empty_like(self._points)  # of offsets from a point
        self._merits = np.empty((_ROOM, len(goal.each)))
        self._better = np.zeros(
            _ROOM, dtype=int
        )  # with several objectives: the points that dominate each

    def __len__(self) -> int:
        return self._count

    def add(self, point: Sequence[float], *scores: float | None) -> None:
        """Add a point of the unit cube, with a score per objective.

        None and NaN, of a failed trial, are the worst.
        """
        if len(self) == len(self._points):
            self._points = np.concatenate([self._points, np.empty_like(self._points)])
            self._merits = np.concatenate([self._merits, np.empty_like(self._merits)])
            self._better = np.concatenate([self._better, np.zeros_like(self._better)])
            self._squares = np.empty_like(self._points)
        self._points[len(self)] = self._space.snap(point)
        self._count += 1
        self._score(len(self) - 1, scores)

    def rescore(self, number: int, *scores: float | None) -> None:
        """Replace the scores of point `number`, counted from 0 in the order of `add`."""
        if self._several:
            self._better[: len(self)] -= self._dominated_by(self._merits[number])
        self._score(number, scores)

    def _score(self, number: int, scores: Sequence[float | None]) -> None:
        merits = np.array(merits_of(self._goal, scores))
        self._merits[number] = merits
        if self._several:
            self._better[number] = dominating(self._merits[: len(self)], merits).sum()
            self._better[: len(self)] += self._dominated_by(merits)

    def _dominated_by(self, merits: Merits) -> npt.NDArray[np.bool_]:
        return dominating(-self._merits[: len(self)], -merits)

    def choose(
        self, points: Iterable[list[float]], candidates: int, rng: random.Random
    ) -> list[float] | None:
        """Return the most promising of the first points, at most `candidates`, or just the first.

        Just the first for some trials after 160; None if there is no point.
        """
        number = candidates if rng.random() * len(self) < SCREENED else 1
        drawn = list(itertools.islice(points, number))
        return self.most_promising(drawn) if drawn else None

    def most_promising(self, points: Sequence[list[float]]) -> list[float]:
        """Return the best point, the first of equals; of several, one must be evaluated."""
        if len(points) == 1:
            return points[0]
        merits = -self._better[: len(self)] if self._several else self._merits[: len(self), 0]
        ranks = np.searchsorted(np.sort(merits), merits)  # number of worse points
        count = min(NEIGHBOURS, len(self))
        dimensions = self._dimensions
        weight = len(self) / EXPLORING * min(1, FEW / dimensions) / math.sqrt(dimensions)
        promise = []
        for point in points:
            distances = self._distances(self._space.snap(point))
            last = np.partition(distances, count - 1)[count - 1]
            nearer = ranks[distances < last]
            rest = (count - len(nearer)) * ranks[distances == last].mean()
            estimate = (nearer.sum() + rest) / count / len(self)
            promise.append(estimate + weight * math.sqrt(distances.min()))
        return points[int(np.argmax(promise))]

    def _distances(self, point: Sequence[float]) -> npt.NDArray[np.float64]:
        """Return the squared distances of all evaluated points from one.

        One point at a time, into the same memory: all offsets, 20 x 1,000 x 200, fit into no cache.
        """
        squares = self._squares[: len(self)]
        np.subtract(self._points[: len(self)], point, out=squares)
        np.multiply(squares, squares, out=squares)
        if self._choices:
            squares[:, self._choices] = ANOTHER_CHOICE**2 * (squares[:, self._choices] != 0)
        return np.asarray(squares.sum(axis=-1))
