"""Checks of the numbers that users pass as settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from search.errors import InvalidArgument, shown


def plain(value: Any) -> Any:
    """Return numpy's numbers, bools and strings as Python's; anything else unchanged."""
    # By the type alone: `isinstance` would ask a SparkSession for its class.
    return value.item() if issubclass(type(value), np.generic) else value


def make_plain(settings: Any) -> None:
    """Replace numpy's values in the fields of a dataclass by Python's, before the checks."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if (made := plain(value)) is not value:
            object.__setattr__(settings, field.name, made)


def check_integer(name: str, value: object, least: int) -> None:
    """Raise `InvalidArgument` unless `value` is an integer of at least `least`, and no bool."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidArgument(name, f"an integer of at least {least}", shown(value))


def check_flag(name: str, value: object) -> None:
    """Raise `InvalidArgument` unless `value` is a bool."""
    if not isinstance(plain(value), bool):
        raise InvalidArgument(name, "True or False", shown(value))


def check_number(name: str, value: object, expected: str, inside: Callable[[float], bool]) -> None:
    """Raise `InvalidArgument` unless `value` is an int or a float for which `inside` is true."""
    value = plain(value)
    if type(value) not in (int, float) or not inside(value):  # type: ignore[arg-type]  # a number by now
        raise InvalidArgument(name, expected, shown(value))
