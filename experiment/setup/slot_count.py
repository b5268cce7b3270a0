"""How many slots a search asks for, and so how many of its trials run at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import psutil

from experiment.setup.resuming import manifest_of
from experiment.setup.settings import Settings
from search.errors import InvalidArgument
from spark_jobs.session import session_of
from spark_jobs.session.session import Session

SLOT_MEMORY = 0.8e9
"""Bytes that a slot needs: TensorFlow imported, and a small model."""

_MOST_SLOTS = 100_000


class SlotsAsked:
    """Says, when called, how many trials of a search may be out at once.

    That is how many slots it asks for at first. Where a run is resumed, it is what it was then: the
    algorithm has to make the same trials, whatever the cluster is now.

    Args:
        spark: The user's SparkSession.
        trials: Of the search; None where the algorithm knows.
        settings: What all searches share.

    Attributes:
        number: What it has said; None where nobody has asked.
    """

    def __init__(self, spark: Any, trials: int | None, settings: Settings) -> None:
        self._spark = spark
        self._trials = trials
        self._settings = settings
        self.number: int | None = None

    def __call__(self) -> int:
        """Return the number, the same each time; it may take seconds.

        Raises:
            InvalidArgument: This is no session, or nothing limits its slots.
        """
        if self.number is None and self._settings.resume is not None:
            self.number = manifest_of(self._settings.resume).slots
        if self.number is None:
            self.number = self._of_session()
        return self.number

    def _of_session(self) -> int:
        settings = self._settings
        session = session_of(self._spark).asking(settings.gpus_per_trial, settings.trials_per_gpu)
        # What is to be said of slots is said when they are asked for.
        return slot_count(self._trials, settings, session, warn=lambda warning: None)


def slot_count(
    trials: int | None,
    settings: Settings,
    session: Session,
    *,
    warn: Callable[[str], None],
    tick: Callable[[], None] = lambda: None,
) -> int:
    """Return how many slots a search asks for at first; see `SlotJobs` for what comes later.

    Args:
        trials: Of the search; None where nobody knows how many will come.
        settings: Of the search.
        session: That will run them.
        warn: Shows the user a sentence, where memory allows fewer slots than Spark.
        tick: Called now and then where executors are waited for.

    Raises:
        InvalidArgument: Nothing limits them.
    """
    most = sys.maxsize if trials is None else trials
    if settings.parallelism is not None:
        return min(settings.parallelism, most)
    slots = min(most, session.task_slots(tick))
    if trials is None and slots > _MOST_SLOTS:  # dynamic allocation without a maximum
        expected = "an integer, where Spark may start any number of executors"
        hint = "or set spark.dynamicAllocation.maxExecutors"
        raise InvalidArgument("parallelism", expected, "None", hint)
    if session.on_this_host and settings.isolation != "none" and settings.preload:
        fit = max(1, int(psutil.virtual_memory().available / SLOT_MEMORY))
        if fit < slots:
            warn(
                f"{fit} trials at once instead of {slots}: the memory that is free allows no more "
                f"at {SLOT_MEMORY / 1e9:.1f} GB each; parallelism= overrides this"
            )
            return fit
    return slots
