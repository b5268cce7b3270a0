"""Checks of the numbers and lists that users give for domains."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from search.errors import InvalidArgument, shown
from search.values import plain_value

LARGEST_INTEGER = 2**53
"""Largest integer of a domain: beyond it a float cannot distinguish neighbouring integers."""


def choices(name: str, values: Any) -> Sequence[Any]:
    """Read a list of values; ranges stay ranges, as they may be long.

    Raises:
        InvalidArgument: No list, an empty one, or one with a value that has no form in JSON.
    """
    if isinstance(values, range):
        try:
            len(values)
        except OverflowError:
            raise InvalidArgument(name, "fewer than 2^63 values", shown(values)) from None
        sequence: Sequence[Any] = values
    elif isinstance(values, str | bytes | Mapping | set | frozenset) or not iterable(values):
        unordered = isinstance(values, set | frozenset)
        hint = "write a list, which has an order" if unordered else f"write [{shown(values, 40)}]"
        raise InvalidArgument(name, "a list of values", shown(values), hint)
    else:
        sequence = tuple(plain_value(name, value) for value in values)
    if not sequence:
        raise InvalidArgument(name, "at least one value", shown(values))
    return sequence


def iterable(value: Any) -> bool:
    """Whether a value can be iterated over; a number, or an array without dimensions, cannot."""
    try:
        iter(value)
    except TypeError:
        return False
    return True


def is_number(value: Any) -> bool:
    """Whether a value is a real number of Python or numpy, and no bool."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def finite(name: str, value: Any) -> float:
    """Return a bound as a float; `InvalidArgument` unless it is a finite number."""
    if not is_number(value):
        raise InvalidArgument(name, "a finite number as bound", shown(value))
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidArgument(name, "a finite number as bound", shown(value))
    return number


def integer(name: str, value: Any, expected: str = "an integer as bound") -> int:
    """Return a bound as an int; `InvalidArgument` unless a float can hold it exactly."""
    if not is_number(value) or not isinstance(value, numbers.Integral):
        raise InvalidArgument(name, expected, shown(value))
    if abs(int(value)) > LARGEST_INTEGER:
        raise InvalidArgument(name, "an integer between -2^53 and 2^53", shown(value))
    return int(value)
