"""Conditions: for which values of other hyperparameters a trial has a hyperparameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from search.errors import InvalidArgument, shown
from search.values import from_json, plain_value

When: TypeAlias = Mapping[str, Any] | None
"""Names of other hyperparameters to the value, or the list of values, that each must have."""


def read_condition(when: Any) -> dict[str, list[Any]] | None:
    """Read a condition: name to the list of values, one of which it must have.

    Raises:
        InvalidArgument: Not a condition.
    """
    if when is None:
        return None
    if not isinstance(when, Mapping) or not when:
        expected = "a dict of names of other hyperparameters to values, or None"
        raise InvalidArgument("when", expected, shown(when))
    condition = {}
    for name, values in when.items():
        if not isinstance(name, str):
            raise InvalidArgument("when", "names of hyperparameters", shown(name))
        if isinstance(values, range):
            expected, got = "a value, or a list of values", shown(values)
            raise InvalidArgument(f"when[{name!r}]", expected, got, f"write list({got})")
        read = plain_value(f"when[{name!r}]", values)
        condition[name] = read if type(read) is list else [read]
        if not condition[name]:
            raise InvalidArgument(f"when[{name!r}]", "a value, or a list of values", shown(values))
    return condition


def condition_of_json(domain: Mapping[str, Any]) -> When:
    """Return the condition in the JSON of a domain; ValueError if it is none."""
    when = domain.get("when")
    if when is None:
        return None
    if not isinstance(when, dict) or not all(isinstance(values, list) for values in when.values()):
        raise ValueError(f"not a condition: {shown(when)}")
    return {name: from_json(values) for name, values in when.items()}
