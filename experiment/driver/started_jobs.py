"""The slot jobs of a search that run side by side."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from spark_jobs.messages import SlotId
from spark_jobs.session.slot_job import SlotJob

_PUT_OFF = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class NumberedJob:
    """A slot job with its number in the search, from 1, and how many slots it has."""

    number: int
    slots: int
    job: SlotJob

    @property
    def error(self) -> BaseException | None:
        """What Spark raised; None unless the job has failed."""
        return self.job.error

    @property
    def failed_hosts(self) -> list[str]:
        """On which hosts tasks of it failed."""
        return self.job.failed_hosts

    def lost_slots(self) -> dict[str, bool]:
        """Return which of its slots Spark has lost so far; False for those that it has killed."""
        return {
            str(SlotId(self.number, task.partition, task.attempt)): task.failed
            for task in self.job.lost_tasks()
        }


class StartedJobs:
    """Starts slot jobs, and knows which run.

    A context manager: leaving it cancels those that run and waits for their end.

    Args:
        make: Returns a job, not started, for its number and how many slots it is to have.
        clock: Seconds that only grow.

    Attributes:
        asked: How many slots Spark was asked for, but for those that were dropped or let go.
    """

    def __init__(
        self, make: Callable[[int, int], SlotJob], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.asked = 0
        self._clock = clock
        self._let_go: set[str] = set()  # slots
        self._put_off: list[tuple[float, int]] = []  # slots, and from when on they are not asked
        self._make = make
        self._numbers = itertools.count(1)
        self._running: list[NumberedJob] = []
        self._last: NumberedJob | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.ExitStack() as leaving:
            for started in self._running:
                leaving.push(started.job)

    @property
    def running(self) -> bool:
        """Is there any job that was not taken out as ended?"""
        return bool(self._running)

    @property
    def error(self) -> BaseException | None:
        """What Spark raised for the job that ended last; None where it did not fail."""
        return None if self._last is None else self._last.error

    @property
    def failed_hosts(self) -> list[str]:
        """On which hosts tasks of that one failed."""
        return [] if self._last is None else self._last.failed_hosts

    def start(self, slots: int) -> None:
        """Start a job of so many slots."""
        number = next(self._numbers)
        started = NumberedJob(number, slots, self._make(number, slots))
        self._running.append(started)  # before it starts, so that an interrupt leaves none behind
        self.asked += slots
        started.job.start()

    def wait(self, seconds: float) -> bool:
        """Wait for the end of a job, and return whether all are over."""
        for started in self._running:
            if not started.job.wait(0):
                started.job.wait(seconds)
                break
        return all(started.job.wait(0) for started in self._running)

    def take_ended(self) -> list[NumberedJob]:
        """Return the jobs that have ended since the last time, once their tasks have."""
        ended = [started for started in self._running if started.job.wait(0)]
        for started in ended:
            started.job.__exit__(None, None, None)
            self._running.remove(started)
            self._last = started
            if started.error is not None:  # all its slots are asked for again, or none
                number = started.number
                self._ask_again({s for s in self._let_go if SlotId.parse(s).job == number})
        return ended

    def lost_slots(self) -> dict[str, bool]:
        """Return `NumberedJob.lost_slots` of all jobs that run."""
        lost = dict(
            itertools.chain.from_iterable(started.lost_slots().items() for started in self._running)
        )
        self._ask_again(self._let_go.intersection(lost))  # Spark does, before they have ended
        return lost

    def leaving_slots(self) -> list[str]:
        """Return which slots of jobs that run are on executors that are being decommissioned."""
        return [
            str(SlotId(started.number, task.partition, task.attempt))
            for started in self._running
            for task in started.job.leaving_tasks()
        ]

    def running_tasks(self) -> int:
        """Return how many tasks of its jobs Spark runs now."""
        return sum(started.job.running_tasks() for started in self._running)

    def let_go(self, slot: str) -> None:
        """Count a slot that was told to leave as not asked for, so that another may be."""
        self._let_go.add(slot)
        self.asked -= 1

    def _ask_again(self, slots: Collection[str]) -> None:
        """Count slots that were let go as asked for: with their job, or by Spark itself."""
        self._let_go.difference_update(slots)
        self.asked += len(slots)

    def drop(self, slots: int) -> None:
        """Count slots of a job that has ended as not asked for, so that others may be."""
        self.asked -= slots

    def put_off(self, slots: int) -> None:
        """Count slots of a job that has ended as asked for until `take_up`, a minute from now."""
        self._put_off.append((self._clock() + _PUT_OFF, slots))

    def take_up(self) -> None:
        """Drop the slots that were put off long enough ago."""
        now = self._clock()
        self.drop(sum(slots for until, slots in self._put_off if until <= now))
        self._put_off = [(until, slots) for until, slots in self._put_off if until > now]

    def forget(self) -> int:
        """Begin anew, where no job runs any more; return how many slots there were."""
        asked, self.asked = self.asked, 0
        self._put_off.clear()
        self._let_go.clear()
        return asked
