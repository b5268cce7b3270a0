"""Writes the events of a search to its journal, and then to the run's state."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from experiment.run_files.journal import Journal
from experiment.run_files.journal_records import (
    Begun,
    Finished,
    Joined,
    Left,
    Lost,
    Planned,
    Record,
    Reported,
    Selected,
    Waiting,
    WaitReason,
)
from experiment.run_files.run_state import RunState
from search.searcher import Selection
from search.trial import Failure, Outcome
from spark_jobs.messages import Attempt, Report


class Recorder:
    """Writes each record to the journal of a run, and then applies it to the run's state.

    If the journal cannot be written, `OSError` is raised and the state is not changed.

    Args:
        journal: The journal.
        state: The state of the run.
        now: Returns the time in seconds since 1970.

    Attributes:
        state: The state of the run.
    """

    def __init__(
        self, journal: Journal, state: RunState, now: Callable[[], float] = time.time
    ) -> None:
        self._journal = journal
        self.state = state
        self._now = now
        self._waiting: dict[str, WaitReason] = {}  # by slot, as in the journal
        self._selections: list[Selection] = []  # selections that the journal lacks

    def begun(self, begun: Begun) -> None:
        """Record that a driver starts or resumes the run."""
        self._write(begun)

    def joined(self, slot: str, host: str, gpus: tuple[str, ...]) -> None:
        """Record that a slot may get trials from now on."""
        self._write(Joined(slot, host, gpus, at=self._now()))

    def left(self, slot: str, why: str) -> None:
        """Record that a slot gets no more trials."""
        self._waiting.pop(slot, None)
        self._write(Left.of(slot, why, self._now()))

    def waits(self, slot: str, why: WaitReason) -> None:
        """Record that a slot waits; once per reason."""
        if self._waiting.get(slot) != why:
            self._waiting[slot] = why
            self._write(Waiting(slot, why, at=self._now()))

    def planned(
        self, attempt: Attempt, slots: tuple[str, ...], acquisition: float | None = None
    ) -> None:
        """Record that an attempt was given to its slots; none for an outcome in a trial folder.

        Args:
            attempt: The attempt.
            slots: Its slots.
            acquisition: The searcher's acquisition at its trial, if a model has proposed it.
        """
        for slot in slots:
            self._waiting.pop(slot, None)
        self._write(Planned.of(attempt, slots, self._now(), acquisition))

    def reported(self, trial: int, attempt: int, reports: Iterable[Report]) -> None:
        """Record the reports of the objective by a trial that has stopping rules."""
        self._write(Reported(trial, attempt, list(reports), at=self._now()))

    def lost(self, attempt: Attempt, slot: str, failure: Failure, *, counts: bool) -> None:
        """Record that an attempt has failed and its trial runs again; see `Lost`."""
        self._write(Lost.of(attempt, slot, failure, counts=counts, at=self._now()))

    def finished(self, attempt: Attempt, outcome: Outcome) -> None:
        """Record that a trial has ended."""
        self._write(Finished(attempt.number, outcome, at=self._now()))

    def selected(self, selections: Iterable[Selection]) -> None:
        """Keep the searcher's selections until `write_selections`."""
        self._selections += selections

    def has_selected(self, trials: Collection[int]) -> None:
        """Drop the selections of these trials, which the journal has."""
        self._selections = [s for s in self._selections if s.trial not in trials]

    def drop_selections(self) -> None:
        """Drop the selections that were not recorded yet."""
        self._selections = []

    def write_selections(self) -> None:
        """Record the selections that were not recorded yet."""
        if self._selections:
            self._write(Selected(self._selections, at=self._now()))
            self._selections = []

    def _write(self, record: Record) -> None:
        self._journal.append(record)
        self.state.apply(record)
