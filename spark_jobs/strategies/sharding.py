"""A worker's part of data, for strategies that do not divide it themselves."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from search.errors import InvalidArgument, shown


def part_of(data: Any, rank: int, workers: int) -> Any:
    """Return a worker's part: every item whose number divided by `workers` leaves `rank`.

    The parts of all workers together have each item once; their lengths differ by at most one.

    Args:
        data: An array, tensor, table or list; a `tf.data.Dataset`, whose elements are divided; a
            dict or a tuple of these, or a list of arrays, each of which is divided.
        rank: The worker's rank, from 0.
        workers: The number of workers.

    Raises:
        InvalidArgument: The data cannot be divided, or its arrays differ in length.
    """
    lengths: dict[int, str] = {}
    part = _part("data", data, slice(rank, None, workers), lengths)
    if len(lengths) > 1:
        got = ", ".join(f"{name} of {length}" for length, name in lengths.items())
        raise InvalidArgument("data", "arrays of one length", got)
    return part


def _part(name: str, data: Any, items: slice, lengths: dict[int, str]) -> Any:
    if isinstance(data, Mapping):
        return {key: _part(f"{name}[{key!r}]", data[key], items, lengths) for key in data}
    if isinstance(data, tuple) or (isinstance(data, list) and data and all(map(_is_array, data))):
        parts = [_part(f"{name}[{i}]", item, items, lengths) for i, item in enumerate(data)]
        return type(data)(*parts) if hasattr(data, "_fields") else type(data)(parts)
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow is not None and isinstance(data, tensorflow.data.Dataset):
        return data.shard(items.step, items.start)
    if isinstance(data, list) or _is_array(data):
        # Not len() of both: sparse matrices of SciPy have none.
        lengths.setdefault(data.shape[0] if _is_array(data) else len(data), name)
        try:
            return data.iloc[items] if hasattr(data, "iloc") else data[items]
        except TypeError:
            hint = "convert it first, such as a sparse matrix by .tocsr()"
            raise InvalidArgument(name, "an array with rows to choose", shown(data), hint) from None
    raise InvalidArgument(
        name, "an array, a list, a tf.data.Dataset, or a dict or tuple of these", shown(data)
    )


def _is_array(data: Any) -> bool:
    shape = getattr(data, "shape", None)
    return shape is not None and len(shape) > 0
