"""Kills of workers at random moments, from which each training goes on: `make bench-training`."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import experiment
from tests.benchmarks.sessions import session
from tests.experiment.waiting import wait_until

_STEPS = 40
_STEP = 0.05  # seconds
_LATEST = 1.5  # seconds from the first step of both workers to the kill


class Killed(NamedTuple):
    """A search of which a worker was killed.

    Attributes:
        right: Whether it has finished with the right value, in a second attempt.
        seconds: Seconds from the kill to the first step of the second attempt.
    """

    right: bool
    seconds: float


def train(folder: str) -> float:
    """Add up the numbers of the steps over all workers, each step saved by a checkpoint.

    Each worker notes its process id and the time of its first step; the last step waits for the
    kill.
    """
    saved = Path(experiment.checkpoint_dir(), "state")
    first, total = 0, 0.0
    if saved.exists():
        number, value = saved.read_text().split()
        first, total = int(number), float(value)
    for step in range(first, _STEPS):
        (total,) = map(float, experiment.all_reduce([total + step]))
        part = saved.with_name(f"state-{step}.part")
        part.write_text(f"{step + 1} {total}")
        part.rename(saved)
        if step == first:
            Path(folder, f"{experiment.rank()} {os.getpid()} {time.time()}").touch()
        time.sleep(_STEP)
        while step == _STEPS - 2 and not Path(folder, "killed").exists():
            time.sleep(_STEP)
    return total


def kill_a_worker(spark: object, rng: random.Random) -> Killed:
    """Run a training on two slots, and kill one of its workers at a random moment."""
    with tempfile.TemporaryDirectory() as folder:
        marks = Path(folder, "marks")
        marks.mkdir()
        handle = experiment.submit(
            experiment.launch,
            spark,
            train,
            [{"folder": str(marks)}],
            workers_per_trial=2,
            retry_on=("lost executor", "machine", "exit"),
            logdir=folder,
            preload=(),
            verbose=0,
        )

        def started() -> list[list[str]]:
            return [path.name.split() for path in marks.iterdir() if path.name != "killed"]

        wait_until(lambda: len(started()) == 2)
        time.sleep(rng.uniform(0.0, _LATEST))
        os.kill(int(rng.choice(started())[1]), signal.SIGKILL)
        killed = time.time()
        Path(marks, "killed").touch()
        (trial,) = handle.result().trials
        right = (trial.value, trial.attempt) == (float(sum(range(_STEPS))), 2)
        resumed = max(float(when) for rank, _, when in started() if rank == "0")
        return Killed(right, resumed - killed)


def kills(searches: int, seed: int = 0) -> list[Killed]:
    """Kill a worker of each of several searches, one after the other."""
    spark, rng = session(2), random.Random(seed)
    try:
        return [kill_a_worker(spark, rng) for _ in range(searches)]
    finally:
        spark.stop()
