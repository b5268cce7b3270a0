"""Plain Spark: one job with a task per trial, or one job per trial."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.benchmarks.peers.trials import Configuration, Train


def session(slots: int) -> SparkSession:
    """Return a local session with `slots` task slots."""
    spark = (
        SparkSession.builder.master(f"local[{slots}]")
        .appName("peers")
        .config("spark.ui.enabled", "false")
        .config("spark.authenticate", "true")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.sparkContext.pythonExec = sys.executable
    return spark


class Program:
    """Trials as Spark tasks."""

    def __init__(self, slots: int, folder: Path, *, job_per_trial: bool = False) -> None:
        del folder
        self._spark, self._job_per_trial = session(slots), job_per_trial
        self._threads = ThreadPool(slots)

    def search(
        self, train: Train, configurations: Sequence[Configuration], limit: float | None = None
    ) -> Sequence[object]:
        if self._job_per_trial:
            return self._threads.map(
                lambda values: self._run(train, [values])[0], configurations, chunksize=1
            )
        return self._run(train, configurations)

    def evolve(
        self,
        train: Train,
        bounds: dict[str, tuple[float, float]],
        popsize: int,
        generations: int,
    ) -> None:
        """Evolve with scipy, a Spark job for each generation."""
        from tests.benchmarks.peers.programs.scipy import evolve_by_generation

        def evaluate(function: Train, points: Iterable[Any]) -> list[float]:
            found = [point.tolist() for point in points]
            tasks = self._spark.sparkContext.parallelize(found, len(found))
            return tasks.map(function).collect()

        evolve_by_generation(evaluate, train, bounds, popsize, generations)

    def _run(self, train: Train, configurations: Sequence[Configuration]) -> list[float]:
        tasks = self._spark.sparkContext.parallelize(configurations, len(configurations))
        return tasks.map(lambda values: train(**values)).collect()

    def close(self) -> None:
        self._threads.close()
        self._spark.stop()
