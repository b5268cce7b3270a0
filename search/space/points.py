"""The points that the user wants to be tried first."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from search.errors import InvalidArgument, did_you_mean, shown
from search.space.sampling import DRAWS_OF_ONE
from search.space.spaces import Choice, Domain, Integer, Space
from search.values import is_finite, plain_value

Complete: TypeAlias = Callable[
    [Space, Mapping[str, Mapping[str, Any]], random.Random], list[dict[str, Any]]
]
"""Returns the configurations of points in a space: called with them by their names for errors."""


def completed(
    space: Space, name: str, given: Mapping[str, Any], rng: random.Random
) -> dict[str, Any]:
    """Return the configuration of a point, with the missing hyperparameters drawn.

    Args:
        space: The search space.
        name: The point's name, for errors.
        given: Some of its hyperparameters.
        rng: Generator for the others.

    Raises:
        InvalidArgument: No configuration with these is allowed.
    """

    def value_of(key: str) -> Any:
        return given[key] if key in given else space[key].decode(rng.random())

    for _ in range(DRAWS_OF_ONE):
        params = space.assemble(value_of)
        if given.keys() <= params.keys() and space.allows_params(params):
            return params
        if params.keys() <= given.keys():  # no hyperparameter was drawn
            break
    expected = "a configuration that the conditions and the constraint of the space allow"
    raise InvalidArgument(name, expected, shown(dict(given), 300))


def completed_each(
    space: Space, points: Mapping[str, Mapping[str, Any]], rng: random.Random
) -> list[dict[str, Any]]:
    """Return `completed` of each point, by its name."""
    return [completed(space, name, given, rng) for name, given in points.items()]


def read_first_points(
    space: Space,
    points: Any,
    rng: random.Random,
    name: str = "points",
    complete: Complete = completed_each,
) -> list[dict[str, Any]]:
    """Read the points to be tried first.

    Values are taken literally, also between two steps of a domain. Missing hyperparameters are
    drawn, as by Optuna's `Study.enqueue_trial`.

    Args:
        space: The search space.
        points: Dicts of hyperparameter name to value.
        rng: Generator for missing hyperparameters.
        name: The argument's name, for errors.
        complete: Draws the missing hyperparameters of the points.

    Returns:
        Configurations of the space.

    Raises:
        InvalidArgument: A point is invalid; the message names it.
    """
    if isinstance(points, str | bytes | Mapping) or not isinstance(points, Iterable):
        raise InvalidArgument(name, "a list of dicts", shown(points))
    names = (f"{name}[{number}]" for number in itertools.count())
    read = {each: _read(space, each, point) for each, point in zip(names, points, strict=False)}
    return complete(space, read, rng)


def _read(space: Space, name: str, point: Any) -> dict[str, Any]:
    if not isinstance(point, Mapping):
        raise InvalidArgument(name, "a dict of hyperparameter names", shown(point))
    for key in point:
        if key not in space:
            hint = did_you_mean(key, space)
            raise InvalidArgument(name, f"hyperparameters of {list(space)}", shown(key), hint)
    return {key: _value(f"{name}[{key!r}]", space[key], value) for key, value in point.items()}


def _value(name: str, domain: Domain, value: Any) -> Any:
    value = plain_value(name, value)
    if isinstance(domain, Choice):
        try:
            return domain.values[domain.index(value)]
        except ValueError:
            raise InvalidArgument(name, f"one of {shown(domain.values)}", shown(value)) from None
    whole = isinstance(domain, Integer)
    if not is_finite(value) or (whole and type(value) is not int):
        raise InvalidArgument(name, "an integer" if whole else "a number", shown(value))
    if not domain.low <= value <= domain.high:
        expected = f"a value from {domain.low!r} to {domain.high!r}"
        raise InvalidArgument(name, expected, shown(value))
    return value if whole else float(value)


def check_points(points: Sequence[Mapping[str, Any]], most: int, what: str) -> None:
    """Raise `InvalidArgument` where there are more points than may be tried first.

    Args:
        points: The points to try first.
        most: Maximum number of points.
        what: The meaning of that maximum, for the error: "the number of `what`".
    """
    if len(points) > most:
        raise InvalidArgument("points", f"at most {most}, the number of {what}", str(len(points)))
