"""Bounds of hyperparameters as users write them: [low, high], choices, mappings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from search.errors import InvalidArgument, shown
from search.space.domain_dicts import bounds_meant, read_domain
from search.space.domains import Choice, Domain, Float, Integer
from search.space.user_values import choices, finite, integer, is_number, iterable

LOG_RATIO = 1000.0
"""Ratio of positive float bounds from which a log scale is used."""


def domain_of_bound(name: str, value: Any) -> Domain:
    """Return the domain that a user gives: as one, as a mapping, as two bounds, or as choices.

    Raises:
        InvalidArgument: It is none of these; the message has the argument's `name`.
    """
    if isinstance(value, Float | Integer | Choice):
        return value
    if isinstance(value, Mapping):
        return read_domain(name, value)
    if isinstance(value, str | bytes) or not iterable(value):
        raise InvalidArgument(
            name, "two bounds or a list of choices", shown(value), bounds_meant(value)
        )
    only = value[0] if isinstance(value, list | tuple) and len(value) == 1 else None
    if isinstance(only, Float | Integer | Choice):
        expected, hint = "two bounds or a list of choices", f"write {only!r} without the list"
        raise InvalidArgument(name, expected, shown(value), hint)
    values = choices(name, value)
    if len(values) == 1:
        raise InvalidArgument(
            name, "two bounds", shown(value), "write [low, high], or Choice([...]) for one value"
        )
    if len(values) > 2 or all(isinstance(v, bool) for v in values):
        return Choice(values)
    if all(isinstance(v, str) for v in values):
        return Choice(values)
    if not all(is_number(v) for v in values):
        raise InvalidArgument(
            name, "two numbers or two strings", shown(value), "write Choice([...]) for a mixture"
        )
    first, second = values
    if all(isinstance(v, int) for v in values):
        return Integer(integer(name, first), integer(name, second))
    low, high = sorted((finite(name, first), finite(name, second)))
    return Float(low, high, log=low > 0 and low < high and (first > second or wide(low, high)))


def wide(low: float, high: float) -> bool:
    """Return whether bounds are above zero and so far apart that a log scale is used."""
    # The quotient of a huge and a tiny bound overflows, so compare logarithms.
    return low > 0 and math.log(high) - math.log(low) >= math.log(LOG_RATIO) - 1e-9
