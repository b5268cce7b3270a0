"""Executors that are prepared for a search before it starts."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from experiment.driver.jobs.spark_errors import problem_of_spark
from experiment.setup.function.imports import preload_of
from experiment.setup.preparation import shared_import
from experiment.setup.settings import Settings
from search.errors import ExperimentError, InvalidArgument, shown
from spark_jobs.session import session_of
from spark_jobs.session.session import Session
from spark_jobs.slot.closure import warm_up_function
from spark_jobs.strategies.settings import Strategy, StrategyName
from spark_jobs.threads import in_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_SLOTS = 1_000  # more tasks would only make the job longer


def warm_up(
    spark: SparkSession,
    train: Callable[..., Any] | None = None,
    *,
    preload: Sequence[str] | None = None,
    parallelism: int | None = None,
    gpus_per_trial: int | None = None,
    trials_per_gpu: int = 1,
    strategy: Strategy | StrategyName | None = None,
) -> Future[None]:
    """Prepare executors for a search, in the background: the first search then starts sooner.

        experiment.warm_up(spark, train)
        ...                                      # read the data, say
        experiment.launch(spark, train, {"learning_rate": [0.001, 0.01]})

    A short Spark job starts Python workers, and on each present executor the import that its slots
    share, which executors keep for `spark.experiment.keep_warm` seconds. A search with
    `isolation='process'` uses it if it imports the same: it has the same train function, or the
    same `preload`. If a module has changed since, the search imports again.

    Args:
        spark: A running SparkSession.
        train: The train function of the search. Not needed with `preload`.
        preload: The modules to import, as in the search. Default: those that `train` imports.
        parallelism: Number of slots to prepare. Default: as many as the present executors have.
        gpus_per_trial: As in the search, which may have executors of its own with GPUs.
        trials_per_gpu: As in the search.
        strategy: As in the search, if it is `experiment.Jax()`, which selects the backend of Keras
            before its import; others change no import.

    Returns:
        A future, done when the workers are prepared and the imports have begun. It raises
        `experiment.ExperimentError` if an executor cannot run trials, or none comes in time.

    Raises:
        InvalidArgument: An argument is invalid; raised before any Spark job starts.
    """
    if train is None and preload is None:
        raise InvalidArgument("train", "the train function of the search", "None", "or set preload")
    if train is not None and not callable(train):
        raise InvalidArgument("train", "a function", shown(train))
    settings = Settings(
        preload=preload,
        parallelism=parallelism,
        gpus_per_trial=gpus_per_trial,
        trials_per_gpu=trials_per_gpu,
        strategy=strategy,
    )
    found = preload_of(settings, train)
    session = session_of(spark).asking(gpus_per_trial, trials_per_gpu)
    shared = shared_import(found, session.keep_warm(), settings.strategy)
    function = warm_up_function(session.search_path(), shared)
    return in_thread(lambda: _run(session, function, settings), "experiment-warm-up")


def _run(session: Session, function: Callable[..., Any], settings: Settings) -> None:
    """Run a job that prepares workers, one per slot, and wait for its end."""
    there = settings.parallelism or session.present_slots()
    slots = min(there or session.task_slots(), _MOST_SLOTS)
    limit = settings.startup_timeout
    with session.job(function, slots, f"warm-up-{secrets.token_hex(8)}") as job:
        job.start()
        if not job.wait(limit):
            raise ExperimentError(f"no executor was prepared within {limit:g} s")
        sentence = problem_of_spark(job.error, job.failed_hosts)
    if job.error is not None:
        raise job.error if sentence is None else ExperimentError(sentence)
