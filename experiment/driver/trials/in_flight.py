"""What runs: each attempt with its slots, since when it runs, what it reported last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from experiment.results.status import Running
from spark_jobs.messages import Attempt, Report, SlotId


class InFlight:
    """Knows the attempts that slots run. A trial has one attempt at a time, which has its slots.

    `running` and `len` are safe to call from another thread: what they read is replaced, never
    changed.

    Args:
        clock: Seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._running: Mapping[int, Running] = {}  # by trial
        self._trials: dict[str, int] = {}  # by slot
        self._prepared: set[str] = set()  # slots whose first trial has begun to run

    def __len__(self) -> int:
        return len(self._running)

    @property
    def running(self) -> tuple[Running, ...]:
        """The attempts that run, in the order in which they were given out."""
        return tuple(self._running.values())

    def on(self, slot: str) -> Running | None:
        """Return what a slot runs; None where it runs nothing."""
        trial = self._trials.get(slot)
        return None if trial is None else self._running[trial]

    def find(self, slot: str, trial: int, number: int) -> Running | None:
        """Return what a slot runs if it is this attempt at this trial; None otherwise."""
        out = self.on(slot)
        if out is None or (out.attempt.trial.id, out.attempt.number) != (trial, number):
            return None
        return out

    def add(self, attempt: Attempt, slots: tuple[str, ...]) -> None:
        """Give an attempt to its slots, which run nothing.

        Its time counts from now where all of them are prepared.

        Args:
            attempt: The attempt.
            slots: Its slots; none where they are of a driver before.
        """
        since = self._clock() if self._prepared.issuperset(slots) else None
        out = Running(attempt=attempt, slots=slots, since=since)
        trial = attempt.trial.id
        self._running = {**self._running, trial: out}
        self._trials.update(dict.fromkeys(slots, trial))

    def prepared(self, slot: str) -> None:
        """Note that a slot has imported what is preloaded, so that its trial has begun to run."""
        self._prepared.add(slot)
        out = self.on(slot)
        if out is not None and out.since is None and self._prepared.issuperset(out.slots):
            self._replace(replace(out, since=self._clock()))

    def report(self, slot: str, reports: Sequence[Report], stop: str) -> str:
        """Keep what the trial of a slot reported.

        Args:
            slot: A slot that runs one.
            reports: The reports, oldest first.
            stop: Why it is to stop; '' where nothing new says so.

        Returns:
            Why it is to stop, as it has been said at any time; '' where it is not.
        """
        out = self._running[self._trials[slot]]
        last = out.last
        for report in reports:
            last = report if last is None else report.after(last)
        out = replace(out, last=last, stop=stop or out.stop)
        self._replace(out)
        return out.stop

    def remove(self, trial: int) -> None:
        """Forget the attempt at a trial, if there is one: its slots run nothing."""
        if trial not in self._running:
            return
        for slot in self._running[trial].slots:
            del self._trials[slot]
        self._running = {other: out for other, out in self._running.items() if other != trial}

    def clear(self) -> None:
        """Forget all attempts."""
        self._running = {}
        self._trials = {}

    def is_doubled(self, slot: str) -> bool:
        """Has another slot of this task a trial? Spark kills it when the task has ended well."""
        task = SlotId.parse(slot).task
        return any(SlotId.parse(other).task == task for other in self._trials if other != slot)

    def _replace(self, out: Running) -> None:
        self._running = {**self._running, out.attempt.trial.id: out}
