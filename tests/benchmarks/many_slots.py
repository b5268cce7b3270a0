"""The driver's cost of many slots: `make bench-slots`.

The driver's side is real: server with TLS, coordinator, journal on disk, TensorBoard's view of the
search. The slots are not: one process speaks for all of them, each on a connection of its own, and
their trials only sleep. Times of the processor are the driver's own; how fast it all goes depends
on the slots' process, too, which has the same cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import random
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil

from experiment.display.board import Board
from experiment.run_files.journal import Journal
from experiment.run_files.manifest import write_manifest
from experiment.setup.specification import SearchSpec
from search.algorithms import Evolution
from search.direction import Direction
from search.grid import PointSearch
from search.space.spaces import Space
from search.trial import Outcome, Trial
from spark_jobs.channel.credentials import CERTIFICATE_NAME
from spark_jobs.channel.grpc_channel import ChannelServer
from spark_jobs.messages import Hello, Next, Report, Reports, encode
from tests.experiment.runs import begun, make_coordinator, make_manifest, make_run_folder, make_spec
from tests.search.fakes import started

_HOSTS = 125  # eight slots on each of a thousand
_IDLE = 15.0  # seconds for which all slots wait: longer than the driver keeps one waiting
_LONG = 10.0  # seconds of a trial that reports once in each
_AT_ONCE = 50  # connections opened at a time
_POLL = 0.05


class Gated:
    """A searcher that returns no trial before its gate is open."""

    def __init__(self, searcher: Any) -> None:
        self._searcher, self.open = searcher, False

    def ask(self) -> Trial | None:
        return self._searcher.ask() if self.open else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._searcher, name)


class Driver:
    """The driver of one search, with waiting slots."""

    def __init__(self, folder: Path, search: SearchSpec, slots: int) -> None:
        self._search, self._slots, self._folder = search, slots, folder
        self.gate: Any = search.searcher

    @contextlib.contextmanager
    def running(self) -> Iterator[Driver]:
        """Start the driver and the slots, and wait until all slots are connected."""
        paths = make_run_folder(self._folder, "slots")
        manifest = make_manifest(self._search, name="slots", optimization_key="metric")
        write_manifest(paths, manifest)
        with contextlib.ExitStack() as ending:
            journal = ending.enter_context(Journal(paths.journal))
            board = Board(paths, self._search, Direction.MIN, manifest)
            self.coordinator = make_coordinator(
                self._search.searcher,
                paths,
                journal,
                grows=True,  # the gate returns no trial before it opens
                direction=Direction.MIN,
                observers=[board],
                slots=self._slots,
            )
            self.coordinator.trials.begin(begun(trials=manifest.trials))
            self.memory = [_memory()]
            self._server = ending.enter_context(
                ChannelServer("127.0.0.1", self.coordinator, slots=self._slots)
            )
            ending.enter_context(_slots(self._server, self._slots))
            wait_for(lambda: self.coordinator.trials.status.slots == self._slots)
            self.memory.append(_memory())
            yield self
            board.close("metric", self.coordinator.trials.status)

    def open(self) -> None:
        """Let the slots get trials."""

        def let() -> None:
            self.gate.open = True

        self._server.call(let)


@contextlib.contextmanager
def _slots(server: ChannelServer, count: int) -> Iterator[None]:
    """Run a process that simulates slots; it ends when the driver stops them."""
    command = [sys.executable, "-m", "tests.benchmarks.many_slots", "--speak-for", str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    address = server.address
    process.stdin.write(json.dumps([address.target, address.token, address.certificate]).encode())
    process.stdin.close()
    try:
        yield
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def _memory() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def wait_for(true: Callable[[], bool]) -> None:
    """Wait for a condition."""
    while not true():
        time.sleep(_POLL)


def points(count: int, seconds: float, reports: int = 0) -> SearchSpec:
    """Return a search of trials that all take the same time."""
    listed = [{"seconds": seconds, "reports": reports, "n": n} for n in range(count)]
    return make_spec("launch", Gated(PointSearch(listed)), None, listed, {"type": "points"})  # type: ignore[arg-type]


def generations(popsize: int, count: int) -> SearchSpec:
    """Return a search with a barrier, whose trials take up to two seconds."""
    space = Space.of_bounds({"seconds": [0.0, 2.0], "x": [0.0, 1.0]})
    size = {"popsize": popsize, "generations": count}
    searcher = started(Evolution, space, 0, generational=True, direction=Direction.MIN, **size)
    algorithm = {"type": "differential evolution", "strategy": "rand1bin", **size}
    gated: Any = Gated(searcher)
    return make_spec("evolutionary_search", gated, space, algorithm=algorithm)


def waiting_and_fast(folder: Path, slots: int) -> dict[str, str]:
    """Measure waiting slots, then trials that return at once."""
    trials = max(2_000, 5 * slots)
    found = {}
    with Driver(folder, points(trials, 0.0), slots).running() as driver:
        before, after = driver.memory
        found["memory per slot that waits"] = f"{(after - before) / slots / 1024:.1f} KiB"
        cpu = _cpu()
        time.sleep(_IDLE)
        share = (_cpu() - cpu) / _IDLE / slots
        found["processor per slot that waits"] = f"{share * 1e6:.0f} us/s"
        cpu, began = _cpu(), time.monotonic()
        driver.open()
        wait_for(lambda: driver.coordinator.trials.status.ended >= slots)
        first = time.monotonic() - began
        wait_for(lambda: driver.coordinator.trials.done)
        took = time.monotonic() - began
        found["all slots that waited have had a trial after"] = f"{first:.2f} s"
        found["trials a second, of no length"] = f"{trials / took:.0f}"
        found["processor per trial"] = f"{(_cpu() - cpu) / trials * 1e3:.2f} ms"
    return found


def steady(folder: Path, slots: int) -> dict[str, str]:
    """Measure trials of ten seconds, each with one report per second."""
    trials = 2 * slots
    with Driver(folder, points(trials, _LONG, int(_LONG)), slots).running() as driver:
        cpu, began = _cpu(), time.monotonic()
        driver.open()
        wait_for(lambda: driver.coordinator.trials.done)
        took = time.monotonic() - began
        used = (_cpu() - cpu) / took
    return {
        "trials of 10 s with a report a second: slots busy": f"{trials * _LONG / took / slots:.0%}",
        "of a processor for that": f"{used:.1%}",
    }


def barrier(folder: Path, slots: int) -> dict[str, str]:
    """Measure generations of one trial per slot: all slots but the last one wait."""
    with Driver(folder, generations(max(4, slots), 2), slots).running() as driver:
        trials = driver.coordinator.trials.status.total
        cpu = _cpu()
        driver.open()
        wait_for(lambda: driver.coordinator.trials.done)
        used = (_cpu() - cpu) / trials
    return {"processor per trial, slots waiting for generations": f"{used * 1e3:.2f} ms"}


async def speak_for(count: int, target: str, token: str, certificate: str) -> None:
    """Simulate slots, each with a connection of its own, until the driver stops all."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def be(number: int) -> None:
        slot = _Slot(target, token, certificate, f"1.{number}.0")
        async with turn:
            await slot.call("Hello", Hello(slot=slot.name, host=f"host{number % _HOSTS}"))
        with contextlib.suppress(grpc.aio.AioRpcError):  # the search and its driver have ended
            await slot.run()

    await asyncio.gather(*(be(number) for number in range(count)))


class _Slot:
    def __init__(self, target: str, token: str, certificate: str, name: str) -> None:
        credentials = grpc.ssl_channel_credentials(certificate.encode())
        options = [
            ("grpc.ssl_target_name_override", CERTIFICATE_NAME),
            ("grpc.use_local_subchannel_pool", 1),  # otherwise all slots would share a connection
        ]
        self._channel = grpc.aio.secure_channel(target, credentials, options)
        self._token, self._key, self.name = token, secrets.token_hex(16), name

    async def call(self, method: str, message: Any) -> dict[str, Any]:
        metadata = (("authorization", f"Bearer {self._token}"), ("attempt-key", self._key))
        call = self._channel.unary_unary(f"/experiment.Channel/{method}")(
            encode(message), metadata=metadata, timeout=60, wait_for_ready=True
        )
        answer = json.loads(await call)
        self._key = dict(await call.trailing_metadata()).get("attempt-key", self._key)
        return dict(answer)

    async def run(self) -> None:
        answer = await self.call("Next", Next(self.name))
        while answer["type"] != "stop":
            if answer["type"] == "wait":
                answer = await self.call("Next", Next(self.name))
                continue
            outcome = await self._train(answer)
            answer = await self.call("Next", Next(self.name, answer["number"], outcome))
        await self._channel.close()

    async def _train(self, work: dict[str, Any]) -> Outcome:
        trial, params = work["trial"]["id"], work["trial"]["params"]
        reports = params.get("reports", 0)
        for step in range(reports):
            await asyncio.sleep(params["seconds"] / reports)
            report = (Report(step, {"metric": 0.5}),)
            await self.call(
                "Report",
                Reports(slot=self.name, trial=trial, attempt=work["number"], reports=report),
            )
        if not reports:
            await asyncio.sleep(params["seconds"])
        value = random.random()
        return Outcome(trial, "finished", value, "metric", {"metric": value}, seconds=1.0)


def main() -> None:
    """Print the table of docs/internals/many_slots.md."""
    parser = argparse.ArgumentParser()
    parser.add_argument("slots", type=int, nargs="*", default=[10, 100, 1_000])
    parser.add_argument("--speak-for", type=int)
    given = parser.parse_args()
    if given.speak_for:
        asyncio.run(speak_for(given.speak_for, *json.load(sys.stdin)))
        return
    columns: list[dict[str, str]] = []
    for slots in given.slots:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            found: dict[str, str] = {}
            for measure in (waiting_and_fast, steady, barrier):
                found |= measure(Path(folder), slots)
                print(slots, found, file=sys.stderr, flush=True)
            columns.append(found)
    print("| slots | " + " | ".join(f"{slots:,}" for slots in given.slots) + " |")
    print("| --- |" + " ---: |" * len(columns))
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(column[name] for column in columns) + " |")


if __name__ == "__main__":
    main()
