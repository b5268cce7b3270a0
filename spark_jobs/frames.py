"""Messages over a pipe or a socket pair: four bytes of length, then the message."""

from __future__ import annotations

import os
import struct

_LENGTH = struct.Struct("!I")


def write_frame(descriptor: int, message: bytes) -> None:
    """Write one message, all of it."""
    data = memoryview(_LENGTH.pack(len(message)) + message)
    while data:
        data = data[os.write(descriptor, data) :]


class FrameReader:
    """Cuts what arrives on a descriptor into messages."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()

    def receive(self) -> bytes | None:
        """Wait for a whole message and return it; None when the other side is gone.

        Several messages may arrive in one read: those that are here already come first.
        """
        while (message := self._take()) is None:
            try:
                data = os.read(self._descriptor, 1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self._buffer += data
        return message

    def _take(self) -> bytes | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        message = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return message
