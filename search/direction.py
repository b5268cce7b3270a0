"""What is better: scores become merits here, which other modules may sort, and dominance."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from search.errors import InvalidArgument, shown
from search.values import is_unicode

T = TypeVar("T")

DirectionName: TypeAlias = Literal["max", "min"]

Merits = npt.NDArray[np.float64]
"""Scores by `Direction.merit`: trials x objectives, or those of one trial."""

LONGEST_NAME = 200
"""Maximum characters of an objective's name."""


class Scored(Protocol):
    """An evaluated configuration, such as an outcome or a result."""

    @property
    def value(self) -> float | None:
        """The objective's value, where there is one objective."""

    @property
    def values(self) -> Mapping[str, float]:
        """The objectives' values by name, where there are several."""


ScoredT = TypeVar("ScoredT", bound=Scored)


class Direction(enum.StrEnum):
    """The sense of a search: 'max' or 'min'."""

    MAX = "max"
    MIN = "min"

    @classmethod
    def parse(cls, value: object, name: str = "direction") -> Direction:
        """Return the direction called `value`; `InvalidArgument` naming `name` otherwise.

        'maximize' and 'minimize', Optuna's names, are 'max' and 'min'.
        """
        for direction in cls:
            if isinstance(value, str) and value in (direction.value, f"{direction.value}imize"):
                return direction
        raise InvalidArgument(name, "'max' or 'min'", shown(value))

    @property
    def weight(self) -> float:
        """The sign that turns the search into a maximisation: 1.0 or -1.0."""
        return 1.0 if self is Direction.MAX else -1.0

    @property
    def weights(self) -> tuple[float, ...]:
        """The sign of the only objective, as a tuple."""
        return (self.weight,)

    @property
    def each(self) -> tuple[Direction, ...]:
        """The direction of the only objective, as a tuple."""
        return (self,)

    @property
    def arrow(self) -> str:
        """An arrow that shows which way is better."""
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

        For sorting scores or taking their median. -inf for a missing score and NaN.
        """
        if score is None or math.isnan(score):
            return -math.inf
        return score if self is Direction.MAX else -score

    def scores(self, item: Scored) -> tuple[float, ...] | None:
        """Return the objective's value as a tuple; None where it is missing or NaN."""
        return (item.value,) if item.value is not None and not math.isnan(item.value) else None

    def to_json(self) -> DirectionName:
        """Return the direction as JSON, in the user's form."""
        return "max" if self is Direction.MAX else "min"

    def front(self, items: Iterable[ScoredT]) -> list[ScoredT]:
        """Return a list of the first item with the best value; empty where no item has one."""
        best = self.best(items, lambda item: item.value)
        return [] if best is None else [best]

    def joined(self, front: Sequence[ScoredT], item: ScoredT) -> list[ScoredT]:
        """Return the front after adding an item."""
        return self.front([*front, item])

    def best(self, items: Iterable[T], score: Callable[[T], float | None]) -> T | None:
        """Return the first item with the best score, or None where no item has a number."""
        best: T | None = None
        for item in items:
            if self.better(score(item), None if best is None else score(best)):
                best = item
        return best


@dataclass(frozen=True, slots=True)
class Directions:
    """Several objectives at once, each with its direction.

    Attributes:
        by_name: Objective name to direction; at least two, in order.
    """

    by_name: Mapping[str, Direction]

    @classmethod
    def parse(cls, value: Mapping[object, object]) -> Directions:
        """Read a mapping of objective names to 'max' or 'min'.

        Raises:
            InvalidArgument: Fewer than two objectives, an invalid name or an invalid direction.
        """
        for name in value:
            if not (isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and is_unicode(name)):
                expected = f"strings of 1 to {LONGEST_NAME} characters as names of objectives"
                raise InvalidArgument("direction", expected, shown(name))
        if len(value) < 2:
            hint = "for one, write direction='max' and optimization_key='its name'"
            raise InvalidArgument("direction", "at least two objectives", shown(value), hint)
        return cls(
            {
                str(name): Direction.parse(direction, f"direction[{name!r}]")
                for name, direction in value.items()
            }
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the objectives, in order."""
        return tuple(self.by_name)

    @property
    def weights(self) -> tuple[float, ...]:
        """The sign of each objective that turns the search into a maximisation, in order."""
        return tuple(direction.weight for direction in self.each)

    @property
    def each(self) -> tuple[Direction, ...]:
        """The direction of each objective, in order."""
        return tuple(self.by_name.values())

    def scores(self, item: Scored) -> tuple[float, ...] | None:
        """Return the objectives' values in order; None where one is missing or NaN."""
        scores = [item.values.get(name, math.nan) for name in self.by_name]
        return None if any(map(math.isnan, scores)) else tuple(scores)

    def front(self, items: Iterable[ScoredT]) -> list[ScoredT]:
        """Return the items that no other dominates: the Pareto front.

        Sorted from the best in the first objective to the worst. Items with equal values are all
        included, items that lack an objective never.
        """
        merits = [(self._merits(item), item) for item in items]
        whole = [(numbers, item) for numbers, item in merits if numbers is not None]
        whole.sort(key=lambda pair: pair[0], reverse=True)  # so no item dominates one before it
        front: list[ScoredT] = []
        numbers_of_front = np.empty((len(whole), len(self.by_name)))
        for numbers, item in whole:
            if not dominating(numbers_of_front[: len(front)], np.array(numbers)).any():
                numbers_of_front[len(front)] = numbers
                front.append(item)
        return front

    def joined(self, front: Sequence[ScoredT], item: ScoredT) -> list[ScoredT]:
        """Return the front after adding an item, in linear time."""
        merits = self._merits(item)
        members = [(self._merits(member) or (), member) for member in front]
        if merits is None or any(_dominates(others, merits) for others, _ in members):
            return list(front)
        kept = [pair for pair in members if not _dominates(merits, pair[0])]
        kept.append((merits, item))
        return [member for _, member in sorted(kept, key=lambda pair: pair[0], reverse=True)]

    def to_json(self) -> dict[str, DirectionName]:
        """Return the directions as JSON, in the user's form."""
        return {name: direction.to_json() for name, direction in self.by_name.items()}

    def _merits(self, item: Scored) -> tuple[float, ...] | None:
        scores = self.scores(item)
        if scores is None:
            return None
        return merits_of(self, scores)


Goal: TypeAlias = Direction | Directions
"""The goal of a search: the best of one objective, or the front of several."""


def read_direction(value: object) -> Goal:
    """Read the user's `direction=`: 'max', 'min', or a dict of objective names to these.

    Raises:
        InvalidArgument: Anything else.
    """
    return Directions.parse(value) if isinstance(value, Mapping) else Direction.parse(value)


def merits_of(goal: Goal, scores: Sequence[float | None]) -> tuple[float, ...]:
    """Return how good scores are, see `Direction.merit`, in the order of the objectives."""
    return tuple(d.merit(score) for d, score in zip(goal.each, scores, strict=True))


def dominating(rows: Merits, merits: Merits) -> npt.NDArray[np.bool_]:
    """Return which rows of merits dominate some merits: no worse in any, better in one."""
    return np.asarray((rows >= merits).all(axis=1) & (rows > merits).any(axis=1))


def non_dominated(rows: Merits) -> npt.NDArray[np.bool_]:
    """Return which rows of merits no other row dominates; of equal rows the first."""
    found = np.zeros(len(rows), dtype=bool)
    left = np.lexsort(-rows.T[::-1])  # so no row dominates one before it
    while len(left):
        found[left[0]] = True
        left = left[~(rows[left] <= rows[left[0]]).all(axis=1)]
    return found


def _dominates(merits: tuple[float, ...], others: tuple[float, ...]) -> bool:
    pairs = zip(merits, others, strict=True)
    return merits != others and all(ours >= theirs for ours, theirs in pairs)
