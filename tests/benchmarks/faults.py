"""The faults that a search survives, and how soon it continues: `make bench-faults`.

Absolute times mean little on a machine that is shared; they are there for their order of magnitude.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

import experiment
from experiment.display.board import Board
from experiment.run_files.journal import Journal
from experiment.run_files.journal_records import Finished, Planned
from experiment.run_files.manifest import write_manifest
from experiment.setup.resuming import read_past, uncollected
from experiment.setup.specification import SearchSpec
from search.direction import Direction
from search.random_search import RandomSearch
from search.searcher import Problem
from search.space.spaces import Space
from search.trial import Outcome
from spark_jobs.messages import Attempt
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.locations import Location
from tests.experiment.runs import begun, make_coordinator, make_manifest, make_spec
from tests.faults.crashes import crash_and_resume
from tests.faults.faults import FAULTS

_TRIALS = 100_000
_KILLS = 50


def faults_survived() -> tuple[int, list[int]]:
    """Run the tests of each fault; return the number that passed, and the faults not survived."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "survived.json")
        plugin = ["-p", "tests.faults.survived", f"--survived={file}"]
        command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-m", "fault", *plugin]
        subprocess.run(command, check=False, env=os.environ | {"CI": "true"})
        survived = {int(number): passed for number, passed in json.loads(file.read_text()).items()}
    missing = [number for number in FAULTS if not survived.get(number)]
    return len(FAULTS) - len(missing), missing


def _random_search() -> SearchSpec:
    space = Space.of_bounds({"x": [0.0, 1.0], "y": [1, 64]})
    searcher = RandomSearch(Problem(space=space, samples=_TRIALS + 1, rng=random.Random(1)))
    algorithm = {"type": "random", "samples": _TRIALS + 1}
    return make_spec("random_search", searcher, space, algorithm=algorithm)


def seconds_to_resume(folder: Path) -> float:
    """Return the cost of restoring the state of a search with 100,000 trials."""
    paths, search = RunPaths(folder), _random_search()
    with Journal(paths.journal) as journal:
        journal.append(begun(0, _TRIALS + 1))
        while (trial := search.searcher.ask()) is not None and trial.id < _TRIALS:
            attempt = Attempt(trial)
            x = trial.params["x"]
            journal.append(Planned.of(attempt, ("1.0.0",), time.time()))
            outcome = Outcome(trial.id, "finished", x, "loss", {"loss": x}, seconds=1.0)
            journal.append(Finished(attempt.number, outcome, at=time.time()))
            paths.attempt(trial.id).folder.mkdir(parents=True)
    search = _random_search()
    manifest = make_manifest(search, direction="min", optimization_key="loss")
    write_manifest(paths, manifest)
    started = time.perf_counter()
    past = read_past(LocalFiles(), Location("file", "", str(folder)), search)
    with Journal(paths.journal, past.segments + 1) as journal:
        board = Board(paths, search, Direction.MIN, manifest, past.segments + 1)
        coordinator = make_coordinator(
            search.searcher, paths, journal, direction=Direction.MIN, observers=(board,)
        )
        with uncollected():  # as the driver does
            coordinator.trials.begin(
                begun(len(past.records), manifest.trials), past.records, past.left
            )
        seconds = time.perf_counter() - started
        board.close("loss", coordinator.trials.status)
    assert len(coordinator.trials.results) == _TRIALS
    return seconds


def slow(x: int, folder: str) -> float:
    """Record the start and the executor of an attempt; the first one runs long."""
    notes = Path(folder, f"{x}")
    again = notes.exists()
    executor = psutil.Process().parents()
    jvm = next(process.pid for process in executor if process.name() == "java")
    with notes.open("a") as file:
        file.write(f"{time.time()} {jvm}\n")
    time.sleep(0 if again else 600)
    return float(x)


def seconds_until_a_lost_trial_runs_again(spark: Any, folder: Path) -> float:
    """Kill an executor's JVM; return the seconds until its trial is retried."""
    notes = folder / "0"
    handle = experiment.submit(
        experiment.launch,
        spark,
        slow,
        {"x": [0], "folder": [str(folder)]},
        logdir=folder / "runs",
        preload=(),
        verbose=0,
    )
    while not notes.exists() or len(notes.read_text().split()) < 2:
        time.sleep(0.05)
    killed = time.time()
    psutil.Process(int(notes.read_text().split()[1])).kill()
    handle.result()
    return float(notes.read_text().splitlines()[1].split()[0]) - killed


def _session() -> Any:
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(16),
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.experiment.keep_warm": "0",  # so that trials find their executor's JVM above them
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main() -> None:
    """Print the figures as a table."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        rows.append(
            (
                "resuming a journal of 100,000 trials",
                f"{seconds_to_resume(Path(folder)):.1f} s",
                "5 s",
            )
        )
    spark = _session()
    with tempfile.TemporaryDirectory() as folder:
        seconds = seconds_until_a_lost_trial_runs_again(spark, Path(folder))
    spark.stop()
    lost = "time from the loss of an executor to the next attempt of its trial on another executor"
    rows.append((lost, f"{seconds:.1f} s", ""))
    with tempfile.TemporaryDirectory() as folder:
        crashes = crash_and_resume(Path(folder), kills=_KILLS)
    rows.append(
        (
            f"outcomes lost, doubled after {crashes.kills} times `kill -9` of the driver",
            f"{crashes.lost}, {crashes.doubled}",
            "0, 0",
        )
    )
    survived, missing = faults_survived()
    rows.append(
        (
            "faults that a search survives in the tests",
            f"{survived} of {len(FAULTS)}",
            f"{len(FAULTS)}",
        )
    )
    print("| measure | value | bar |\n| --- | --- | --- |")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    if missing:
        print("not shown to be survived:", ", ".join(f"{n} ({FAULTS[n]})" for n in missing))


if __name__ == "__main__":
    main()
