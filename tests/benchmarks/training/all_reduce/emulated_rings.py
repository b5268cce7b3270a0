"""All-reduces of four processes on an emulated network: `make bench-training OPTIONS=--rings`.

Without the option they follow the other rows. As a program this module is one of the processes.
"""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from spark_jobs.channel.credentials import make_certificate
from spark_jobs.communicator.communicator import Communicator, connect
from spark_jobs.communicator.membership import Membership
from spark_jobs.communicator.requests import Chunk
from tests.benchmarks.training.all_reduce.emulated_network import Network, NoNetwork, Shape, address

_HOSTS = 4
_PORT = 23_456
_SIZES = {"0.1 MB": (25_000, 30), "1 MB": (250_000, 15), "10 MB": (2_500_000, 5)}
"""The numbers of four bytes, and the rounds."""

_SHAPES: dict[Shape, str] = {
    "switch": "each host has a link to a switch",
    "pairs": "each two hosts have a link",
}
_RATES = {"100mbit": "100 Mbit/s", "1gbit": "1 Gbit/s"}


class Way(NamedTuple):
    """A way to sum a vector over all processes.

    Attributes:
        rings: The number of rings.
        compress: See `all_reduce`.
        servers: The number of chunks of a parameter server, each in a process of its own; 0 for
            an all-reduce.
    """

    rings: int = 1
    compress: str | None = None
    servers: int = 0

    @property
    def name(self) -> str:
        """The way in words."""
        if self.servers:
            return f"parameter server, {self.servers} chunk{'s' if self.servers > 1 else ''}"
        rings = "1 ring" if self.rings == 1 else f"{self.rings} rings"
        return f"{rings}, {self.compress}" if self.compress else rings


WAYS = [
    Way(),
    Way(rings=2),
    Way(rings=3),
    Way(compress="float16"),
    Way(rings=2, compress="float16"),
    Way(rings=3, compress="float16"),
    Way(servers=1),
    Way(servers=2),
    Way(servers=4),
]


class Took(NamedTuple):
    """The milliseconds of a sum, means of the processes."""

    wall: float
    cpu: float


@contextlib.contextmanager
def _processes(network: Network) -> Iterator[list[subprocess.Popen[str]]]:
    """Start a process on each host; they end with the context."""
    key, certificate = (pem.decode() for pem in make_certificate())
    members = [f"{address(host)}:{_PORT}" for host in range(_HOSTS)]
    started: list[subprocess.Popen[str]] = []
    with contextlib.ExitStack() as running:
        for rank in range(_HOSTS):
            command = [*network.inside(rank), sys.executable, "-m", __name__]
            process = subprocess.Popen(
                command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            started.append(running.enter_context(process))
            running.callback(process.kill)  # does nothing once it has ended
            _write(process, [rank, members, key, certificate])
        yield started
        for process in started:
            assert process.stdin is not None
            process.stdin.close()
        for process in started:
            process.wait(60)


def _write(process: subprocess.Popen[str], what: Any) -> None:
    assert process.stdin is not None
    print(json.dumps(what), file=process.stdin, flush=True)


def _sum(processes: Sequence[subprocess.Popen[str]], way: Way, numbers: int) -> Took:
    for process in processes:
        _write(process, [way, numbers])
    took = []
    for process in processes:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{way.name}: a process ended with code {process.wait()}")
        took.append(json.loads(line))
    return Took(*(statistics.fmean(column) for column in zip(*took, strict=True)))


def measure(
    shape: Shape, rate: str, sizes: Mapping[str, tuple[int, int]] = MappingProxyType(_SIZES)
) -> dict[tuple[Way, str], Took]:
    """Return the least time, and the median of the processor's time, of each way and size.

    Args:
        shape: How the hosts are connected.
        rate: The rate of each link in each direction: '1gbit'.
        sizes: The numbers of four bytes by the name of the size, and the rounds, in which the ways
            take turns.

    Raises:
        NoNetwork: This process cannot make namespaces.
    """
    found: dict[tuple[Way, str], list[Took]] = {}
    with Network(_HOSTS, shape, rate) as network, _processes(network) as processes:
        for size, (numbers, rounds) in sizes.items():
            for number in range(rounds + 1):
                for way in WAYS:
                    took = _sum(processes, way, numbers)
                    if number:  # the first time opens connections
                        found.setdefault((way, size), []).append(took)
    return {
        key: Took(min(each.wall for each in took), statistics.median(each.cpu for each in took))
        for key, took in found.items()
    }


def table(found: Mapping[tuple[Way, str], Took]) -> list[str]:
    """Return what was measured as lines of a table in Markdown."""
    sizes = list(dict.fromkeys(size for _, size in found))
    lines = [
        f"| ms | {' | '.join(sizes)} | processor ms of a process, {sizes[-1]} |",
        "| --- |" + " ---: |" * (len(sizes) + 1),
    ]
    for way in dict.fromkeys(way for way, _ in found):
        cells = [f"{found[way, size].wall:,.0f}" for size in sizes]
        cells.append(f"{found[way, sizes[-1]].cpu:.0f}")
        lines.append(f"| {way.name} | {' | '.join(cells)} |")
    return lines


def report() -> Iterator[str]:
    """Yield the lines of a table for each network; one line where there can be none."""
    for shape, how in _SHAPES.items():
        for rate, words in _RATES.items():
            try:
                found = measure(shape, rate)
            except NoNetwork as error:
                yield f"skipped: {error}"
                return
            yield f"\n{_HOSTS} processes, {how}, {words}; least times:\n"
            yield from table(found)


class ParameterServer:
    """A vector in chunks that the first members keep, of which `Downpour` has one in each.

    Args:
        communicator: This member.
        servers: The number of chunks.
        length: Of the vector.
    """

    def __init__(self, communicator: Communicator, servers: int, length: int) -> None:
        self._communicator = communicator
        self._servers = servers
        own = np.zeros(length, np.float32)
        parts = np.array_split(own, servers)
        rank = communicator.rank
        self._chunk = Chunk(parts[rank] if rank < servers else own[:0], np.ndarray.__iadd__)
        self._number = communicator._home.keep(self._chunk)

    def sum(self, vector: np.ndarray) -> np.ndarray:
        """Let all members add a vector, and return the sum of all of them until now."""
        remote, rank = self._communicator._remote, self._communicator.rank
        whole = np.empty_like(vector)
        changes, parts = (
            dict(enumerate(np.array_split(each, self._servers))) for each in (vector, whole)
        )
        assert remote is not None
        if rank < self._servers:
            self._chunk.change(changes.pop(rank))
        remote.push(self._number, changes)
        self._communicator.barrier()
        if rank < self._servers:
            parts.pop(rank)[:] = self._chunk.read()[0]
        remote.fetch(self._number, parts)
        return whole


def _summing(communicator: Communicator, way: Way, length: int) -> Callable[[Any], Any]:
    if way.servers:
        return ParameterServer(communicator, way.servers, length).sum
    options: dict[str, Any] = {"rings": way.rings, "compress": way.compress}
    return lambda vector: communicator.all_reduce([vector], "sum", **options)[0]


def member() -> None:
    """Be one of the processes: sum as often and as much as standard input says."""
    rank, members, key, certificate = json.loads(sys.stdin.readline())
    place = Membership(rank=rank, members=tuple(members), key=key, certificate=certificate)
    port = socket.socket()
    port.bind((address(rank), _PORT))
    sums: dict[tuple[Way, int], Callable[[Any], Any]] = {}
    with connect(place, port, limit=60.0) as communicator:
        for line in sys.stdin:
            chosen, length = json.loads(line)
            way = Way(*chosen)
            if (way, length) not in sums:
                sums[way, length] = _summing(communicator, way, length)
            vector = np.full(length, rank, np.float32)
            communicator.barrier()
            wall, cpu = time.perf_counter(), time.process_time()
            found = sums[way, length](vector)
            took = time.perf_counter() - wall, time.process_time() - cpu
            expected = sum(range(place.size))
            assert found[-1] == expected or (way.servers and found[-1] % expected == 0)
            communicator.barrier()  # nobody changes a chunk that another one still fetches
            print(json.dumps([1e3 * seconds for seconds in took]), flush=True)


if __name__ == "__main__":
    member()
