"""Hyperopt with SparkTrials and random search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hyperopt import JOB_STATE_DONE, SparkTrials, fmin, hp, rand

from tests.benchmarks.peers.programs.spark import session
from tests.benchmarks.peers.trials import Configuration, Train, taking_turns


class Program:
    """A call of fmin per search, which takes no list: see `taking_turns`."""

    def __init__(self, slots: int, folder: Path) -> None:
        self._spark, self._slots, self._folder = session(slots), slots, folder

    def search(
        self, train: Train, configurations: Sequence[Configuration], limit: float | None = None
    ) -> Sequence[object]:
        trials = SparkTrials(self._slots, timeout=limit, spark_session=self._spark)
        run = taking_turns(self._folder, train, configurations)
        fmin(
            lambda x: run(x=x),
            hp.uniform("x", 0, 1),
            algo=rand.suggest,
            max_evals=len(configurations),
            trials=trials,
            rstate=np.random.default_rng(1),
            show_progressbar=False,
        )
        return [trial["result"] for trial in trials.trials if trial["state"] == JOB_STATE_DONE]

    def close(self) -> None:
        self._spark.stop()
