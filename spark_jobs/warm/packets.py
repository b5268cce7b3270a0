"""Packets between slot, keeper and importer: JSON, with descriptors beside it.

All sockets are of the kind SOCK_SEQPACKET, which keeps the bounds of packets.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

FORK = b"fork"
"""The keeper's request to the importer; beside it is what was beside the slot's."""

SWEPT = b"swept"
"""The keeper's last packet to a slot: its zygote has ended, and nothing of it is left, or a part
that cannot be killed."""

DESCRIPTORS = 3
"""The number of descriptors beside a request."""

_LARGEST = 1 << 16
_LONGEST_PROBLEM = 2_000  # characters, so that a packet holds them in any alphabet
_CREDENTIALS = struct.Struct("3i")  # those of `Peer`


@dataclass(frozen=True, slots=True)
class Request:
    """A slot's request for a zygote, whose control socket, lifeline and log are beside it.

    Without them it only says how long the keeper stays.

    Attributes:
        seconds: Seconds for which the keeper stays without a zygote; the latest request counts.
    """

    seconds: float

    def to_json(self) -> bytes:
        """Return the request as a packet."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Request:
        """Read a packet.

        Raises:
            ValueError: It is no request.
        """
        try:
            return cls(float(json.loads(data)["seconds"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no request: {error!r}") from None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request, and the importer's first packet, without a process.

    Attributes:
        pid: The zygote's process id; its pidfd is beside the packet. 0 if there is none.
        problem: Why there is none; '' otherwise.
        stale: Whether to ask again, since this keeper is about to end.
    """

    pid: int = 0
    problem: str = ""
    stale: bool = False

    def to_json(self) -> bytes:
        """Return the answer as a packet."""
        return json.dumps(asdict(self) | {"problem": self.problem[:_LONGEST_PROBLEM]}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Answer:
        """Read a packet.

        Raises:
            ValueError: It is no answer.
        """
        try:
            values = json.loads(data)
            return cls(int(values["pid"]), str(values["problem"]), bool(values["stale"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no answer: {error!r}") from None


class Peer(NamedTuple):
    """The process on the other side of a connection, by the kernel.

    On the side of a server it is the process that has opened the connection.

    Attributes:
        process: Its id.
        user: The id of its user.
        group: The id of its group.
    """

    process: int
    user: int
    group: int


def send(link: socket.socket, data: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send a packet.

    Raises:
        OSError: The other side is gone.
    """
    socket.send_fds(link, [data], descriptors)


def receive(link: socket.socket) -> tuple[bytes, list[int]]:
    """Receive a packet and the descriptors beside it; no bytes when the other side is gone.

    Raises:
        TimeoutError: None came within the timeout of the socket.
    """
    try:
        data, descriptors, _, _ = socket.recv_fds(
            link, _LARGEST, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionError:
        return b"", []
    return data, list(descriptors)


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors, some of which may be closed."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def peer_of(connection: socket.socket) -> Peer:
    """Return the process on the other side of a connection."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Peer(*_CREDENTIALS.unpack(data))
