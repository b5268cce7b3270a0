"""Checks of the numbers that users pass as settings."""

from __future__ import annotations

from collections.abc import Callable

from search.errors import InvalidArgument, shown


def check_integer(name: str, value: object, least: int) -> None:
    """Raise `InvalidArgument` unless `value` is an integer, no bool, of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidArgument(name, f"an integer of at least {least}", shown(value))


def check_flag(name: str, value: object) -> None:
    """Raise `InvalidArgument` unless `value` is a bool."""
    if not isinstance(value, bool):
        raise InvalidArgument(name, "True or False", shown(value))


def check_number(name: str, value: object, expected: str, inside: Callable[[float], bool]) -> None:
    """Raise `InvalidArgument` unless `value` is an int or a float that is `inside`."""
    if type(value) not in (int, float) or not inside(value):  # type: ignore[arg-type]  # a number by now
        raise InvalidArgument(name, expected, shown(value))
