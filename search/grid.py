"""Searches over points that are fixed from the start: grids and lists."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from search.errors import InvalidArgument
from search.space.spaces import Choice, Space, nothing_allowed
from search.trial import Outcome, Trial

_MOST_ASKED = 10_000_000
"""Maximum points of a grid with a constraint, which is called for each of them."""


class GridSearch:
    """Every combination of the values of a space of choices, in the order of itertools.product.

    The product is never built: the indices of point i are the digits of i in mixed radix, with the
    lengths of the lists as bases. So a grid of 10^9 points costs nothing until it is run. A
    constraint is called for every point beforehand; points that it does not allow are left out.

    Args:
        space: The search space; every domain is a `Choice` without a condition.

    Raises:
        InvalidArgument: A domain of another type, a condition, a constraint that raises, or a
            constraint with too many points to call it for.
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
        self._numbers: Sequence[int] = range(count)  # points that are tried
        if space.constraint is not None:
            self._numbers = self._allowed(space, count)
        self.total = count if space.constraint is None else len(self._numbers)

    def _allowed(self, space: Space, count: int) -> Sequence[int]:
        if count > _MOST_ASKED:
            expected = f"at most {_MOST_ASKED:,} points with a constraint, which is called for each"
            raise InvalidArgument("constraint", expected, f"{count:,}")
        numbers = [n for n in self._numbers if space.allows_params(self.point(n))]
        if not numbers:
            raise nothing_allowed(count, "points of the grid", self.point(count - 1))
        return numbers

    @property
    def finished(self) -> bool:
        """Whether all trials were handed out."""
        return self._next >= self.total

    def point(self, number: int) -> dict[str, Any]:
        """Return point `number` of the whole grid, from 0."""
        params = {}
        for name, values in zip(reversed(self._names), reversed(self._values), strict=True):
            number, digit = divmod(number, len(values))
            params[name] = values[digit]
        return {name: params[name] for name in self._names}

    def ask(self) -> Trial | None:
        """Return the next point's trial; None after the last."""
        if self.finished:
            return None
        trial = Trial(self._next, self.point(self._numbers[self._next]))
        self._next += 1
        return trial

    def tell(self, outcome: Outcome) -> None:
        """Do nothing: a grid learns nothing."""


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
        """Whether all trials were handed out."""
        return self._next >= self.total

    def ask(self) -> Trial | None:
        """Return the next point's trial; None after the last."""
        if self.finished:
            return None
        trial = Trial(self._next, dict(self._points[self._next]))
        self._next += 1
        return trial

    def tell(self, outcome: Outcome) -> None:
        """Do nothing: a list learns nothing."""
