"""Arrays for sending: their description, and one flat buffer for all of the same type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from search.errors import InvalidArgument, shown

Array = npt.NDArray[Any]
"""An array of any type and shape."""

_KINDS = "fciu"  # floating-point, complex, signed and unsigned integers


class ArrayType(msgspec.Struct, frozen=True, array_like=True):
    """Type and shape of an array.

    Attributes:
        dtype: NumPy's name of the type, such as 'float32'.
        shape: The shape.
    """

    dtype: str
    shape: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]

    @property
    def nbytes(self) -> int:
        """Its bytes.

        Raises:
            ValueError: The type is not one of numbers.
        """
        try:
            dtype = np.dtype(self.dtype)
        except TypeError:
            raise ValueError(f"no type of numbers: {self.dtype!r}") from None
        if dtype.kind not in _KINDS:
            raise ValueError(f"no type of numbers: {self.dtype!r}")
        return math.prod(self.shape) * dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"


def read_array(name: str, value: object) -> Array:
    """Return a value as an array of numbers in this machine's byte order.

    Args:
        name: The value's name for the error.
        value: Anything that NumPy converts, such as a tensor.

    Raises:
        InvalidArgument: It is no array of numbers.
    """
    try:
        array = np.asarray(value)
    except Exception as error:  # of a tensor's own conversion, too
        raise InvalidArgument(name, "an array of numbers", f"{shown(value)} ({error})") from None
    if array.dtype.kind not in _KINDS:
        hint = "" if array.dtype == object else f"convert it first: {array.dtype} is not supported"
        raise InvalidArgument(name, "an array of numbers", shown(value), hint)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_bytes(array: Array) -> memoryview:
    """Return the bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def type_of(array: Array) -> ArrayType:
    """Return the description of an array."""
    return ArrayType(array.dtype.name, array.shape)


class Flat:
    """Copies of arrays in flat buffers, one for each type of number.

    Args:
        arrays: The arrays.
    """

    def __init__(self, arrays: Sequence[Array]) -> None:
        self._types = [type_of(array) for array in arrays]
        groups: dict[str, list[Array]] = {}
        for array in arrays:
            groups.setdefault(array.dtype.name, []).append(array.reshape(-1))
        self._buffers = {name: np.concatenate(group) for name, group in groups.items()}

    @property
    def buffers(self) -> list[Array]:
        """The buffers, each of one dimension, in the order in which their types first come."""
        return list(self._buffers.values())

    def arrays(self) -> list[Array]:
        """Return the arrays, as views of the buffers, in the order and shapes of the originals."""
        used = dict.fromkeys(self._buffers, 0)
        found = []
        for each in self._types:
            start, length = used[each.dtype], math.prod(each.shape)
            found.append(self._buffers[each.dtype][start : start + length].reshape(each.shape))
            used[each.dtype] = start + length
        return found
