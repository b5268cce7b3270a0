"""The peers: their programs, environments and options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

_SEARCHES_ONLY = frozenset({"evolution"})
# Ray's raylet ignores SIGCHLD, so the processor time of workers that have ended is lost.
_LOST = frozenset({"processor", "processor_ms", "others"})


@dataclasses.dataclass(frozen=True)
class Entry:
    """A row of the report.

    Attributes:
        name: The name of the row.
        program: The module of `programs/`.
        environment: The name of its requirements file; None for the project's own environment.
        options: Keyword arguments of the module's `Program`.
        without: The tasks that it does not run, as it cannot or as another row shows the same.
        unknown: What its runs cannot measure.
        note: What a reader must know of it; may be empty.
    """

    name: str
    program: str
    environment: str | None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    without: frozenset[str] = _SEARCHES_ONLY
    unknown: frozenset[str] = frozenset()
    note: str = ""

    @property
    def ours(self) -> bool:
        """Whether it is this project."""
        return self.environment is None


ENTRIES = (
    Entry(
        "ours",
        "ours",
        None,
        without=frozenset(),
        note="the defaults: a process for each trial; what the train function imports is preloaded",
    ),
    Entry(
        "ours, TensorFlow loaded",
        "ours",
        None,
        {"preload": ["tensorflow", "keras"]},
        without=frozenset({"keras", "memory", "raises", "exits", "hangs"}),
        note="`preload=` names TensorFlow, though the trials need it not",
    ),
    Entry(
        "ours, isolation='none'",
        "ours",
        None,
        {"isolation": "none"},
        without=frozenset(),
        note="all trials of a slot in one process",
    ),
    Entry("process pool", "pool", "spark", note="of Python: the least that processes cost"),
    Entry(
        "Spark, a task per trial",
        "spark",
        "spark",
        without=frozenset(),
        note="its differential evolution is scipy's, with a job for each generation",
    ),
    Entry("Spark, a job per trial", "spark", "spark", {"job_per_trial": True}),
    Entry("joblib-spark", "joblib_spark", "joblibspark"),
    Entry("dask", "dask", "dask", note="`distributed`, a process with one thread per slot"),
    Entry(
        "Optuna, memory",
        "optuna",
        "optuna",
        {"storage": "memory"},
        note="threads of one process, random sampler",
    ),
    Entry(
        "Optuna, journal",
        "optuna",
        "optuna",
        {"storage": "journal"},
        note="a process per slot for each search, random sampler",
    ),
    Entry("Optuna, SQLite", "optuna", "optuna", {"storage": "sqlite"}, note="the same"),
    Entry(
        "Ray Tune",
        "ray",
        "ray",
        {"reuse_actors": False},
        unknown=_LOST,
        note="the default: an actor, which is a process, for each trial; Ray does not wait for "
        "processes that end, so their processor time is unknown",
    ),
    Entry("Ray Tune, actors reused", "ray", "ray", {"reuse_actors": True}, unknown=_LOST),
    Entry("Hyperopt SparkTrials", "hyperopt", "hyperopt", note="random search"),
    Entry("MLflow's Spark study", "mlflow", "mlflow", note="Optuna's random sampler, SQLite"),
    Entry(
        "DEHB",
        "dehb",
        "dehb",
        without=frozenset({"sleeps", "keras", "memory"}),
        note="on dask, at two fidelities that its trials ignore; a trial that dask runs again gets "
        "the next configuration; a call returns while further trials run, which are waited for "
        "where the use of slots is measured",
    ),
    Entry(
        "scipy's differential evolution",
        "scipy",
        "spark",
        without=frozenset({"sleeps", "keras", "memory", "start"}),
        note="`updating='deferred'`, a process pool",
    ),
)
