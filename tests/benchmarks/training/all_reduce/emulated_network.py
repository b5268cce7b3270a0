"""Hosts on an emulated network: network namespaces, and links of a limited rate between them.

Needs root, and `ip` and `tc` of iproute2. No packet leaves the namespaces.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Literal, Self

Shape = Literal["switch", "pairs"]
"""How hosts are connected: each by one link to a switch, or each pair of hosts by a link."""

_PREFIX = "bench-rings"
_NAMESPACES = Path("/run/netns")

_BURST = "16kb"  # more would let small messages pass without a limit
_QUEUE = "100ms"  # nothing is dropped in a shorter one, which would make TCP wait for 200 ms


class NoNetwork(Exception):
    """This process cannot make namespaces; the text says why."""


def address(host: int) -> str:
    """Return the address of a host, by its number from 0."""
    return f"10.77.0.{host + 1}"


def namespaces(prefix: str, hosts: int) -> list[str]:
    """Return the names of the hosts' namespaces, and of the switch's."""
    return [*(f"{prefix}-{host}" for host in range(hosts)), f"{prefix}-switch"]


def commands(prefix: str, hosts: int, shape: Shape, rate: str) -> Iterator[Sequence[str]]:
    """Yield the commands that connect namespaces.

    Args:
        prefix: Of their names.
        hosts: The number of hosts.
        shape: How they are connected.
        rate: The rate of each link in each direction, as `tc` reads it.
    """
    *names, switch = namespaces(prefix, hosts)
    for host, name in enumerate(names):
        yield ("ip", "-n", name, "link", "set", "lo", "up")
        if shape == "pairs":
            yield ("ip", "-n", name, "address", "add", f"{address(host)}/32", "dev", "lo")
    if shape == "switch":
        yield ("ip", "-n", switch, "link", "add", "name", "bridge", "type", "bridge")
        yield ("ip", "-n", switch, "link", "set", "bridge", "up")
        for host, name in enumerate(names):
            yield from _link((name, "uplink"), (switch, f"port{host}"), rate)
            yield ("ip", "-n", switch, "link", "set", f"port{host}", "master", "bridge")
            yield ("ip", "-n", name, "address", "add", f"{address(host)}/24", "dev", "uplink")
        return
    for one, other in combinations(range(hosts), 2):
        yield from _link((names[one], f"to{other}"), (names[other], f"to{one}"), rate)
        for here, there in ((one, other), (other, one)):
            route = (f"{address(there)}/32", "dev", f"to{there}", "src", address(here))
            yield ("ip", "-n", names[here], "route", "add", *route)


def _link(one: tuple[str, str], other: tuple[str, str], rate: str) -> Iterator[Sequence[str]]:
    """Yield the commands for a link between devices, each of which is (namespace, name)."""
    yield (
        *("ip", "-n", one[0], "link", "add", "name", one[1], "type", "veth"),
        *("peer", "name", other[1], "netns", other[0]),
    )
    for namespace, device in (one, other):
        yield ("ip", "-n", namespace, "link", "set", device, "up")
        limit = ("tbf", "rate", rate, "burst", _BURST, "latency", _QUEUE)
        yield ("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", *limit)


class Network:
    """Namespaces that are connected while it is entered, and removed afterwards.

    Args:
        hosts: The number of hosts.
        shape: How they are connected.
        rate: The rate of each link in each direction, as `tc` reads it: '1gbit'.
    """

    def __init__(self, hosts: int, shape: Shape, rate: str) -> None:
        self._hosts = hosts
        self._shape: Shape = shape
        self._rate = rate
        self._prefix = f"{_PREFIX}-{os.getpid()}"

    def __enter__(self) -> Self:
        for name in ("ip", "tc"):
            if shutil.which(name) is None:
                raise NoNetwork(f"there is no {name!r} (package iproute2)")
        if os.geteuid():
            raise NoNetwork("this process does not run as root")
        _remove_old()
        try:
            for name in namespaces(self._prefix, self._hosts):
                _run(("ip", "netns", "add", name))
            for command in commands(self._prefix, self._hosts, self._shape, self._rate):
                _run(command)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._remove()

    def inside(self, host: int) -> list[str]:
        """Return the beginning of a command that runs on a host."""
        return ["ip", "netns", "exec", namespaces(self._prefix, self._hosts)[host]]

    def _remove(self) -> None:
        for name in namespaces(self._prefix, self._hosts):
            with contextlib.suppress(NoNetwork):  # not made yet
                _run(("ip", "netns", "delete", name))


def _remove_old() -> None:
    """Remove namespaces of processes that were killed before they could."""
    for path in _NAMESPACES.glob(f"{_PREFIX}-*-*"):
        process = path.name.removeprefix(f"{_PREFIX}-").split("-")[0]
        if process.isdigit() and not Path("/proc", process).exists():
            with contextlib.suppress(NoNetwork):  # another process has removed it
                _run(("ip", "netns", "delete", path.name))


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoNetwork(f"{' '.join(command)}: {done.stderr.strip()}")
