"""Searches whose points are known from the start."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from search.errors import InvalidArgument
from search.space.spaces import Choice, Space, nothing_allowed
from search.trial import Outcome, Trial

_MOST_ASKED = 10_000_000
"""Points of a grid whose constraint is asked for each, at the most."""


class GridSearch:
    """Every combination of the values of a space of choices, in the order of itertools.product.

    The product is never built: point i has the digits of i, read in a number system whose bases are
    the lengths of the lists, as indices. So a grid of 10^9 points costs nothing until it is run.
    With a constraint every point is asked for beforehand, and those it does not allow are left out.

    Args:
        space: All domains are `Choice`, without conditions.

    Raises:
        InvalidArgument: Another domain, a condition, a constraint that raises, or one for more
            points than can be asked for.
        NothingAllowed: The constraint allows no point.
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
        count = math.prod(len(values) for values in self._values)
        self._numbers: Sequence[int] = range(count)  # of the points that are tried
        if space.constraint is not None:
            self._numbers = self._allowed(space, count)
        self.total = count if space.constraint is None else len(self._numbers)

    def _allowed(self, space: Space, count: int) -> Sequence[int]:
        if count > _MOST_ASKED:
            expected = f"at most {_MOST_ASKED:,} points, of which each is asked for"
            raise InvalidArgument("constraint", expected, f"{count:,}")
        numbers = [n for n in self._numbers if space.allows_params(self.point(n))]
        if not numbers:
            raise nothing_allowed(count, "points of the grid", self.point(count - 1))
        return numbers

    @property
    def finished(self) -> bool:
        """See `Searcher`."""
        return self._next >= self.total

    def point(self, number: int) -> dict[str, Any]:
        """Return point `number` of the whole grid, from 0."""
        params = {}
        for name, values in zip(reversed(self._names), reversed(self._values), strict=True):
            number, digit = divmod(number, len(values))
            params[name] = values[digit]
        return {name: params[name] for name in self._names}

    def ask(self) -> Trial | None:
        """See `Searcher`."""
        if self.finished:
            return None
        trial = Trial(self._next, self.point(self._numbers[self._next]))
        self._next += 1
        return trial

    def tell(self, outcome: Outcome) -> None:
        """See `Searcher`; a grid learns nothing."""


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
