"""This project."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import experiment
from tests.benchmarks.peers.programs.spark import session
from tests.benchmarks.peers.trials import Configuration, Train


class Program:
    """Searches with journal, TensorBoard's files and progress, as a user would run them."""

    def __init__(self, slots: int, folder: Path, **settings: Any) -> None:
        self._spark = session(slots)
        self._settings = {"logdir": folder / "runs", "parallelism": slots, **settings}

    def search(
        self, train: Train, configurations: Sequence[Configuration], limit: float | None = None
    ) -> Sequence[object]:
        if self._settings.get("isolation") == "none":
            limit = None  # a trial in the slot's own process cannot be ended
        result = experiment.launch(
            self._spark, train, configurations, timeout=limit, **self._settings
        )
        return [trial.value for trial in result.trials if trial.status == "finished"]

    def evolve(
        self,
        train: Train,
        bounds: dict[str, tuple[float, float]],
        popsize: int,
        generations: int,
    ) -> None:
        experiment.evolutionary_search(
            self._spark,
            train,
            bounds,
            "min",
            popsize=popsize,
            generations=generations,
            seed=1,
            **self._settings,
        )

    def close(self) -> None:
        self._spark.stop()
