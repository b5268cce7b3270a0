"""Packets between a slot and its relay, over a Unix socket: four bytes of length, then the content.

A connection begins with the packets of `handshake.py`. Then the relay sends `REACHED`, or
`UNREACHED` if it does not reach the driver. Then the slot sends a call, as `Called`, and waits for
the answer, as `Answered`. Meanwhile it may send empty packets, each of which is answered by an
empty one, so that a relay that hangs is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

from spark_jobs.channel.joined_calls import LARGEST_FRAME
from spark_jobs.trial.pipe.frames import frame

REACHED = b"reached"
"""The relay's packet to a slot of the run whose calls it passes on."""

UNREACHED = b"unreached"
"""Its packet if it does not reach the driver."""

_HEAD = 4  # bytes
_PIECE = 1 << 16  # bytes


class PacketTooLarge(Exception):
    """A packet is longer than any that belongs here."""


async def read_packet(reader: asyncio.StreamReader, largest: int = LARGEST_FRAME) -> bytes:
    """Return the content of the next packet.

    Args:
        reader: The connection.
        largest: Maximum bytes of the content.

    Raises:
        PacketTooLarge: It is longer.
        EOFError: The other side has closed the connection.
        OSError: The connection is broken.
    """
    length = int.from_bytes(await reader.readexactly(_HEAD), "big")
    if length > largest:
        raise PacketTooLarge(f"{length} bytes, more than {largest}")
    return await reader.readexactly(length)


class Packets:
    """A slot's side of a connection to its relay. Not thread safe, apart from `close`.

    Args:
        connection: The connection, owned by this object from now on.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = bytearray()

    def close(self) -> None:
        """Close the connection; ends a call of another thread. May be called again."""
        with contextlib.suppress(OSError):  # it is closed
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def send(self, content: bytes, seconds: float) -> None:
        """Send a packet.

        Args:
            content: Its content.
            seconds: Time limit.

        Raises:
            OSError: It was not sent, also `TimeoutError`.
        """
        self._connection.settimeout(seconds)
        self._connection.sendall(frame(content))

    def receive(self, seconds: float) -> bytes | None:
        """Return the content of the next packet; None if it does not come in time.

        Args:
            seconds: Time limit.

        Raises:
            OSError: The connection is broken, or the other side has closed it.
        """
        give_up = time.monotonic() + seconds
        while (packet := self._taken()) is None:
            left = give_up - time.monotonic()
            if left <= 0:
                return None
            self._connection.settimeout(left)
            try:
                piece = self._connection.recv(_PIECE)
            except TimeoutError:
                return None
            if not piece:
                raise ConnectionError("the relay has closed the connection")
            self._received += piece
        return packet

    def _taken(self) -> bytes | None:
        """Return the content of a packet that has arrived as a whole, or None."""
        end = _HEAD + int.from_bytes(self._received[:_HEAD], "big")
        if len(self._received) < max(end, _HEAD):
            return None
        content = bytes(self._received[_HEAD:end])
        del self._received[:end]
        return content
