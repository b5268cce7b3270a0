"""The parallel slot jobs of a search."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Self

from spark_jobs.messages import SlotId
from spark_jobs.session.slot_job import SlotJob

_PUT_OFF = 60.0  # seconds until slots are requested again


@dataclass(frozen=True, slots=True)
class NumberedJob:
    """A slot job with its number in the search, from 1, and its number of slots."""

    number: int
    slots: int
    job: SlotJob

    @property
    def error(self) -> BaseException | None:
        """The error that Spark raised; None unless the job has failed."""
        return self.job.error

    @property
    def failed_hosts(self) -> list[str]:
        """The hosts on which its tasks failed."""
        return self.job.failed_hosts

    def lost_slots(self) -> dict[str, bool]:
        """Return the slots that Spark has lost so far: whether they failed, or were killed."""
        return {
            str(SlotId(self.number, task.partition, task.attempt)): task.failed
            for task in self.job.lost_tasks()
        }


class StartedJobs:
    """Starts slot jobs, and tracks the running ones.

    A context manager: its exit cancels the running jobs and waits for their end.

    Args:
        make: Returns a job, not started, by its number and its number of slots.
        clock: Monotonic time in seconds.

    Attributes:
        requested: Number of slots requested from Spark, without those that were dropped or let go.
    """

    def __init__(
        self, make: Callable[[int, int], SlotJob], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.requested = 0
        self._clock = clock
        self._let_go: set[str] = set()  # slots
        self._failed: set[int] = set()  # numbers of jobs
        self._put_off: list[tuple[float, int]] = []  # time to drop them, number of slots
        self._make = make
        self._numbers = itertools.count(1)
        self._running: list[NumberedJob] = []
        self._last: NumberedJob | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.ExitStack() as leaving:
            for started in self._running:  # first, since an interrupt may end the asking
                leaving.push(started.job)
            for started in self._running:  # all of them, before it waits for the end of one
                started.job.ask_to_end()

    @property
    def running(self) -> bool:
        """Whether there is a job that `take_ended` has not returned."""
        return bool(self._running)

    @property
    def error(self) -> BaseException | None:
        """The error that Spark raised for the job that ended last; None if it did not fail."""
        return None if self._last is None else self._last.error

    @property
    def failed_hosts(self) -> list[str]:
        """The hosts on which tasks of that job failed."""
        return [] if self._last is None else self._last.failed_hosts

    def start(self, slots: int) -> None:
        """Start a job with this number of slots."""
        number = next(self._numbers)
        started = NumberedJob(number, slots, self._make(number, slots))
        self._running.append(started)  # before its start, so that an interrupt cannot lose it
        self.requested += slots
        started.job.start()

    def wait(self, seconds: float) -> bool:
        """Wait for the end of a job, and return whether all have ended."""
        for started in self._running:
            if not started.job.wait(0):
                started.job.wait(seconds)
                break
        return all(started.job.wait(0) for started in self._running)

    def take_ended(self) -> list[NumberedJob]:
        """Return the jobs that have ended since the last call, and all their tasks."""
        ended = [started for started in self._running if started.job.wait(0)]
        for started in ended:
            started.job.__exit__(None, None, None)
            self._running.remove(started)
            self._last = started
            if started.error is not None:  # all its slots are requested again, or none
                number = started.number
                self._failed.add(number)
                self._ask_again({s for s in self._let_go if SlotId.parse(s).job == number})
        return ended

    def lost_slots(self) -> dict[str, bool]:
        """Return `NumberedJob.lost_slots` of all running jobs."""
        lost = dict(
            itertools.chain.from_iterable(started.lost_slots().items() for started in self._running)
        )
        self._ask_again(self._let_go.intersection(lost))  # Spark itself starts them again
        return lost

    def decommissioned_slots(self) -> list[str]:
        """Return the slots of running jobs on executors that are being decommissioned."""
        return [
            str(SlotId(started.number, task.partition, task.attempt))
            for started in self._running
            for task in started.job.leaving_tasks()
        ]

    def running_tasks(self) -> int:
        """Return the number of tasks that Spark runs now for these jobs."""
        return sum(started.job.running_tasks() for started in self._running)

    def let_go(self, slot: str) -> None:
        """Count a slot that has to leave as not requested, so that another may be.

        Those of a job that has failed are counted with their job.
        """
        if SlotId.parse(slot).job not in self._failed:
            self._let_go.add(slot)
            self.requested -= 1

    def _ask_again(self, slots: Collection[str]) -> None:
        """Count slots that were let go as requested again, with their job or by Spark itself."""
        self._let_go.difference_update(slots)
        self.requested += len(slots)

    def drop(self, slots: int) -> None:
        """Count slots of a job that has ended as not requested, so that others may be."""
        self.requested -= slots

    def put_off(self, slots: int) -> None:
        """Drop the slots of an ended job a minute later, by `drop_due`."""
        self._put_off.append((self._clock() + _PUT_OFF, slots))

    def drop_due(self) -> None:
        """Drop the slots that are due."""
        now = self._clock()
        self.drop(sum(slots for until, slots in self._put_off if until <= now))
        self._put_off = [(until, slots) for until, slots in self._put_off if until > now]

    def cancel(self) -> list[int]:
        """Cancel the running jobs, and wait for their ends; return their numbers."""
        numbers = [started.number for started in self._running]
        self.__exit__(None, None, None)
        self._running.clear()
        return numbers

    def forget(self) -> int:
        """Reset the counts once no job runs; return the number of slots before."""
        before, self.requested = self.requested, 0
        self._put_off.clear()
        self._let_go.clear()
        return before
