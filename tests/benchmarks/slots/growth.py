"""How the driver's cost of a trial grows with trials, slots, hyperparameters and population.

Part of `make bench-slots`. The messages of slots go to the exchange directly, without a network: so
processor seconds are those of messages, coordinator, searcher, journal and TensorBoard's view.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import multiprocessing
import resource
import secrets
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import psutil

from experiment.display.board import Board
from experiment.run_files.journal import Journal
from experiment.setup.specification import SearchSpec
from search.algorithms import Evolution
from search.direction import Direction
from search.grid import PointSearch
from search.space.spaces import Space
from search.trial import Outcome, Trial
from spark_jobs.channel.exchange import Call, Exchange
from spark_jobs.messages import Attempt, Hello, Next, Report, Reports, decode_answer, encode
from tests.experiment.runs import begun, make_coordinator, make_manifest, make_run_folder, make_spec
from tests.search.fakes import started

T = TypeVar("T")
_SLOTS = 64
_TRIALS = 3_000
_PATIENCE = 3_600.0  # seconds


class Run:
    """A search whose slots are driven by calls.

    Args:
        folder: A folder for the run.
        search: The search.
        slots: Number of slots.
    """

    def __init__(self, folder: Path, search: SearchSpec, slots: int) -> None:
        paths = make_run_folder(folder, "growth")
        self._ending = contextlib.ExitStack()
        journal = self._ending.enter_context(Journal(paths.journal))
        manifest = make_manifest(search, name="growth", optimization_key="metric")
        board = Board(paths, search, Direction.MIN, manifest)
        self._ending.callback(board.abandon)
        self._coordinator = make_coordinator(
            search.searcher,
            paths,
            journal,
            direction=Direction.MIN,
            observers=[board],
            slots=slots,
        )
        self._coordinator.trials.begin(begun(trials=search.searcher.total))
        self._exchange = Exchange(self._coordinator)
        self._keys = {f"1.{number}.0": secrets.token_hex(16) for number in range(slots)}

    def close(self) -> None:
        """Close the files."""
        self._ending.close()

    async def run(self, at: Callable[[int], None]) -> None:
        """Run all trials; call `at` with the number of ended trials after each round of slots."""
        for number, slot in enumerate(self._keys):
            self._call("Hello", slot, Hello(slot=slot, host=f"host{number // 16}"))
        waiting = {slot: self._call("Next", slot, Next(slot)) for slot in self._keys}
        while not self._coordinator.trials.done:
            # Sleeping lets slots that wait get what the others' outcomes have freed.
            await asyncio.sleep(0)
            for slot, answer in waiting.items():
                if answer.done() and isinstance(work := decode_answer(answer.result()), Attempt):
                    waiting[slot] = self._end(slot, work)
            at(len(self._coordinator.trials.results))
        for answer in waiting.values():
            answer.cancel()

    def _end(self, slot: str, work: Attempt) -> asyncio.Future[bytes]:
        """Report once, and hand in an outcome."""
        trial = work.trial.id
        value = _hard(work.trial)
        report = (Report(0, {"metric": value}),)
        message = Reports(slot=slot, trial=trial, attempt=work.number, reports=report)
        self._call("Report", slot, message)
        outcome = Outcome(trial, "finished", value, "metric", {"metric": value}, seconds=1.0)
        return self._call("Next", slot, Next(slot, work.number, outcome))

    def _call(self, call: Call, slot: str, message: Any) -> asyncio.Future[bytes]:
        reply = self._exchange.begin(call, encode(message), self._keys[slot], _PATIENCE)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if isinstance(reply, tuple):
            self._take(slot, answer, reply)
        else:
            reply.add_done_callback(
                lambda done: None if done.cancelled() else self._take(slot, answer, done.result())
            )
        return answer

    def _take(self, slot: str, answer: asyncio.Future[bytes], reply: tuple[bytes, str]) -> None:
        data, key = reply
        self._keys[slot] = key or self._keys[slot]
        if not answer.done():
            answer.set_result(data)


def _hard(trial: Trial) -> float:
    """Return a value that differs between trials and needs no time."""
    return math.sin(trial.id) ** 2


class Cost:
    """Processor and memory between two numbers of trials."""

    def __init__(self) -> None:
        self._trials, self._cpu, self._memory = 0, _cpu(), _memory()
        self.found: list[tuple[float, float]] = []

    def take(self, trials: int) -> None:
        """Keep the cost of the trials since the last call: milliseconds and kilobytes of each."""
        cpu, memory, count = _cpu(), _memory(), max(trials - self._trials, 1)
        self.found.append(((cpu - self._cpu) / count * 1e3, (memory - self._memory) / count / 1e3))
        self._trials, self._cpu, self._memory = trials, cpu, memory


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def _cost(search: SearchSpec, slots: int, marks: list[int]) -> list[tuple[float, float]]:
    """Return the cost per trial up to each number of ended trials, from the number before it."""
    left, cost = list(marks), Cost()

    def at(ended: int) -> None:
        if left and ended >= left[0]:
            left.pop(0)
            cost.take(ended)

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        run = Run(Path(folder), search, slots)
        cost = Cost()
        with contextlib.closing(run):
            asyncio.run(run.run(at))
    return cost.found


def points(count: int, parameters: int = 3) -> SearchSpec:
    """Return a search of a list of configurations."""
    listed = _Points(count, parameters)
    return make_spec("launch", PointSearch(listed), None, [], {"type": "points"})  # type: ignore[arg-type]


class _Points:
    """Configurations that are made when they are read, so that they take no memory."""

    def __init__(self, count: int, parameters: int) -> None:
        self._count, self._names = count, [f"parameter{number}" for number in range(parameters)]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> dict[str, float]:
        return dict.fromkeys(self._names, number / 7)


def evolution(popsize: int, generations: int) -> SearchSpec:
    """Return a differential evolution with a barrier, in which no trial vector is screened."""
    space = Space.of_bounds({"x": [0.0, 1.0], "y": [0.0, 1.0]})
    size = {"popsize": popsize, "generations": generations}
    searcher = started(Evolution, space, 0, generational=True, direction=Direction.MIN, **size)
    algorithm = {"type": "differential evolution", "variant": "rand1bin", **size}
    return make_spec("evolutionary_search", searcher, space, algorithm=algorithm)


def in_a_new_process(measure: Callable[..., T], *arguments: Any) -> T:
    """Return the result of a measure in a process without memory that an earlier one has freed."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, *arguments).result()


def of_trials(marks: list[int]) -> list[tuple[float, float]]:
    """Measure a long search, up to each number of trials from the number before it."""
    return _cost(points(marks[-1]), _SLOTS, marks)


def of_slots(slots: int) -> tuple[float, float]:
    """Measure a search with many slots."""
    trials = max(_TRIALS, 3 * slots)
    (found,) = _cost(points(trials), slots, [trials])
    return found


def of_parameters(parameters: int) -> tuple[float, float]:
    """Measure a search with many hyperparameters."""
    (found,) = _cost(points(_TRIALS, parameters), _SLOTS, [_TRIALS])
    return found


def of_population(popsize: int) -> tuple[float, float]:
    """Measure a population, each member of which has a slot."""
    trials = max(_TRIALS // popsize, 2) * popsize
    (found,) = _cost(evolution(popsize, trials // popsize - 1), popsize, [trials])
    return found


def curves() -> Iterator[tuple[str, int, float, float]]:
    """Yield the curves: what grows, its size, milliseconds of a processor and kB per trial."""
    marks = [1_000, 3_000, 10_000, 30_000, 100_000]
    for trials, found in zip(marks, in_a_new_process(of_trials, marks), strict=True):
        yield "trials", trials, *found
    for slots in (10, 100, 1_000, 10_000):
        yield "slots", slots, *in_a_new_process(of_slots, slots)
    for parameters in (2, 20, 60, 200):
        yield "hyperparameters", parameters, *in_a_new_process(of_parameters, parameters)
    for popsize in (10, 100, 1_000, 10_000):
        yield "members of the population", popsize, *in_a_new_process(of_population, popsize)


def main() -> None:
    """Print the second table of docs/internals/many_slots.md."""
    print("| what grows | number | processor per trial | memory per trial |")
    print("| --- | ---: | ---: | ---: |")
    for name, size, cpu, memory in curves():
        print(f"| {name} | {size:,} | {cpu:.2f} ms | {memory:.2f} kB |", flush=True)
