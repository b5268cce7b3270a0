"""joblib with joblib-spark's backend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from joblib import Parallel, delayed, parallel_config
from joblibspark import register_spark

from tests.benchmarks.peers.programs.spark import session
from tests.benchmarks.peers.trials import Configuration, Train


class Program:
    """Calls of joblib in a Spark session."""

    def __init__(self, slots: int, folder: Path) -> None:
        del folder
        self._spark, self._slots = session(slots), slots
        register_spark()

    def search(
        self, train: Train, configurations: Sequence[Configuration], limit: float | None = None
    ) -> Sequence[object]:
        with parallel_config("spark", n_jobs=self._slots):
            return Parallel(timeout=limit)(delayed(train)(**values) for values in configurations)

    def close(self) -> None:
        self._spark.stop()
