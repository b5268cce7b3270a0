"""The samples of a data set that train functions hold in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from search.errors import InvalidArgument, shown


class Samples:
    """Arrays with the same number of samples, in tuples, lists or dicts as `model.fit` takes them.

    Args:
        data: `(x, y)`, or `(x, y, sample_weight)`; each an array or tensor, or a tuple, list or
            dict of these for models with several inputs or outputs.

    Attributes:
        parts: x, y, and perhaps sample_weight, of NumPy arrays.
        number: The number of samples, at least 1.

    Raises:
        InvalidArgument: It is anything else, or the lengths of the arrays differ.
    """

    def __init__(self, data: Any) -> None:
        if not isinstance(data, tuple | list) or len(data) not in (2, 3):
            raise _unusable(shown(data))
        lengths: set[int] = set()

        def read(leaf: Any) -> Any:
            array = (
                np.asarray(leaf) if hasattr(leaf, "shape") and hasattr(leaf, "__len__") else None
            )
            if array is None or array.ndim == 0 or array.dtype.hasobject:
                raise _unusable(f"a part that is {shown(leaf)}")
            lengths.add(len(array))
            return array

        self.parts = tuple(_of_each(part, read) for part in data)
        if len(lengths) != 1:
            raise _unusable(f"arrays of {' and '.join(map(str, sorted(lengths)))} samples")
        (self.number,) = lengths
        if not self.number:
            raise _unusable("no samples")

    def first(self, number: int) -> tuple[Any, ...]:
        """Return the parts of the first samples."""
        return tuple(_of_each(part, lambda array: array[:number]) for part in self.parts)

    def at(self, rows: np.ndarray) -> tuple[Any, ...]:
        """Return the parts of the samples at some rows, copied."""
        return tuple(_of_each(part, lambda array: array[rows]) for part in self.parts)


def _of_each(part: Any, function: Callable[[Any], Any]) -> Any:
    """Return a structure with a function's values of its leaves."""
    if isinstance(part, Mapping):
        return {name: _of_each(value, function) for name, value in part.items()}
    if isinstance(part, tuple | list):
        values = [_of_each(value, function) for value in part]
        return type(part)(*values) if hasattr(part, "_fields") else type(part)(values)
    return function(part)


def _unusable(got: str) -> InvalidArgument:
    return InvalidArgument(
        "data",
        "a tuple (x, y) of arrays with the same number of samples",
        got,
        "take some batches of a data set, and join them by numpy.concatenate",
    )
