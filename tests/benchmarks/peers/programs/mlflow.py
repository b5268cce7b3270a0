"""MLflow's Spark study: Optuna's trials as Spark tasks, with MLflow as storage."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence
from pathlib import Path

import mlflow
import optuna
from mlflow.optuna.storage import MlflowStorage
from mlflow.pyspark.optuna.study import MlflowSparkStudy

from tests.benchmarks.peers.programs.spark import session
from tests.benchmarks.peers.trials import Configuration, Train, taking_turns


class Program:
    """A study per search, in an experiment on SQLite."""

    def __init__(self, slots: int, folder: Path) -> None:
        self._spark, self._slots, self._folder = session(slots), slots, folder
        mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
        self._experiment = mlflow.create_experiment("peers", (folder / "mlflow").as_uri())

    def search(
        self, train: Train, configurations: Sequence[Configuration], limit: float | None = None
    ) -> Sequence[object]:
        run = taking_turns(self._folder, train, configurations)
        study = MlflowSparkStudy(
            uuid.uuid4().hex,
            MlflowStorage(self._experiment),
            sampler=optuna.samplers.RandomSampler(1),
        )
        study.optimize(
            functools.partial(objective, run),
            len(configurations),
            timeout=limit,
            n_jobs=self._slots,
            catch=(Exception,),
        )
        return [None] * study.completed_trials_count

    def close(self) -> None:
        self._spark.stop()


def objective(run: functools.partial[float], trial: optuna.Trial) -> float:
    """Suggest a value, as a search does, and run the next configuration."""
    return run(x=trial.suggest_float("x", 0, 1))
