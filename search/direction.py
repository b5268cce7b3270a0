"""Which of two scores is better. The only place in the project that compares scores."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable
from typing import TypeVar

from search.errors import InvalidArgument, shown

T = TypeVar("T")


class Direction(enum.StrEnum):
    """The sense of a search: 'max' or 'min'."""

    MAX = "max"
    MIN = "min"

    @classmethod
    def parse(cls, value: object) -> Direction:
        """Return the direction called `value`; `InvalidArgument` for anything else."""
        for direction in cls:
            if isinstance(value, str) and value == direction.value:
                return direction
        raise InvalidArgument("direction", "'max' or 'min'", shown(value))

    @property
    def weight(self) -> float:
        """The sign that turns the search into a maximisation: 1.0 or -1.0."""
        return 1.0 if self is Direction.MAX else -1.0

    @property
    def arrow(self) -> str:
        """A sign for people: which way is better."""
        return "↑" if self is Direction.MAX else "↓"

    def better(self, score: float | None, other: float | None) -> bool:
        """Is `score` strictly better than `other`?

        A missing score (a failed trial) and NaN lose to every number, in both directions.
        """
        if score is None or math.isnan(score):
            return False
        if other is None or math.isnan(other):
            return True
        return score > other if self is Direction.MAX else score < other

    def reaches(self, score: float | None, target: float | None) -> bool:
        """Is `score` as good as `target`, or better? Never without a target."""
        return target is not None and self.better(score, None) and not self.better(target, score)

    def merit(self, score: float | None) -> float:
        """Return how good a score is: the better, the higher, in both directions.

        For what sorts scores or takes their median. A missing score and NaN have -inf.
        """
        if score is None or math.isnan(score):
            return -math.inf
        return score if self is Direction.MAX else -score

    def best(self, items: Iterable[T], score: Callable[[T], float | None]) -> T | None:
        """Return the first item with the best score, or None where no item has a number."""
        best: T | None = None
        for item in items:
            if self.better(score(item), None if best is None else score(best)):
                best = item
        return best
