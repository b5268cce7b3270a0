"""Executors that are prepared for a search before it starts."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, Any

from experiment.driver.spark_errors import problem_of_spark
from experiment.setup.imports import Preload, preload_of
from experiment.setup.preparation import shared_import
from experiment.setup.settings import Settings
from search.errors import ExperimentError, InvalidArgument, shown
from spark_jobs.session import session_of
from spark_jobs.session.slot_job import SlotJob
from spark_jobs.slot.closure import warm_up_function

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def warm_up(
    spark: SparkSession,
    train: Callable[..., Any] | None = None,
    *,
    preload: Sequence[str] | None = None,
    parallelism: int | None = None,
    gpus_per_trial: int | None = None,
    trials_per_gpu: int = 1,
) -> Future[None]:
    """Prepare executors for a search, in the background: the first search then starts sooner.

        experiment.warm_up(spark, train)
        ...                                      # read the data, say
        experiment.launch(spark, train, {"learning_rate": [0.001, 0.01]})

    A short Spark job starts Python workers, and on each executor the import that its slots share.
    A search uses it if it would import the same: the same train function, or the same `preload`.
    Executors keep it for `spark.experiment.keep_warm` seconds.

    Args:
        spark: A running SparkSession.
        train: The train function of the search, which tells what it imports. Not needed with
            `preload`.
        preload: The modules to import, as in the search. Default: those that `train` imports.
        parallelism: Number of slots to prepare. Default: all that the cluster has.
        gpus_per_trial: As in the search, which may have executors of its own with GPUs.
        trials_per_gpu: As in the search.

    Returns:
        A future, done when the workers are prepared and the imports have begun. It raises
        `experiment.ExperimentError` if an executor cannot run trials.

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
    )
    found = Preload(required=tuple(preload or ())) if train is None else preload_of(settings, train)
    session = session_of(spark).asking(gpus_per_trial, trials_per_gpu)
    shared = shared_import(found, session.keep_warm() if found.modules else 0.0)
    function = warm_up_function(session.search_path(), shared)
    slots = parallelism or session.task_slots()
    job = session.job(function, slots, f"warm-up-{secrets.token_hex(8)}")
    done: Future[None] = Future()
    Thread(target=_run, args=(job, done), name="experiment-warm-up", daemon=True).start()
    return done


def _run(job: SlotJob, done: Future[None]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    with job:
        job.start()
        job.wait()
        error = job.error
        sentence = problem_of_spark(error, job.failed_hosts)
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(ExperimentError(sentence) if sentence else error)
