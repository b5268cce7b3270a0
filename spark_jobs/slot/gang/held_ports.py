"""Ports that a slot holds for the trials that it runs with other slots."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator

from search.errors import ExperimentError
from spark_jobs.addresses import OwnAddress
from spark_jobs.messages import MemberAddress

Ports = tuple[int, int]
"""The first and the last port of a range."""

DEFAULT_PORTS: Ports = (20_000, 32_767)
"""Below the ports that Linux gives to programs that ask for any (32768 to 60999)."""


class NoPort(ExperimentError):
    """No port of the range is free; the message names the host's address and the range."""


class HeldPorts:
    """Two ports of this host that no other slot gets: for links, and for a framework's server.

    They are bound as long as the slot lives, and nothing listens here. A trial binds them, too, and
    listens: Linux allows that if both sockets have SO_REUSEADDR, as those of servers have. This
    class sets it only while a trial runs, and after binding, so that no other slot gets the port in
    the moment before the trial listens. Linux does not give ports below its own range to programs
    that ask for any port, so only a program that asks for the very number can take it then.

    Args:
        host: This host's address.
        ports: The range to choose from at random.

    Attributes:
        address: The address of both ports.

    Raises:
        NoPort: Fewer than two ports of the range are free.
    """

    def __init__(self, host: OwnAddress, ports: Ports) -> None:
        self._sockets: list[socket.socket] = []
        try:
            for held in _held(*host, ports):
                self._sockets.append(held)
                if len(self._sockets) == 2:
                    break
            else:
                raise NoPort(
                    f"fewer than 2 free ports from {ports[0]} to {ports[1]} at {host.host}, which "
                    "a worker of a trial needs; set spark.experiment.workerPorts to a larger range"
                )
        except BaseException:
            self.close()
            raise
        links, server = (_shown(held) for held in self._sockets)
        self.address = MemberAddress(links=links, server=server)

    def lend(self) -> None:
        """Let a trial listen on the ports."""
        self._share(True)

    def take_back(self) -> None:
        """Let nobody else bind the ports: the trial has ended."""
        self._share(False)

    def close(self) -> None:
        """Release the ports."""
        for held in self._sockets:
            held.close()
        self._sockets.clear()

    def _share(self, shared: bool) -> None:
        for held in self._sockets:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, shared)


def _held(family: socket.AddressFamily, host: str, ports: Ports) -> Iterator[socket.socket]:
    """Yield sockets that are bound to free ports of a range, from a random one on."""
    count = ports[1] - ports[0] + 1
    start = random.SystemRandom().randrange(count)
    for offset in range(count):
        held = socket.socket(family, socket.SOCK_STREAM)
        with contextlib.suppress(OSError):
            held.bind((host, ports[0] + (start + offset) % count))
            yield held
            continue
        held.close()


def _shown(held: socket.socket) -> str:
    host, port = held.getsockname()[:2]
    return f"[{host}]:{port}" if held.family == socket.AF_INET6 else f"{host}:{port}"
