"""The values that a call may return, and their encoding: msgpack.

Decoding creates only these values, whatever the bytes are: they name no class, and no code runs.
Values that msgpack has are unchanged; any other one is a map with one entry: `{"tuple": [...]}`,
`{"dict": [key, value, key, ...]}`, `{"int": "0x..."}` beyond 64 bits, `{"array": [dtype, shape,
bytes]}`, `{"scalar": [dtype, bytes]}` of numpy, `{"datetime": "2026-01-31T10:00:00"}`.
"""

from __future__ import annotations

import datetime
import itertools
import math
import re
from typing import Any

import msgspec
import numpy as np

from search.errors import ExperimentError, shown

PLAIN = (
    "None, a bool, a number, a string, bytes, a datetime, a numpy scalar or array of numbers, "
    "strings or times, or lists, tuples and dicts of those"
)
"""The values that can be encoded, for messages."""

_DEEPEST = 64
_NATIVE = (type(None), bool, float, bytes)
_DTYPE = re.compile(r"[<>|=][biufcSUMm]\d+(\[\w+\])?", re.ASCII)  # no objects, no structures


class NotPlain(ExperimentError):
    """A value that cannot be encoded, or bytes that cannot be decoded; the message says which."""


def encode(value: Any) -> bytes:
    """Return a value as bytes, from which `decode` makes an equal one of the same types.

    numpy's strings are the exception: outside arrays they become Python's.

    Raises:
        NotPlain: The value is none of `PLAIN`, also a subclass of one, or nested too deeply.
    """
    return msgspec.msgpack.encode(_to_tree(value, 0))


def decode(data: bytes | bytearray) -> Any:
    """Return the value that `encode` was called with.

    Raises:
        NotPlain: `encode` cannot have returned these bytes.
    """
    try:
        return _from_tree(msgspec.msgpack.decode(data), 0)
    # SystemError: from CPython, for a numpy string with numbers that are no characters.
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, SystemError) as error:
        raise NotPlain(f"not an encoded value: {shown(str(error), 200)}") from None


def _to_tree(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise NotPlain(f"expected values nested at most {_DEEPEST} deep, got {shown(value)}")
    kind = type(value)
    if kind not in (list, tuple, dict):
        return value if kind in _NATIVE else _leaf_to_tree(value)
    items = itertools.chain.from_iterable(value.items()) if kind is dict else value
    tree = [_to_tree(item, depth + 1) for item in items]
    return tree if kind is list else {kind.__name__: tree}


def _leaf_to_tree(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return value if -(2**63) <= value < 2**64 else {"int": hex(value)}
    if kind in (str, np.str_):
        return _text(value)
    if kind is np.bytes_:
        return bytes(value)
    if kind is datetime.datetime and type(value.tzinfo) in (type(None), datetime.timezone):
        return {"datetime": value.isoformat()}
    if kind is np.ndarray and _DTYPE.fullmatch(value.dtype.str) and value.dtype.itemsize:
        return {"array": [value.dtype.str, list(value.shape), value.tobytes()]}
    if isinstance(value, np.generic) and _DTYPE.fullmatch(value.dtype.str):
        return {"scalar": [value.dtype.str, value.tobytes()]}
    raise NotPlain(f"expected {PLAIN}; got {shown(value, 80)} of type {_name(kind)}")


def _text(value: str) -> str:
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotPlain(f"expected text that UTF-8 can hold, got {shown(text)}") from None
    return text


def _name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _from_tree(tree: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if type(tree) in (*_NATIVE, int, str):
        return tree
    if type(tree) is list:
        return [_from_tree(item, depth + 1) for item in tree]
    if type(tree) is not dict or len(tree) != 1:
        raise ValueError(f"not a value: {shown(tree)}")
    [(name, content)] = tree.items()
    if name not in ("tuple", "dict") or type(content) is not list:
        return _leaf_from_tree(name, content)
    items = [_from_tree(item, depth + 1) for item in content]
    return tuple(items) if name == "tuple" else dict(zip(items[::2], items[1::2], strict=True))


def _leaf_from_tree(name: Any, content: Any) -> Any:
    match name, content:
        case "int", str(text):
            return int(text, 16)
        case "datetime", str(text):
            return datetime.datetime.fromisoformat(text)
        case "array", [str(dtype), list(shape), bytes(data)]:
            return _array(dtype, shape, data)
        case "scalar", [str(dtype), bytes(data)]:
            return _array(dtype, [], data)[()]
    raise ValueError(f"not a value: {shown(name)}: {shown(content)}")


def _array(dtype: str, shape: list[Any], data: bytes) -> Any:
    if not _DTYPE.fullmatch(dtype):
        raise ValueError(f"not the type of a plain array: {shown(dtype)}")
    kind = np.dtype(dtype)
    sizes = all(type(size) is int and size >= 0 for size in shape)
    if not kind.itemsize or not sizes or math.prod(shape) * kind.itemsize != len(data):
        raise ValueError(f"not an array of {shown(dtype)} and {shown(shape)}: {len(data)} bytes")
    return np.ndarray(shape, kind, data).copy()  # a writable one
