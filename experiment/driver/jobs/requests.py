"""Requests for slots: how many Spark is asked for, and in jobs of which size."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from experiment.driver.jobs.started_jobs import NumberedJob, StartedJobs
from experiment.setup.workers import Workers
from spark_jobs.session.session import Session

_MOST_ALONE = 32  # maximum slots requested at a time, if each is a job of its own


class Requests:
    """Requests the slots of one search from Spark, and more of them when the cluster has grown.

    All slots of a request are one job. Where a host has refused slots, each is a job of its own.

    Args:
        jobs: The slot jobs that it starts.
        session: The session that runs them.
        most: Maximum number of slots.
        workers: Number of slots of each trial.
    """

    def __init__(self, jobs: StartedJobs, session: Session, *, most: int, workers: Workers) -> None:
        self.jobs = jobs
        self._session = session
        self._most = most
        self._workers = workers
        # Why hosts cannot run slots, in one sentence each, and whether the user was warned.
        self._refusals: dict[str, bool] = {}

    def start(self, slots: int) -> None:
        """Request slots from Spark; only some of them if each is a job of its own."""
        if self._refusals:
            for _ in range(min(slots, _MOST_ALONE)):
                self.jobs.start(1)
        else:
            self.jobs.start(slots)

    def grow(self, present: int, wanted: int) -> bool:
        """Request further slots if the cluster has room and trials are left; return whether it did.

        Never more than fit: waiting tasks would take room from other jobs and searches of the
        application, and would still start, one after the other, when the search is done.

        Args:
            present: Number of slots that have started.
            wanted: Number of slots that the trials can use which are left.
        """
        self.jobs.drop_due()
        if self.jobs.requested >= self._most:
            return False
        offered = 0
        with contextlib.suppress(Exception):  # of a stopped session
            offered = self._session.task_slots()
        awaited = self.jobs.requested - present
        room = self._workers.of_use(min(offered, self._most)) - self.jobs.requested
        further = min(room, wanted - awaited)
        if further > 0:
            self.start(further)
        return further > 0

    def refuse(self, job: NumberedJob, sentence: str) -> bool:
        """Keep a host that cannot run slots from ending the slots of other hosts.

        Spark retries a task there, and then ends the whole job. So each slot is a job of its own
        from now on: slots on other hosts stay, and the failed ones are requested again after a
        while, as the host may have been repaired or removed.

        Args:
            job: The job that has ended because of the host.
            sentence: Why the host cannot run slots.

        Returns:
            Whether the slots of the job may be requested again at once.
        """
        self._refusals.setdefault(sentence, False)
        if job.slots == 1:
            self.jobs.put_off(job.slots)
            return False
        self.jobs.drop(job.slots)
        return True

    def tell_refusals(self, warn: Callable[[str], None]) -> None:
        """Warn once of each host that cannot run slots.

        Args:
            warn: Called with each warning for the user.
        """
        for sentence in [sentence for sentence, shown in self._refusals.items() if not shown]:
            self._refusals[sentence] = True
            warn(f"the search continues without {sentence}")
