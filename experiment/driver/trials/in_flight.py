"""The attempts in flight: their slots, start times and last reports."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from experiment.results.status import Running
from spark_jobs.messages import Attempt, Report, SlotId


class InFlight:
    """The attempts that slots run; at most one per trial.

    `running` and `len` are thread safe.

    Args:
        clock: Monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Copied when it is read: a copy at each change would take most of a large search's time.
        self._running: dict[int, Running] = {}  # by trial
        self._lock = threading.Lock()
        self._trials: dict[str, int] = {}  # by slot
        self._tasks: Counter[tuple[int, int]] = Counter()  # number of slots with a trial
        self._prepared: set[str] = set()  # slots whose first trial has started to run

    def __len__(self) -> int:
        return len(self._running)

    @property
    def running(self) -> tuple[Running, ...]:
        """The attempts in flight, in the order in which slots got them: a copy of all."""
        with self._lock:
            return tuple(self._running.values())

    def on(self, slot: str) -> Running | None:
        """Return the attempt that a slot runs, or None."""
        trial = self._trials.get(slot)
        return None if trial is None else self._running[trial]

    def find(self, slot: str, trial: int, number: int) -> Running | None:
        """Return what a slot runs if it is this attempt of this trial, else None."""
        running = self.on(slot)
        if running is None or (running.attempt.trial.id, running.attempt.number) != (trial, number):
            return None
        return running

    def add(self, attempt: Attempt, slots: tuple[str, ...]) -> None:
        """Give an attempt to its slots, which are free.

        Its time starts now if all of them are prepared.

        Args:
            attempt: The attempt.
            slots: The attempt's slots; empty if they belonged to an earlier driver.
        """
        since = self._clock() if self._prepared.issuperset(slots) else None
        running = Running(attempt=attempt, slots=slots, since=since)
        trial = attempt.trial.id
        with self._lock:
            self._running[trial] = running
        self._trials.update(dict.fromkeys(slots, trial))
        self._tasks.update(SlotId.parse(slot).task for slot in slots)

    def prepared(self, slot: str) -> None:
        """Record that a slot has imported the preloaded modules, so its trial runs."""
        self._prepared.add(slot)
        running = self.on(slot)
        if running and running.since is None and self._prepared.issuperset(running.slots):
            self._replace(replace(running, since=self._clock()))

    def report(self, slot: str, reports: Sequence[Report], stop: str) -> str:
        """Keep the last report of a slot's trial.

        Args:
            slot: A slot that runs a trial.
            reports: The reports, oldest first.
            stop: Why the trial has to stop, by these reports; '' if it has not.

        Returns:
            Why the trial has to stop, by these or earlier reports; '' if it has not.
        """
        running = self._running[self._trials[slot]]
        last = running.last
        for report in reports:
            last = report if last is None else report.after(last)
        running = replace(running, last=last, stop=stop or running.stop)
        self._replace(running)
        return running.stop

    def remove(self, trial: int) -> None:
        """Remove the attempt of a trial, if there is one: its slots are free."""
        if trial not in self._running:
            return
        with self._lock:
            running = self._running.pop(trial)
        for slot in running.slots:
            del self._trials[slot]
            task = SlotId.parse(slot).task
            self._tasks[task] -= 1
            if not self._tasks[task]:
                del self._tasks[task]

    def clear(self) -> None:
        """Remove all attempts."""
        with self._lock:
            self._running.clear()
        self._trials.clear()
        self._tasks.clear()

    def is_doubled(self, slot: str) -> bool:
        """Return whether another attempt of the slot's task has a trial; Spark would kill it."""
        return self._tasks[SlotId.parse(slot).task] > (slot in self._trials)

    def _replace(self, running: Running) -> None:
        with self._lock:
            self._running[running.attempt.trial.id] = running
