"""Messages over a pipe or a socket pair: four bytes of length, then the message."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

_LENGTH = struct.Struct("!I")


def write_frame(descriptor: int, message: bytes) -> None:
    """Write one message, all of it."""
    data = memoryview(_LENGTH.pack(len(message)) + message)
    while data:
        data = data[os.write(descriptor, data) :]


class FrameReader:
    """Cuts what arrives on a descriptor into messages.

    Attributes:
        closed: The other side is gone; no message will come any more.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.closed = False
        self._buffer = bytearray()

    def read(self) -> Iterator[bytes]:
        """Read once, blocking where the descriptor does, and yield the messages that are whole."""
        try:
            data = os.read(self.descriptor, 1 << 20)
        except ConnectionResetError:
            data = b""
        self.closed = not data
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            message = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield message
