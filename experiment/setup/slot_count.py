"""The number of slots of a search, and so of its parallel trials."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from experiment.setup.function.imports import preload_of
from experiment.setup.resuming import manifest_of
from experiment.setup.settings import MOST_SLOTS, Settings
from experiment.setup.workers import Workers
from search.errors import InvalidArgument
from spark_jobs.session import session_of
from spark_jobs.session.session import Session
from spark_jobs.trial.memory.control_groups import free_bytes

SLOT_MEMORY = 0.8e9
"""Bytes of memory per slot: for TensorFlow and a small model."""


class SlotsAsked:
    """Returns, when called, the maximum number of parallel trials of a search.

    That is its first number of slots, or of gangs of them. A resumed run keeps its number: the
    algorithm has to propose the same trials, whatever the cluster is now.

    Args:
        spark: The user's SparkSession.
        train: The train function.
        trials: Number of trials; None if the algorithm determines it.
        settings: The search's settings.

    Attributes:
        number: The number; None before the first call.
    """

    def __init__(
        self, spark: Any, train: Callable[..., Any], trials: int | None, settings: Settings
    ) -> None:
        self._spark = spark
        self._train = train
        self._trials = trials
        self._settings = settings
        self.number: int | None = None

    def __call__(self) -> int:
        """Return the number, the same each time; the first call may take seconds.

        Raises:
            InvalidArgument: Not a session, or the number of its slots has no limit.
        """
        if self.number is None and self._settings.resume is not None:
            self.number = manifest_of(self._settings.resume).slots
        if self.number is None:
            self.number = self._of_session()
        return self.number

    def _of_session(self) -> int:
        settings = self._settings
        session = session_of(self._spark).asking(settings.gpus_per_trial, settings.trials_per_gpu)
        # The warnings are shown when slots are requested.
        slots = slot_count(
            self._trials,
            settings,
            session,
            preload=preload_of(settings, self._train).modules,
            warn=lambda warning: None,
        )
        at_once = slots // settings.workers.least
        return min(at_once, settings.parallelism or at_once)


def slot_count(
    trials: int | None,
    settings: Settings,
    session: Session,
    *,
    preload: Sequence[str],
    warn: Callable[[str], None],
    tick: Callable[[], None] = lambda: None,
    workers_argument: str = "workers_per_trial",
) -> int:
    """Return the first number of slots of a search; see `SlotJobs` for later ones.

    It is enough for whole trials, since a slot more would only hold a core.

    Args:
        trials: Number of trials; None if it is not known in advance.
        settings: The search's settings.
        session: The session that runs the slots.
        preload: The modules that each slot imports.
        warn: Called with a warning if memory allows fewer slots than Spark.
        tick: Called repeatedly while executors are waited for.
        workers_argument: The argument that sets the workers of a trial, for errors.

    Raises:
        InvalidArgument: The number of slots has no limit, or a trial needs more than there can be.
    """
    workers = settings.workers
    most = sys.maxsize if trials is None else trials * workers.most
    if settings.parallelism is not None and workers.most == 1:
        return min(settings.parallelism, most)
    there = session.task_slots(tick)
    if there < workers.least and not session.may_get_more_slots:
        expected = f"at most {there}, the slots that this cluster can have"
        hint = "use fewer, or give Spark more executors or cores"
        raise InvalidArgument(workers_argument, expected, str(workers.to_json()), hint)
    if settings.parallelism is not None:
        return min(settings.parallelism * workers.most, most)
    slots = workers.of_use(min(most, max(there, workers.least)))
    if trials is None and slots > MOST_SLOTS:  # dynamic allocation without a maximum
        expected = "an integer, where Spark may start any number of executors"
        hint = "or set spark.dynamicAllocation.maxExecutors"
        raise InvalidArgument("parallelism", expected, "None", hint)
    if session.on_this_host and settings.isolation != "none" and preload:
        free = min(psutil.virtual_memory().available, free_bytes())
        fit = max(workers.least, workers.of_use(int(free / SLOT_MEMORY)))
        if fit < slots:
            each = "each" if workers.most == 1 else f"for each of their {workers} workers"
            warn(
                f"{_instead(workers, fit, slots)}: the free memory "
                f"allows no more at {SLOT_MEMORY / 1e9:.1f} GB {each}; parallelism= overrides this"
            )
            return fit
    return slots


def _instead(workers: Workers, fit: int, slots: int) -> str:
    if workers.least < workers.most:
        return f"{fit} slots instead of {slots}"
    return f"{fit // workers.most} trials at once instead of {slots // workers.most}"
