"""Messages over a pipe or a socket pair: four bytes of length, then the message."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

_LENGTH = struct.Struct("!I")


def write_frame(descriptor: int, message: bytes) -> None:
    """Write one message, all of it."""
    data = memoryview(frame(message))
    while data:
        data = data[os.write(descriptor, data) :]


def frame(message: bytes) -> bytes:
    """Return a message with its length before it."""
    return _LENGTH.pack(len(message)) + message


class FrameReader:
    """Splits the bytes that arrive on a descriptor into messages.

    Args:
        descriptor: The descriptor to read from.
        largest: Maximum bytes of a message; after a longer one nothing counts as a message.
    """

    def __init__(self, descriptor: int, largest: int | None = None) -> None:
        self._descriptor = descriptor
        self._largest = largest
        self._buffer = bytearray()
        self._broken = False

    def take_all(self) -> Iterator[bytes]:
        """Yield the messages already read, without waiting."""
        while (message := self.take()) is not None:
            yield message

    def fill(self) -> bool:
        """Read once; return whether the other side may send more.

        Raises:
            BlockingIOError: There is nothing to read, on a non-blocking descriptor.
        """
        try:
            data = os.read(self._descriptor, 1 << 20)
        except ConnectionResetError:
            data = b""
        if not self._broken:
            self._buffer += data
        return bool(data)

    def take(self) -> bytes | None:
        """Return the next message already read, or None, without waiting."""
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if self._largest is not None and length > self._largest:
            self._broken = True  # read and drop the rest, so that the writer does not block
            self._buffer.clear()
            return None
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        message = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return message
