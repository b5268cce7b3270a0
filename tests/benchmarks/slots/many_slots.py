"""The driver's cost of many slots: `make bench-slots`.

The driver's side is real: server with TLS, coordinator, journal on disk, TensorBoard's view of the
search. The slots are not: one process speaks for all of them, and their trials only sleep. Few of
them have connections of their own, many those of relays of sixteen. Times of the processor are the
driver's own; how fast it all goes depends on the slots' process, too, which has the same cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import math
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
import msgspec
import psutil

from experiment.display.board import Board
from experiment.driver.slots.pace import longer_wait
from experiment.run_files.journal import Journal
from experiment.run_files.manifest import write_manifest
from experiment.setup.specification import SearchSpec
from experiment.setup.workers import ALONE, Workers
from search.algorithms import Evolution
from search.direction import Direction
from search.grid import PointSearch
from search.space.spaces import Space
from search.trial import Outcome, Trial
from spark_jobs.channel.credentials import make_certificate
from spark_jobs.channel.exchange import Call
from spark_jobs.channel.grpc_channel import (
    JOINED,
    Address,
    ChannelServer,
    client_options,
    credentials_of,
)
from spark_jobs.channel.joined_calls import Answered, Asking
from spark_jobs.messages import (
    Attempt,
    Heard,
    Hello,
    MemberAddress,
    Next,
    Report,
    Reports,
    Stop,
    Wait,
    decode,
    decode_answer,
    encode,
)
from tests.benchmarks.slots import growth
from tests.benchmarks.slots.growth import in_a_new_process
from tests.experiment.runs import begun, make_coordinator, make_manifest, make_run_folder, make_spec
from tests.search.fakes import started

_RELAYED = 1_000  # slots from which on they are behind relays
_HOSTS = 125  # eight slots on each of a thousand
_IDLE = 15.0  # seconds for which all slots wait, beyond the longest wait of one
_LONG = 10.0  # seconds of a trial that reports once in each
_WINDOW = 20.0  # seconds in which busy slots are measured
_AT_ONCE = 50  # connections opened at a time
_POLL = 0.05
_WORKERS = 8  # slots of a trial on several


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

    def __init__(
        self,
        folder: Path,
        search: SearchSpec,
        slots: int,
        per_relay: int | None = None,
        workers: Workers = ALONE,
    ) -> None:
        self._search, self._slots, self._folder = search, slots, folder
        self._workers = workers
        self._per_relay = per_relay if per_relay is not None else 16 * (slots >= _RELAYED)
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
                workers=self._workers,
                make_pair=make_certificate,
            )
            self.coordinator.trials.begin(begun(trials=manifest.trials))
            self._server = ending.enter_context(
                ChannelServer("127.0.0.1", self.coordinator, slots=self._slots)
            )
            self.memory = [_memory()]
            ending.enter_context(_slots(self._server, self._slots, self._per_relay))
            wait_for(lambda: self.coordinator.trials.status.slots == self._slots)
            self.memory.append(_memory())
            yield self
            board.close("metric", self.coordinator.trials.status)

    def open(self) -> None:
        """Let the slots get trials."""

        def let() -> None:
            self.gate.open = True

        self._server.call(let)

    def end(self) -> None:
        """Let the slots end after their trials."""
        self._server.call(lambda: self.coordinator.trials.fail("measured"))


@contextlib.contextmanager
def _slots(server: ChannelServer, count: int, per_relay: int) -> Iterator[None]:
    """Run a process that simulates slots; it ends when the driver stops them."""
    words = ["-m", "tests.benchmarks.slots.many_slots", "--speak-for", str(count), str(per_relay)]
    process = subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(encode(server.address))
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


def points(count: int, seconds: float, reports: int = 0, staggered: int = 0) -> SearchSpec:
    """Return a search of trials that all take the same time.

    Args:
        count: Number of trials.
        seconds: Seconds of each.
        reports: Number of reports of each.
        staggered: Number of first trials that take a part of this time, each another one.
    """
    parts = [(n + 1) / staggered if n < staggered else 1.0 for n in range(count)]
    listed = [{"seconds": seconds * part, "reports": reports, "n": part} for part in parts]
    return make_spec("launch", Gated(PointSearch(listed)), None, listed, {"type": "points"})  # type: ignore[arg-type]


def generations(popsize: int, count: int) -> SearchSpec:
    """Return a search with a barrier, whose trials take up to two seconds."""
    space = Space.of_bounds({"seconds": [0.0, 2.0], "x": [0.0, 1.0]})
    size = {"popsize": popsize, "generations": count}
    searcher = started(Evolution, space, 0, generational=True, direction=Direction.MIN, **size)
    algorithm = {"type": "differential evolution", "variant": "rand1bin", **size}
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
        idle = _IDLE + longer_wait(slots)
        time.sleep(idle)
        share = (_cpu() - cpu) / idle / slots
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
    """Measure trials of ten seconds, each with one report per second.

    The first trial of each slot is shorter, so that they do not all end at once.
    """
    search = points(6 * slots, _LONG, int(_LONG), staggered=slots)
    with Driver(folder, search, slots).running() as driver:
        trials = driver.coordinator.trials
        driver.open()
        wait_for(lambda: trials.status.ended >= slots)
        cpu, began, ended = _cpu(), time.monotonic(), trials.status.ended
        time.sleep(_WINDOW)
        took, count = time.monotonic() - began, trials.status.ended - ended
        used = (_cpu() - cpu) / took
        driver.end()
    return {
        "trials of 10 s with a report a second: slots busy": f"{count * _LONG / took / slots:.0%}",
        "of a processor for that": f"{used:.1%}",
    }


def over_ideal() -> str:
    """Return how much longer than ideal 10,000 trials of a second take on 64 slots."""
    trials, slots, ideal = 10_000, 64, 10_000 / 64
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        driver = Driver(Path(folder), points(trials, 1.0), slots)
        with driver.running():
            began = time.monotonic()
            driver.open()
            wait_for(lambda: driver.coordinator.trials.done)
            took = time.monotonic() - began
    return f"{took / ideal - 1:.1%}"


def barrier(folder: Path, slots: int) -> dict[str, str]:
    """Measure generations of one trial per slot: all slots but the last one wait."""
    with Driver(folder, generations(max(4, slots), 2), slots).running() as driver:
        trials = driver.coordinator.trials.status.total
        cpu = _cpu()
        driver.open()
        wait_for(lambda: driver.coordinator.trials.done)
        used = (_cpu() - cpu) / trials
    return {"processor per trial, slots waiting for generations": f"{used * 1e3:.2f} ms"}


def on_several_slots(folder: Path, slots: int) -> dict[str, str]:
    """Measure trials of no length on eight slots each, against as many on one slot."""
    if slots < _WORKERS:
        return {}
    trials = max(250, slots // 2)
    used = []
    for workers in (Workers(_WORKERS, _WORKERS), ALONE):
        driver = Driver(folder, points(trials, 0.0), slots, workers=workers)
        with driver.running():
            cpu = _cpu()
            driver.open()
            wait_for(lambda driver=driver: driver.coordinator.trials.done)
            used.append((_cpu() - cpu) / trials)
    together, alone = used
    name = f"processor of a trial on {_WORKERS} slots / of {_WORKERS} trials on one"
    return {name: f"{together / (_WORKERS * alone):.2f}"}


async def speak_for(count: int, per_relay: int, address: Address) -> None:
    """Simulate slots until the driver stops all.

    Args:
        count: Number of slots.
        per_relay: Number of slots of each relay; 0 for slots with connections of their own.
        address: The driver's address.
    """
    turn = asyncio.Semaphore(_AT_ONCE)
    relays = [_Relay(address) for _ in range(0, count, per_relay)] if per_relay else []

    async def be(number: int) -> None:
        way = relays[number // per_relay] if per_relay else _Connection(address)
        slot = _Slot(way, f"1.{number}.0")
        async with turn:
            host = number // per_relay if per_relay else number % _HOSTS
            await slot.call("Hello", Hello(slot=slot.name, host=f"host{host}"))
        with contextlib.suppress(grpc.aio.AioRpcError, ConnectionError):  # the driver has ended
            await slot.run()

    await asyncio.gather(*(be(number) for number in range(count)))


def _channel(address: Address) -> Any:
    # Otherwise all slots would share a connection.
    options = [*client_options(), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(address.target, credentials_of(address), options)


class _Connection:
    """A connection of one slot."""

    def __init__(self, address: Address) -> None:
        self._channel, self._token = _channel(address), address.token

    async def ask(self, call: Call, message: bytes, key: str) -> Answered:
        metadata = (("authorization", f"Bearer {self._token}"), ("attempt-key", key))
        answer = self._channel.unary_unary(f"/experiment.Channel/{call}")(
            message, metadata=metadata, timeout=200, wait_for_ready=True
        )
        data = await answer
        following = dict(await answer.trailing_metadata()).get("attempt-key", "")
        return Answered(number=0, answer=data, key=following)


class _Relay:
    """A relay of several slots."""

    def __init__(self, address: Address) -> None:
        metadata = (("authorization", f"Bearer {address.token}"),)
        stream = _channel(address).stream_stream(f"/experiment.Channel/{JOINED}")
        self._asking = Asking(lambda: stream(metadata=metadata, wait_for_ready=True))

    async def ask(self, call: Call, message: bytes, key: str) -> Answered:
        answered = await self._asking.ask(call, message, key)
        if answered.refusal:
            raise ConnectionError(answered.refusal)
        return answered


async def _sleep_until(due: float) -> None:
    await asyncio.sleep(due - time.monotonic())


class _Slot:
    def __init__(self, way: _Connection | _Relay, name: str) -> None:
        self._way, self._key, self.name = way, secrets.token_hex(16), name
        self._heard = Heard()
        self._reported = -math.inf

    async def call(self, method: Call, message: Any) -> bytes:
        answered = await self._way.ask(method, encode(message), self._key)
        self._key = answered.key or self._key
        return answered.answer

    async def run(self) -> None:
        address = MemberAddress(links="127.0.0.1:20000", server="127.0.0.1:20001")  # never used
        message = Next(self.name, address=address)
        while True:
            match decode_answer(await self.call("Next", message)):
                case Wait(longer):
                    message = Next(self.name, longer=longer, address=address)
                case Attempt() as work:
                    outcome = await self._train(work)
                    message = Next(self.name, work.number, outcome, address=address)
                case Stop():
                    return

    async def _train(self, work: Attempt) -> Outcome:
        trial, params = work.trial.id, work.trial.params
        reports, began = params.get("reports", 0), time.monotonic()
        for step in range(reports):
            due = began + params["seconds"] * (step + 1) / reports
            if due < self._reported + self._heard.pause:
                continue  # a slot keeps it, and sends the last one
            await _sleep_until(due)
            self._reported = time.monotonic()
            report = (Report(step, {"metric": 0.5}),)
            told = Reports(slot=self.name, trial=trial, attempt=work.number, reports=report)
            self._heard = decode(await self.call("Report", told), Heard)
        await _sleep_until(began + params["seconds"])
        if work.rank:
            return Outcome(trial, "cancelled", seconds=1.0, reason="the value of rank 0 counts")
        value = random.random()
        return Outcome(trial, "finished", value, "metric", {"metric": value}, seconds=1.0)


def column(slots: int) -> dict[str, str]:
    """Return all measures of a number of slots."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for measure in (waiting_and_fast, steady, barrier, on_several_slots):
            found |= measure(Path(folder), slots)
            print(slots, found, file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Print the tables of docs/internals/many_slots.md."""
    parser = argparse.ArgumentParser()
    parser.add_argument("slots", type=int, nargs="*", default=[10, 100, 1_000, 10_000])
    parser.add_argument("--speak-for", type=int, nargs=2)
    help_text = "measure 10,000 trials of a second on 64 slots, instead"
    parser.add_argument("--seconds", action="store_true", help=help_text)
    given = parser.parse_args()
    if given.speak_for:
        address = msgspec.json.decode(sys.stdin.buffer.read(), type=Address)
        asyncio.run(speak_for(*given.speak_for, address))
        return
    if given.seconds:
        print(f"10,000 trials of 1 s on 64 slots take {over_ideal()} longer than ideal (bar: 3%)")
        return
    columns = [in_a_new_process(column, slots) for slots in given.slots]
    print("| slots | " + " | ".join(f"{slots:,}" for slots in given.slots) + " |")
    print("| --- |" + " ---: |" * len(columns))
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(column[name] for column in columns) + " |")
    print(flush=True)
    growth.main()


if __name__ == "__main__":
    main()
