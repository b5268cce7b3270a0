"""Searches with too few slots for a trial: when they give these back or give up, and why."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Literal

from experiment.results.text import count
from spark_jobs.cluster.cluster import ClusterExecutor, executor_needs
from spark_jobs.session.session import Session

_PATIENCE = 30.0  # seconds, and a random share of as many more
_FIRST_PAUSE = 5.0  # seconds, and a random share of as many more; doubles each time
_LONGEST_PAUSE = 160.0

Decision = Literal["wait", "give back", "give up"]


class TooFewSlots:
    """Decides whether a search with too few slots for a trial waits, gives them back or ends.

    Called while no trial runs.

    Slots that wait hold their cores. Two searches that each have some of the slots that a trial
    needs, and wait for those of the other, would wait without an end. So each gives its slots back
    when no more have come for a while, and asks for all of them again later. The times are random,
    so that one of the two comes first.

    Args:
        give_up: Seconds with too few slots after which the search ends, but not before slots that
            it has requested again have had time to start; None for no limit.
        rng: The generator of random times.
        begin: The monotonic time in seconds from which `give_up` counts at the earliest.

    Attributes:
        most: Maximum number of slots that were present at once since a trial last ran.
    """

    def __init__(
        self, give_up: float | None, rng: random.Random | None = None, *, begin: float = 0.0
    ) -> None:
        self._give_up = math.inf if give_up is None else give_up
        self._rng = rng or random.Random()
        self._begin = begin
        self.most = 0
        self._since: float | None = None
        self._requested: float | None = None  # the first look since slots were requested
        self._present = 0
        self._give_back_at = 0.0
        self._pause = _FIRST_PAUSE

    def decide(self, present: int, missing: int, now: float) -> Decision:
        """Return what to do now.

        Args:
            present: Number of slots that have started and may get trials.
            missing: Number of slots that are missing for a trial; 0 if trials run, or can.
            now: Monotonic time in seconds.
        """
        if not missing:
            self._since = None
            self._present = 0
            self.most = 0
            self._pause = _FIRST_PAUSE
            return "wait"
        if self._since is None:
            self._since = max(now, self._begin)
        if self._requested is None:
            self._requested = now
        if present > self._present:
            self._give_back_at = now + _PATIENCE * (1 + self._rng.random())
        self._present = present
        self.most = max(self.most, present)
        end = max(self._since + self._give_up, self._requested + min(self._give_up, _PATIENCE))
        if now > end:
            return "give up"
        return "give back" if present and now > self._give_back_at else "wait"

    def pause(self) -> float:
        """Return the seconds until the search asks for slots again, once it has given them back."""
        self._requested = None
        self._present = 0
        pause = self._pause * (1 + self._rng.random())
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return pause


def too_few_came(
    session: Session,
    *,
    present: int,
    requested: int,
    workers: int,
    seconds: float | None,
    late: str = "",
) -> str:
    """Return why a search ends that has had too few slots for too long.

    Args:
        session: The session that runs the slots.
        present: Maximum number of slots that were there at once.
        requested: Number of slots requested.
        workers: Number of slots of each trial.
        seconds: Seconds that it has waited.
        late: From when these count, in words; '' for the usual.
    """
    cluster = session.cluster()
    there = f"; Spark has {cluster}" if cluster.executors is not None else ""
    page = cluster.page
    if page is None and (session.setting("spark.ui.enabled") or "").lower() == "false":
        page = "not served, as spark.ui.enabled is false"
    some = f"only {present} of the {workers} slots of a trial {'has' if present == 1 else 'have'}"
    return (
        f"{some if present else 'no slot has'} started within {seconds:g} s{late}; asked Spark for "
        f"{count(requested, 'slot')} of {session.task_needs}, on executors with "
        f"{executor_needs(session.setting)}: see that {workers if workers > 1 else 'some'} are "
        f"free, also of other searches, or set startup_timeout{there}"
        f"{f'; its page of this application: {page}' if page else ''}"
    )


def without_slots(executors: Sequence[ClusterExecutor] | None, tasks: int) -> str:
    """Return executors and tasks in words while no slot has started; '' if there are none.

    Args:
        executors: The application's executors; None if they are not known.
        tasks: Number of running tasks of the search.
    """
    if not executors:
        return ""
    there = count(len(executors), "executor")
    if tasks:
        they = "runs" if len(executors) == 1 else "run"
        return f"{there} {they} {count(tasks, 'task')} of the search, whose Python is starting"
    running = sum(executor.running for executor in executors)
    others = f", which run {count(running, 'other task')}" if running else ""
    return f"{there}{others}, no task of the search started"
