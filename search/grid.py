"""Searches whose points are known from the start."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from search.errors import InvalidArgument
from search.space import Choice, Float, Integer, Space
from search.trial import Outcome, Trial

_MOST_STEPS = 10_000  # of a float whose values are listed


class GridSearch:
    """Every combination of the values of a space of choices, in the order of itertools.product.

    The product is never built: point i has the digits of i, read in a number system whose bases are
    the lengths of the lists, as indices. So a grid of 10^9 points costs nothing until it is run.

    Args:
        space: All domains are `Choice`, without conditions.
    """

    def __init__(self, space: Space) -> None:
        for name, domain in space.items():
            if not isinstance(domain, Choice):
                raise InvalidArgument(f"args_dict[{name!r}]", "a list of values", repr(domain))
            if domain.when is not None:
                hint = "launch a list of dicts, one per trial"
                raise InvalidArgument(
                    f"args_dict[{name!r}]", "values without a condition", repr(domain), hint
                )
        self._names = list(space)
        self._values = [d.values for d in space.values() if isinstance(d, Choice)]
        self._next = 0
        self.total = math.prod(len(values) for values in self._values)

    @property
    def finished(self) -> bool:
        """See `Searcher`."""
        return self._next >= self.total

    def point(self, number: int) -> dict[str, Any]:
        """Return grid point `number`, from 0 to total - 1."""
        params = {}
        for name, values in zip(reversed(self._names), reversed(self._values), strict=True):
            number, digit = divmod(number, len(values))
            params[name] = values[digit]
        return {name: params[name] for name in self._names}

    def ask(self) -> Trial | None:
        """See `Searcher`."""
        if self.finished:
            return None
        trial = Trial(self._next, self.point(self._next))
        self._next += 1
        return trial

    def tell(self, outcome: Outcome) -> None:
        """See `Searcher`; a grid learns nothing."""


def grid_of(space: Space) -> GridSearch | None:
    """Return the grid of every configuration of a space, or None if it has real numbers.

    Its points have values for inactive hyperparameters, too, and the space may not allow them all.
    Floats with more than a few thousand steps count as real numbers.
    """
    values: dict[str, Sequence[Any]] = {}
    for name, domain in space.items():
        match domain:
            case Choice():
                values[name] = domain.distinct
            case Integer():
                values[name] = range(domain.low, domain.high + 1, domain.step)
            case Float(size=int(size)) if size <= _MOST_STEPS:
                values[name] = [domain.decode((index + 0.5) / size) for index in range(size)]
            case _:
                return None
    return GridSearch(Space.of_grid(values))


class PointSearch:
    """The points of a list, one after the other.

    Args:
        points: Hyperparameter names to values, one mapping per trial.
    """

    def __init__(self, points: Sequence[Mapping[str, Any]]) -> None:
        self._points = points
        self._next = 0
        self.total = len(points)

    @property
    def finished(self) -> bool:
        """See `Searcher`."""
        return self._next >= self.total

    def ask(self) -> Trial | None:
        """See `Searcher`."""
        if self.finished:
            return None
        trial = Trial(self._next, dict(self._points[self._next]))
        self._next += 1
        return trial

    def tell(self, outcome: Outcome) -> None:
        """See `Searcher`; a list learns nothing."""
