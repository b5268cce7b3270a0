"""Writes what happens in a search to its journal, and then takes it in as the run's state."""

from __future__ import annotations

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
    """Writes records to the journal of a run, each before the state of the run has it.

    Where the journal cannot be written, `OSError` is raised and the state stays as it was.

    Args:
        journal: The journal.
        state: The state of the run.
        now: Seconds since 1970.
    """

    def __init__(self, journal: Journal, state: RunState, now: Callable[[], float]) -> None:
        self._journal = journal
        self._state = state
        self._now = now
        self._waiting: dict[str, WaitReason] = {}  # by slot, as the journal has it
        self._selections: list[Selection] = []  # of the searcher, which the journal lacks

    def begun(self, begun: Begun) -> None:
        """Record that a driver begins."""
        self._write(begun)

    def joined(self, slot: str, host: str, gpus: tuple[str, ...]) -> None:
        """Record that a slot may get trials from now on."""
        self._write(Joined(slot, host, gpus, at=self._now()))

    def left(self, slot: str, why: str) -> None:
        """Record that a slot gets no more trials."""
        self._waiting.pop(slot, None)
        self._write(Left.of(slot, why, self._now()))

    def waits(self, slot: str, why: WaitReason) -> None:
        """Record that a slot waits; once while the reason stays the same."""
        if self._waiting.get(slot) != why:
            self._waiting[slot] = why
            self._write(Waiting(slot, why, at=self._now()))

    def planned(self, attempt: Attempt, slots: tuple[str, ...]) -> None:
        """Record that an attempt was given to its slots; none for what a trial had left."""
        for slot in slots:
            self._waiting.pop(slot, None)
        self._write(Planned.of(attempt, slots[0] if slots else "", self._now()))

    def reported(self, trial: int, attempt: int, reports: Iterable[Report]) -> None:
        """Record what a trial that is judged has reported of its objective."""
        self._write(Reported(trial, attempt, list(reports), at=self._now()))

    def lost(self, attempt: Attempt, slot: str, failure: Failure, *, counts: bool) -> None:
        """Record that a trial runs again, since its attempt failed on a slot; see `Lost`."""
        self._write(Lost.of(attempt, slot, failure, counts=counts, at=self._now()))

    def finished(self, attempt: Attempt, outcome: Outcome) -> None:
        """Record that a trial came to an end."""
        self._write(Finished(attempt.number, outcome, at=self._now()))

    def selected(self, selections: Iterable[Selection]) -> None:
        """Keep what the searcher has selected, until `write_selections`."""
        self._selections += selections

    def has_selected(self, trials: Collection[int]) -> None:
        """Take in that the journal has what the searcher selected of these trials."""
        self._selections = [s for s in self._selections if s.trial not in trials]

    def drop_selections(self) -> None:
        """Never write what the searcher has selected since the last record of it."""
        self._selections = []

    def write_selections(self) -> None:
        """Record what the searcher has selected since the last record of it."""
        if self._selections:
            self._write(Selected(self._selections, at=self._now()))
            self._selections = []

    def _write(self, record: Record) -> None:
        self._journal.append(record)
        self._state.apply(record)
