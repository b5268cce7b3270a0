"""Drivers that are killed at any point and resumed: what is lost by that, and what runs twice.

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
_AT_ONCE = 2  # searches
_GONE = 60.0  # seconds that a dead driver's processes may take to end


class DriverOptions(msgspec.Struct, frozen=True):
    """What a driver is to run.

    Attributes:
        kind: Which search, of `SEARCHES`.
        logdir: Of the runs.
        resume: The run to go on with; '' for a new one.
        master: Spark's.
        isolation: As for a search.
        settings: Spark's.
    """

    kind: str
    logdir: str
    resume: str = ""
    master: str = "local[2]"
    isolation: str = "process"
    settings: dict[str, str] = {}


def train(x: float, y: int) -> float:
    """A trial that takes a moment; some fail."""
    time.sleep(0.02)
    if y == 4:
        raise ValueError("4 is no good")
    return x * x + y / 10


def evaluate(trial: Trial) -> Outcome:
    """What `train` comes to, without Spark."""
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
"""Name to the public call, its arguments, and the same searcher."""


def uncut(kind: str) -> dict[int, tuple[dict[str, Any], str, float | None]]:
    """Return what a search comes to whose driver nobody kills: parameters, status and value."""
    trials: dict[int, Trial] = {}

    def remember(trial: Trial) -> Outcome:
        trials[trial.id] = trial
        return evaluate(trial)

    outcomes = drive(SEARCHES[kind][2](), remember)
    return {o.trial: (dict(trials[o.trial].params), o.status, o.value) for o in outcomes}


@dataclass(frozen=True)
class Crashes:
    """What kills of the driver have done.

    Attributes:
        kills: How many drivers were killed.
        lost: Trials whose end was in the journal at a kill and is not what it was at the end.
        doubled: Trials that have ended twice, or ran again after they had ended.
        where: How many kills hit the start of a driver, its trials, and its end.
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
    settings: dict[str, str] | None = None,
) -> Crashes:
    """Run searches whose drivers are killed and resumed again and again; compare with uncut ones.

    Args:
        folder: Of the runs.
        kills: How many drivers are killed in all.
        seed: Of the points at which they are.
        master: Spark's.
        settings: Spark's.

    Raises:
        AssertionError: A search came to another end than the uncut one, or processes of a killed
            driver go on.
    """
    rng, drawn, searches = random.Random(seed), 0, list[_CrashingSearch]()
    while drawn < kills:  # not all in one search: who is always killed at the start has no end
        number, kind = len(searches), list(SEARCHES)[len(searches) % len(SEARCHES)]
        some = min(rng.randint(3, 5), kills - drawn)
        drawn += some
        isolation = "none" if number % 3 == 2 else "process"
        options = DriverOptions(
            kind, str(folder / f"{number}"), "", master, isolation, settings or {}
        )
        searches.append(_CrashingSearch(options, some, random.Random(rng.random())))
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # a driver that starts waits more than it works
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
                    driver.kill()  # and what it left is not waited for
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
        """Return what is true from the moment on at which a driver is to be killed."""
        if where == "start":  # of Python, the JVM, the session; while the journal is read
            until = time.monotonic() + self._rng.uniform(0.0, 6.0)
            return lambda: time.monotonic() > until
        if where == "trials":
            enough = records(find_run(self._logdir)) + self._rng.randint(1, left)
            return lambda: records(find_run(self._logdir)) >= enough
        delay, began = self._rng.uniform(0.0, 0.3), list[float]()

        def ends_now() -> bool:  # while it writes what it writes after the last trial
            if not began and len(ends(find_run(self._logdir))) == self._total:
                began.append(time.monotonic())
            return bool(began) and time.monotonic() > began[0] + delay

        return ends_now


def compare(run: Path, kind: str, known: Mapping[int, tuple[int, Any]]) -> tuple[int, int]:
    """Compare the end of a search with what was known at the kills, and with an uncut search.

    Args:
        run: Its folder, or a copy.
        kind: Of the search.
        known: As `ends` told it.

    Returns:
        How many ends were lost, and how many trials have ended twice or ran after their end.
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
    """Return the folder of the one run that can be gone on with; None before there is one."""
    runs = [manifest.parent for manifest in logdir.glob("*/manifest.json")]
    assert len(runs) <= 1, "a run was begun anew"
    return runs[0] if runs else None


def records(run: Path | None) -> int:
    """Return how many records a journal has."""
    return 0 if run is None else sum(1 for _ in read_journal(run / "journal"))


def ends(run: Path | None) -> dict[int, tuple[int, Any]]:
    """Return the trials whose end is in the journal, each with its attempt and its outcome."""
    found = [] if run is None else list(filter(is_end, read_journal(run / "journal")))
    return {record["outcome"]["trial"]: (record["attempt"], record["outcome"]) for record in found}


def is_end(record: Mapping[str, Any]) -> bool:
    """Does a record say that a trial came to an end?"""
    return record["event"] == "finished" and record["outcome"]["status"] != "cancelled"


class Driver:
    """A real driver in a process of its own.

    A context manager, which ends it and waits until all that it started has ended.

    Args:
        options: What it is to run.
        folder: Gets what it prints, and what it leaves in its folder for temporary files.
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
        """Wait for a condition; return False where it ended by itself before that."""
        while not condition():
            if self.process.poll() is not None:
                return False
            time.sleep(0.005)
        return self.process.poll() is None

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait() == -signal.SIGKILL

    def left(self) -> list[str]:
        """Return its JVM, executors, workers, zygotes and trials that run."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.AccessDenied, psutil.NoSuchProcess):
                ours = process.environ().get(MARK) == self._mark
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(process.cmdline()))
        return found

    def said(self) -> str:
        """Return the end of what it printed."""
        return self._log.read_text(errors="replace")[-4_000:]


def main() -> None:
    """Be a driver."""
    from pyspark.sql import SparkSession

    options = msgspec.json.decode(sys.argv[1], type=DriverOptions)
    builder = SparkSession.builder.master(options.master).config("spark.ui.enabled", "false")
    # Half of the time that the start of a JVM takes is that of its second compiler.
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
        preload=(),
        verbose=0,
        **arguments,
    )
    spark.stop()


if __name__ == "__main__":
    main()
