"""The values that a hyperparameter may have, and their form in JSON.

A train function gets its values in another process, perhaps on another host, so they are sent as
JSON. JSON has no tuples and no infinities, which are common in grids (layer sizes, `max_norm=inf`).
To keep their types, a tuple becomes `{"tuple": [...]}`, a float that JSON lacks
`{"float": "inf"}`, a dict `{"dict": [[key, value], ...]}`. Everything else stays as it is.

`Params` and `Metrics` are mappings with a form in JSON. `encode_hook` and `decode_hook` let
msgspec encode and decode them, so objects that hold such mappings are encoded without further code.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import ItemsView, Iterator, KeysView, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec
import numpy as np

from search.errors import InvalidArgument, shown

LARGEST_CONFIGURATION = 1_000_000
"""Maximum bytes of JSON of one trial's hyperparameters, names and values."""

V = TypeVar("V")
_DEEPEST = 32
_MOST_BITS = 4096  # Python refuses to parse integers of 4,300 digits and more


def plain_value(name: str, value: Any, depth: int = 0) -> Any:
    """Return `value` with numpy scalars and arrays as plain Python.

    Raises:
        InvalidArgument: The value has no form in JSON; the message names `name`.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _plain_text(name, value)
    if isinstance(value, int):
        return _plain_integer(name, value)
    if isinstance(value, float):
        return float(value)  # plain, also for a subclass
    if depth < _DEEPEST:
        if type(value) is list or type(value) is tuple:
            return type(value)(plain_value(name, item, depth + 1) for item in value)
        if type(value) is dict and all(isinstance(key, str) for key in value):
            return {
                _plain_text(name, key): plain_value(name, item, depth + 1)
                for key, item in value.items()
            }
    raise InvalidArgument(
        name,
        "None, a bool, a number, a string, or lists, tuples and dicts of those",
        f"{shown(value)} of type {type(value).__name__}",
        "pass a name and build the object inside the train function",
    )


def size_of(value: Any) -> int:
    """Return how many bytes a plain value takes as JSON."""
    return len(msgspec.json.encode(to_json(value)))


def check_size(where: str, params: Mapping[str, Any]) -> None:
    """Make sure that a trial's hyperparameters are small enough for a message.

    Args:
        where: The argument that they come from, for errors.
        params: Name to plain value.

    Raises:
        InvalidArgument: They are too large; the message names the largest.
    """
    if len(msgspec.json.encode(Params(params).to_json())) > LARGEST_CONFIGURATION:
        sizes = {name: size_of(name) + size_of(value) for name, value in params.items()}
        check_sizes(where, sizes)


def check_sizes(where: str, sizes: Mapping[str, int]) -> None:
    """Make sure that hyperparameters of these sizes are small enough for a message.

    Args:
        where: The argument that they come from, for errors.
        sizes: Name to bytes of JSON.

    Raises:
        InvalidArgument: They are too large; the message names the largest.
    """
    total = sum(sizes.values())
    if total <= LARGEST_CONFIGURATION:
        return
    name = max(sizes, key=lambda name: sizes[name])
    alone = sizes[name] > LARGEST_CONFIGURATION
    raise InvalidArgument(
        f"{where}[{shown(name)}]",
        f"at most {LARGEST_CONFIGURATION:,} bytes for the hyperparameters of a trial",
        f"{sizes[name]:,} bytes" + ("" if alone else f" of {total:,} for all of them"),
        "pass the path of a file, and read it inside the train function",
    )


def is_finite(value: Any) -> bool:
    """Whether a value is a number, and no bool, that a float can hold."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # NaN is not


def is_unicode(text: str) -> bool:
    """Whether UTF-8, and so JSON, can hold a text; not if it has lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def as_unicode(text: str) -> str:
    """Return a text with its lone surrogates, which UTF-8 and JSON cannot have, as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _plain_text(name: str, text: str) -> str:
    if not is_unicode(text):
        raise InvalidArgument(name, "text that UTF-8 can hold", shown(text))
    return str.__str__(text)


def _plain_integer(name: str, value: int) -> int:
    if value.bit_length() > _MOST_BITS:
        raise InvalidArgument(name, f"an integer of at most {_MOST_BITS} bits", "a larger one")
    return int(value)


def identity(value: Any) -> Any:
    """Return a hashable key that is equal for identical values only.

    1, True and 1.0 are different values, inside a list or a tuple too; NaN equals NaN.
    """
    if isinstance(value, dict):
        return type(value), frozenset((key, identity(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return type(value), tuple(identity(item) for item in value)
    return type(value), None if isinstance(value, float) and math.isnan(value) else value


def to_json(value: Any) -> Any:
    """Return a value in a form that `json.dumps` encodes without loss."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [to_json(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[key, to_json(item)] for key, item in value.items()]}
    return value


def from_json(value: Any, depth: int = 0) -> Any:
    """Return the value that `to_json` was called with.

    Raises:
        ValueError: `to_json` cannot have returned `value`.
    """
    if depth > 3 * _DEEPEST:  # a dict inside a dict is three levels of JSON
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [from_json(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"float": "inf" | "-inf" | "nan" as text}:
            return float(text)
        case {"tuple": list(items)}:
            return tuple(from_json(item, depth + 1) for item in items)
        case {"dict": list(pairs)}:
            return {_key(pair): from_json(pair[1], depth + 1) for pair in pairs}
    raise ValueError(f"not a value: {shown(value)}")


def _key(pair: Any) -> str:
    if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str):
        return pair[0]
    raise ValueError(f"not a key and a value: {shown(pair)}")


class _Named(Mapping[str, V]):
    """An immutable mapping of names to values."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, V]) -> None:
        self._values = dict(values)

    @classmethod
    def of(cls, values: Mapping[str, V]) -> Self:
        """Return `values` as an instance, unchanged if it is one."""
        return values if type(values) is cls else cls(values)

    def __getitem__(self, name: str) -> V:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    # Those of `Mapping` look up each name, which takes several times as long in `dict(params)`.

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._values.keys()

    def items(self) -> ItemsView[str, V]:
        """Return the names with their values."""
        return self._values.items()


class Params(_Named[Any]):
    """Hyperparameters by name; in JSON each value is in the form of `to_json`."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the mapping as a JSON-serialisable dict."""
        return {name: to_json(value) for name, value in self._values.items()}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Return the mapping that `to_json` was called on; ValueError for any other data."""
        if not isinstance(data, dict):
            raise ValueError(f"not hyperparameters by name: {shown(data)}")
        return cls({name: from_json(value) for name, value in data.items()})


class Metrics(_Named[float]):
    """Numbers by name; in JSON, infinities and NaN are strings."""

    __slots__ = ()

    def to_json(self) -> dict[str, float | str]:
        """Return the mapping as a JSON-serialisable dict."""
        return {n: v if math.isfinite(v) else repr(v) for n, v in self._values.items()}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Return the mapping that `to_json` was called on; ValueError for any other data."""
        if not isinstance(data, dict):
            raise ValueError(f"not numbers by name: {shown(data)}")
        return cls({name: _number(value) for name, value in data.items()})


def _number(value: Any) -> float:
    with contextlib.suppress(ValueError, OverflowError):
        if type(value) in (float, int, str):
            return float(value)
    raise ValueError(f"not a number: {shown(value)}")


if TYPE_CHECKING:  # callers may pass any mapping to a trial or an outcome
    ParamsLike = Mapping[str, Any]
    MetricsLike = Mapping[str, float]
else:
    ParamsLike, MetricsLike = Params, Metrics


def encode_hook(value: Any) -> Any:
    """Return a form that msgspec can encode of a value that it cannot."""
    if isinstance(value, Params | Metrics):
        return value.to_json()
    raise NotImplementedError(f"{type(value).__name__} has no form in JSON")


def decode_hook(kind: type, data: Any) -> Any:
    """Return the value of a type that msgspec cannot decode; ValueError for invalid data."""
    if kind is Params or kind is Metrics:
        return kind.from_json(data)
    raise NotImplementedError(f"{kind.__name__} has no form in JSON")
