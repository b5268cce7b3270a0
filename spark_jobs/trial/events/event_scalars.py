"""The curves in TensorBoard event files, read without TensorFlow.

TensorBoard's own reader imports TensorFlow where it is installed. A file is a series of records:
the length in eight bytes and its checksum in four, the event, and its checksum in four.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from tensorboard.compat.proto import event_pb2, types_pb2
from tensorboard.plugins.scalar import metadata as scalar_metadata
from tensorboard.util import tensor_util

_HEAD = struct.Struct("<QI")
_FOOT = 4
_NUMBERS = (types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE, types_pb2.DT_INT32, types_pb2.DT_INT64)


class ScalarPoint(NamedTuple):
    """A point of a curve.

    Attributes:
        tag: The curve's name.
        step: The step.
        value: The value; may be infinite or NaN.
        time: When it was written, in seconds since 1970.
    """

    tag: str
    step: int
    value: float
    time: float


def scalars_in(data: bytes) -> Iterator[ScalarPoint]:
    """Yield the points of all curves in an event file, in the order in which they were written.

    Ends at an incomplete record, as a process that is still writing leaves it, or at a damaged one.

    Args:
        data: The file's content.
    """
    for event in _events(data):
        for value in event.summary.value:
            number = _number(value)
            if number is not None:
                yield ScalarPoint(value.tag, event.step, number, event.wall_time)


def _events(data: bytes) -> Iterator[Any]:
    view, position = memoryview(data), 0
    while position + _HEAD.size <= len(view):
        length, _ = _HEAD.unpack_from(view, position)
        start = position + _HEAD.size
        position = start + length + _FOOT
        if position > len(view):
            return
        try:
            yield event_pb2.Event.FromString(bytes(view[start : start + length]))
        except DecodeError:
            return


def _number(value: Any) -> float | None:
    """Return the number of a summary's value; None for a histogram, a text and so on."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    plugin = value.metadata.plugin_data.plugin_name
    if kind != "tensor" or plugin not in ("", scalar_metadata.PLUGIN_NAME):
        return None
    return _number_in(value.tensor)


def _number_in(tensor: Any) -> float | None:
    """Return the number of a tensor with one; None for any other."""
    if tensor.dtype not in _NUMBERS:
        return None
    if len(tensor.float_val) == 1:  # ours: quicker than an array
        return float(tensor.float_val[0])
    if math.prod(dimension.size for dimension in tensor.tensor_shape.dim) != 1:
        return None  # before memory is taken for what a file claims
    try:
        return float(tensor_util.make_ndarray(tensor).item())
    except (TypeError, ValueError):  # its content is not what it claims
        return None
