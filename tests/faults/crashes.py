"""Drivers that are killed at any point and resumed: lost and repeated trials.

`python -m tests.faults.crashes SEARCH` is such a driver; SEARCH is a `DriverOptions` as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

import experiment
from experiment.run_files.journal import read_journal
from search.algorithms import Evolution
from search.direction import Direction
from search.evolution.population_based import PopulationTraining
from search.grid import GridSearch
from search.random_search import RandomSearch
from search.searcher import Problem, Searcher, drive
from search.space.spaces import Space
from search.trial import Outcome, Trial
from tests.experiment.waiting import wait_until
from tests.search.fakes import started

MARK = "EXPERIMENT_TEST_DRIVER"
BOUNDS = {"x": [-1.0, 1.0], "y": [1, 9]}
GRID = {"x": [-0.5, -0.25, 0.25, 0.5], "y": [1, 2, 4, 6, 9]}
SEED = 11
_AT_ONCE = 2  # concurrent searches
_GONE = 60.0  # maximum seconds until a killed driver's processes have ended


class DriverOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a driver process.

    Attributes:
        kind: The name of the search in `SEARCHES`.
        logdir: The folder of the runs.
        resume: The run to resume; '' for a new one.
        master: Spark's master.
        isolation: The isolation of the search.
        workers: Number of slots of each trial.
        settings: Spark's settings.
    """

    kind: str
    logdir: str
    resume: str = ""
    master: str = "local[2]"
    isolation: str = "process"
    workers: int = 1
    settings: dict[str, str] = {}


def train(x: float, y: int) -> float:
    """A short trial; some fail."""
    time.sleep(0.02)
    if y == 4:
        raise ValueError("4 is no good")
    return x * x + y / 10


def evaluate(trial: Trial) -> Outcome:
    """The outcome of `train`, without Spark."""
    x, y = trial.params["x"], trial.params["y"]
    if y == 4:
        return Outcome.failed(trial.id, "user error", "ValueError: 4 is no good")
    return Outcome(trial.id, "finished", x * x + y / 10)


def _space() -> Space:
    return Space.of_bounds(BOUNDS)


_SIZE: dict[str, Any] = {"popsize": 5, "generations": 3}

SEARCHES: dict[str, tuple[Callable[..., Any], dict[str, Any], Callable[[], Searcher]]] = {
    "grid": (experiment.launch, {"args_dict": GRID}, lambda: GridSearch(Space.of_grid(GRID))),
    "random": (
        experiment.random_search,
        {"bounds": BOUNDS, "samples": 20},
        lambda: RandomSearch(Problem(space=_space(), samples=20, rng=random.Random(SEED))),
    ),
    "evolution": (
        experiment.evolutionary_search,
        {"bounds": BOUNDS, "generational": True, **_SIZE},
        lambda: started(
            Evolution, _space(), SEED, generational=True, direction=Direction.MAX, **_SIZE
        ),
    ),
    "population": (
        experiment.population_based_training,
        {"bounds": BOUNDS, **_SIZE},
        lambda: started(PopulationTraining, _space(), SEED, direction=Direction.MAX, **_SIZE),
    ),
}
"""The public call by name, with its arguments and the same searcher."""


def uncut(kind: str) -> dict[int, tuple[dict[str, Any], str, float | None]]:
    """Return the trials of a search whose driver is not killed: parameters, status and value."""
    trials: dict[int, Trial] = {}

    def remember(trial: Trial) -> Outcome:
        trials[trial.id] = trial
        return evaluate(trial)

    outcomes = drive(SEARCHES[kind][2](), remember)
    return {o.trial: (dict(trials[o.trial].params), o.status, o.value) for o in outcomes}


@dataclass(frozen=True)
class Crashes:
    """The effects of killing drivers.

    Attributes:
        kills: Number of killed drivers.
        lost: Number of ended trials in the journal at a kill that differ at the end.
        doubled: Number of trials that ended twice, or ran again after their end.
        where: Number of kills at the start of a driver, during its trials, and at its end.
    """

    kills: int
    lost: int
    doubled: int
    where: Mapping[str, int]


def crash_and_resume(
    folder: Path,
    kills: int,
    *,
    seed: int = 0,
    master: str = "local[2]",
    workers: int = 1,
    settings: dict[str, str] | None = None,
) -> Crashes:
    """Run searches with killed and resumed drivers; compare them with uninterrupted ones.

    Args:
        folder: The folder of the runs.
        kills: Number of drivers to kill.
        seed: The seed of the times to kill them.
        master: Spark's master.
        workers: Number of slots of each trial.
        settings: Spark's settings.

    Raises:
        AssertionError: A search ended differently from the uninterrupted one, or processes of a
            killed driver still run.
    """
    rng, drawn, searches = random.Random(seed), 0, list[_CrashingSearch]()
    while drawn < kills:  # not all in one search, which might never end
        number, kind = len(searches), list(SEARCHES)[len(searches) % len(SEARCHES)]
        some = min(rng.randint(3, 5), kills - drawn)
        drawn += some
        isolation = "none" if number % 3 == 2 and workers == 1 else "process"
        options = DriverOptions(
            kind=kind,
            logdir=str(folder / f"{number}"),
            master=master,
            isolation=isolation,
            workers=workers,
            settings=settings or {},
        )
        searches.append(_CrashingSearch(options, some, random.Random(rng.random())))
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # a starting driver mostly waits
        list(pool.map(_CrashingSearch.run, searches))
    return Crashes(
        sum(search.where.total() for search in searches),
        sum(search.lost for search in searches),
        sum(search.doubled for search in searches),
        sum((search.where for search in searches), Counter()),
    )


class _CrashingSearch:
    def __init__(self, options: DriverOptions, kills: int, rng: random.Random) -> None:
        self._options, self._kills, self._rng = options, kills, rng
        self._plan = [*(["trials", "start", "trials"] * kills)[: kills - 2], "end", "start"]
        self._logdir, self._total = Path(options.logdir), len(uncut(options.kind))
        self._known: dict[int, tuple[int, Any]] = {}
        self.where: Counter[str] = Counter()
        self.lost = self.doubled = 0

    def run(self) -> None:
        with contextlib.ExitStack() as drivers:
            while (kills := self.where.total()) < self._kills:
                left = self._total - len(ends(find_run(self._logdir)))
                where = "start" if not left else self._plan[kills]
                driver = drivers.enter_context(self._driver())
                if driver.lives_until(self._point(where, left)):
                    self._known = ends(find_run(self._logdir)) | self._known
                    driver.kill()  # its remaining processes are not waited for
                    self.where[where] += 1
                else:
                    assert driver.process.returncode == 0, driver.said()
            driver = drivers.enter_context(self._driver())
            assert driver.process.wait(timeout=300) == 0, driver.said()
        run = find_run(self._logdir)
        assert run is not None
        self.lost, self.doubled = compare(run, self._options.kind, self._known)

    def _driver(self) -> Driver:
        run = find_run(self._logdir)
        options = msgspec.structs.replace(self._options, resume=str(run or ""))
        return Driver(options, self._logdir)

    def _point(self, where: str, left: int) -> Callable[[], bool]:
        """Return the condition on which to kill a driver."""
        if where == "start":  # of Python, the JVM, the session; while the journal is read
            until = time.monotonic() + self._rng.uniform(0.0, 6.0)
            return lambda: time.monotonic() > until
        if where == "trials":
            enough = records(find_run(self._logdir)) + self._rng.randint(1, left)
            return lambda: records(find_run(self._logdir)) >= enough
        delay, began = self._rng.uniform(0.0, 0.3), list[float]()

        def ends_now() -> bool:  # while it writes its files after the last trial
            if not began and len(ends(find_run(self._logdir))) == self._total:
                began.append(time.monotonic())
            return bool(began) and time.monotonic() > began[0] + delay

        return ends_now


def compare(run: Path, kind: str, known: Mapping[int, tuple[int, Any]]) -> tuple[int, int]:
    """Compare a search's end with the journals at the kills, and with an uninterrupted search.

    Args:
        run: The run folder, or a copy.
        kind: The name of the search.
        known: The ended trials at the kills, as of `ends`.

    Returns:
        The number of lost ends, and of trials that ended twice or ran after their end.
    """
    final, result, doubled = ends(run), experiment.load(run), 0
    ended: set[int] = set()
    for record in read_journal(run / "journal"):
        if record["event"] == "planned":
            doubled += record["trial"]["id"] in ended
        elif is_end(record):
            doubled += record["outcome"]["trial"] in ended
            ended.add(record["outcome"]["trial"])
    assert {t.id: (t.params, t.status, t.value) for t in result.trials} == uncut(kind)
    assert result.problem is None
    assert result.best is not None
    assert result.best.value == max(v for _, _, v in uncut(kind).values() if v is not None)
    return sum(final.get(trial) != end for trial, end in known.items()), doubled


def find_run(logdir: Path) -> Path | None:
    """Return the folder of the only run that can be resumed; None before there is one."""
    runs = [manifest.parent for manifest in logdir.glob("*/manifest.json")]
    assert len(runs) <= 1, "a run was begun anew"
    return runs[0] if runs else None


def records(run: Path | None) -> int:
    """Return how many records a journal has."""
    return 0 if run is None else sum(1 for _ in read_journal(run / "journal"))


def ends(run: Path | None) -> dict[int, tuple[int, Any]]:
    """Return the ended trials of the journal, each with its attempt and its outcome."""
    found = [] if run is None else list(filter(is_end, read_journal(run / "journal")))
    return {record["outcome"]["trial"]: (record["attempt"], record["outcome"]) for record in found}


def is_end(record: Mapping[str, Any]) -> bool:
    """Return whether a record is the end of a trial."""
    return record["event"] == "finished" and record["outcome"]["status"] != "cancelled"


class Driver:
    """A real driver in a process of its own.

    A context manager, which ends it and waits for all processes that it started.

    Args:
        options: The driver's options.
        folder: The folder for its output and its temporary files.
    """

    def __init__(self, options: DriverOptions, folder: Path) -> None:
        self._mark = uuid.uuid4().hex
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / f"driver-{self._mark}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, json.dumps(msgspec.to_builtins(options))],
                env=os.environ | {MARK: self._mark, "TMPDIR": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        wait_until(lambda: not self.left(), _GONE)

    def lives_until(self, condition: Callable[[], bool]) -> bool:
        """Wait for a condition; return False if the driver ended first."""
        while not condition():
            if self.process.poll() is not None:
                return False
            time.sleep(0.005)
        return self.process.poll() is None

    def kill(self) -> None:
        """Kill the driver with SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait() == -signal.SIGKILL

    def left(self) -> list[str]:
        """Return its running JVM, executors, workers, zygotes and trials."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.AccessDenied, psutil.NoSuchProcess):
                ours = process.environ().get(MARK) == self._mark
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(process.cmdline()))
        return found

    def said(self) -> str:
        """Return the end of its output."""
        return self._log.read_text(errors="replace")[-4_000:]


def main() -> None:
    """Run a driver."""
    from pyspark.sql import SparkSession

    options = msgspec.json.decode(sys.argv[1], type=DriverOptions)
    builder = SparkSession.builder.master(options.master).config("spark.ui.enabled", "false")
    # The second compiler takes half of the start of a JVM.
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    for name, value in options.settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    call, arguments, _ = SEARCHES[options.kind]
    function = sys.modules[__name__].train
    call(
        spark,
        function,
        seed=SEED,
        logdir=options.logdir,
        resume=options.resume or None,
        isolation=options.isolation,
        workers_per_trial=options.workers,
        preload=(),
        verbose=0,
        **arguments,
    )
    spark.stop()


if __name__ == "__main__":
    main()
