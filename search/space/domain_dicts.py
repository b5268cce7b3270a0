"""Domains written as dicts, as in YAML, and hints for other input that may mean one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from search.checks import plain
from search.errors import InvalidArgument, did_you_mean, shown
from search.space.domains import Choice, Domain, Float, Integer, domain_of_json
from search.values import from_json, to_json

_KINDS: dict[str, type[Domain]] = {"float": Float, "integer": Integer, "choice": Choice}
_DIGITS = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBER = re.compile(rf"\s*{_DIGITS}\s*", re.ASCII)
_TWO_NUMBERS = re.compile(
    rf"[\[(]?\s*({_DIGITS})\s*(?:-|:|,|;|\.\.+|to|\s)\s*({_DIGITS})\s*[\])]?", re.ASCII
)
_EXPECTED = "a list, or a mapping with a type: float, integer or choice"


def read_domain(name: str, given: Mapping[str, Any]) -> Domain:
    """Read a domain that is written as a dict.

    Args:
        name: Its name in messages.
        given: The arguments of `Float`, `Integer` or `Choice`, and as `type` the name of the class.
            Without `type`, `values` are a choice, ints as `low` and `high` an integer, other
            numbers a float.

    Raises:
        InvalidArgument: The dict is none of these.
    """
    arguments = dict(given)
    arguments.setdefault("type", _type_of(arguments))
    kind = _KINDS.get(str(arguments["type"]))
    if kind is None:
        hint = did_you_mean(arguments["type"], _KINDS) or (
            "write experiment.Float(0.1, 0.9), or {'low': 0.1, 'high': 0.9}"
        )
        raise InvalidArgument(name, _EXPECTED, shown(given), hint)
    known = ["type", *(["range"] if kind is Choice else []), *(f.name for f in fields(kind))]
    if unknown := [key for key in arguments if key not in known]:
        expected, got = f"keys among {', '.join(known)}", shown(unknown[0])
        raise InvalidArgument(name, expected, got, did_you_mean(unknown[0], known))
    if {"values", "range"} <= arguments.keys():
        raise InvalidArgument(name, "values or a range", shown(given), "remove one of them")
    if isinstance(values := arguments.get("values"), range):
        arguments["range"] = [values.start, values.stop, values.step]
        del arguments["values"]
    elif isinstance(values, list | tuple):
        arguments["values"] = list(map(_as_json, values))
    when = arguments.get("when")
    if isinstance(when, dict):  # a single value needs no list
        lists = {name: v if isinstance(v, list) else [v] for name, v in when.items()}
        when = {name: list(map(_as_json, values)) for name, values in lists.items()}
    try:
        return domain_of_json({"log": False, **arguments, "when": when})
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{name}.{error.name}", error.expected, error.got, error.hint
        ) from None
    except ValueError as error:
        expected = f"a domain of type {arguments['type']}"
        raise InvalidArgument(
            name, expected, shown(given), _shape(arguments) or str(error)
        ) from None


def _as_json(value: Any) -> Any:
    """Return a value that is written as in JSON, or plainly, as in JSON."""
    try:
        from_json(value)
    except ValueError:  # a plain dict, perhaps in a list
        return to_json(value)
    return value


def _type_of(arguments: Mapping[str, Any]) -> str | None:
    """Return the type of a domain without `type`."""
    if "values" in arguments or "range" in arguments:
        return "choice"
    if not {"low", "high"} <= arguments.keys():
        return None
    numbers = [arguments[name] for name in ("low", "high", "step") if name in arguments]
    whole = all(isinstance(plain(number), int) for number in numbers)
    return "integer" if whole else "float"


def _shape(arguments: Mapping[str, Any]) -> str:
    """Return what an invalid argument of a domain should be; '' if all are valid."""
    match arguments:
        case {"type": "choice", "range": [int(), int(), int(step)]} if step:
            return ""
        case {"type": "choice", "range": _}:
            return "range is a list of three integers: start, stop, step"
        case {"type": "choice", "values": list()}:
            return ""
        case {"type": "choice"}:
            return "values is a list"
        case {"low": _, "high": _} if isinstance(arguments.get("log", False), bool):
            return ""
    return "low and high are numbers, log is True or False"


def bounds_meant(value: object) -> str:
    """Return how to write the bounds that a user may have meant by an invalid value."""
    if isinstance(value, str) and (found := _TWO_NUMBERS.fullmatch(value)):
        low, high = sorted(found.groups(), key=float)
        kind = "Integer" if re.fullmatch(r"[+-]?\d+", low + high.lstrip("+-")) else "Float"
        return f"write [{low}, {high}] or experiment.{kind}({low}, {high})"
    return "write [low, high], experiment.Float(low, high), or a list of choices"


def numbers_in_texts(name: str, bounds: object) -> Iterator[str]:
    """Yield a warning for each list of texts in the bounds that are all numbers.

    Args:
        name: The name of the bounds in messages.
        bounds: The user's bounds; invalid ones yield nothing here.
    """
    for key, value in bounds.items() if isinstance(bounds, Mapping) else ():
        texts = value if isinstance(value, list | tuple) and len(value) > 1 else ()
        if texts and all(isinstance(text, str) and _NUMBER.fullmatch(text) for text in texts):
            numbers = ", ".join(text.strip() for text in texts)
            yield (
                f"{name}[{key!r}]: {shown(value)} is a choice of texts; write [{numbers}] for "
                f"numbers, or experiment.Choice({shown(value)}) if texts are meant"
            )
