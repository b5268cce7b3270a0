"""The state of a run with what its journal records about time: attempts, slots, selections."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from experiment.results.trial_result import TrialResult
from experiment.run_files.journal_records import (
    Begun,
    Finished,
    Joined,
    Left,
    Lost,
    Planned,
    Record,
    Selected,
    Waiting,
)
from experiment.run_files.run_state import RunState
from search.searcher import Selection
from search.trial import Status

Ending = Literal[Status, "running", "lost"]
"""How an attempt ended: as its trial, or lost; 'running' before that."""

SlotChange = Literal["joined", "left", "waiting", "begun"]
"""The kinds of `SlotEvent`."""


@dataclass(slots=True, kw_only=True)
class TimedAttempt:
    """An attempt at a trial, and when it ran.

    Attributes:
        trial: The trial's id.
        number: The attempt's number, from 1.
        slots: The names of its slots, by rank; empty for an outcome found in a trial folder.
        start: When it was given to its slots, in seconds since 1970.
        end: When its outcome arrived, or it was given up; None before that.
        ending: How it ended.
        why: Why it was lost; ''.
    """

    trial: int
    number: int
    slots: tuple[str, ...]
    start: float
    end: float | None = None
    ending: Ending = "running"
    why: str = ""

    def status(self, result: TrialResult | None) -> str:
        """Return the status of its trial, whose newest attempt it is; the result is None before."""
        if result is not None:
            return result.status
        return "waiting" if self.ending == "lost" else "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotEvent:
    """A change of a slot; or the start of an application, in which `slot` is ''.

    Attributes:
        at: Its time, in seconds since 1970.
        slot: The slot's name.
        what: 'joined', 'left', 'waiting' or 'begun'.
        text: Its host and GPUs, the reason, or Spark's id of the application.
    """

    at: float
    slot: str
    what: SlotChange
    text: str


@dataclass(slots=True)
class Timeline(RunState):
    """A `RunState` that also keeps times.

    `version` counts the applied records: what changed after a version is sent to a page that has
    the state of that version.

    Attributes:
        version: Number of applied records.
        attempts: All attempts at each trial, by trial.
        origins: The generation and the parent of each trial, by trial; None without.
        acquisitions: The searcher's acquisition at each trial that a model has proposed, by trial.
        ended_trials: The result of each trial that has an outcome, by trial.
        changed: The version of the last change of each trial, the latest change last.
        slot_events: Version and event, in order.
        selections: Version and selection, in order.
        present: Slots that have joined and not left.
        began: The time of the first record; None before it.
        last: The time of the last record; None before it.
    """

    _: KW_ONLY
    version: int = 0
    attempts: dict[int, list[TimedAttempt]] = field(default_factory=dict)
    origins: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)
    acquisitions: dict[int, float] = field(default_factory=dict)
    ended_trials: dict[int, TrialResult] = field(default_factory=dict)
    changed: dict[int, int] = field(default_factory=dict)
    slot_events: list[tuple[int, SlotEvent]] = field(default_factory=list)
    selections: list[tuple[int, Selection]] = field(default_factory=list)
    present: set[str] = field(default_factory=set)
    began: float | None = None
    last: float | None = None

    def apply(self, record: Record) -> None:
        """Update the state, and the times, by a record."""
        self.version += 1
        objective, results = self.objective, len(self.results)
        RunState.apply(self, record)
        match record:
            case Begun():
                self._begin(record)
            case Planned():
                self._plan(record)
            case Lost():
                attempt = self.attempts[record.trial][-1]
                attempt.end = record.at
                attempt.ending = "lost"
                attempt.why = record.message
                self._touch([record.trial])
            case Finished():
                self._finish(record)
                if len(self.results) > results:
                    self.ended_trials[self.results[-1].id] = self.results[-1]
            case Joined(slot=slot):
                self.present.add(slot)
                gpus = f", GPU {', '.join(record.gpus)}" if record.gpus else ""
                self._note(record, slot, "joined", record.host + gpus)
            case Left(slot=slot):
                self.present.discard(slot)
                self._note(record, slot, "left", record.why)
            case Waiting(slot=slot):
                self._note(record, slot, "waiting", record.why)
            case Selected():
                self.selections += [(self.version, each) for each in record.selections]
        if objective not in (None, self.objective):  # the values of stopped trials were removed
            self.ended_trials = {result.id: result for result in self.results}
            self._touch(self.ended_trials)
        self.began = record.at if self.began is None else self.began
        self.last = record.at

    def changed_after(self, version: int) -> list[int]:
        """Return the ids of the trials that changed after a version, in ascending order."""
        found = []
        for trial, when in reversed(self.changed.items()):
            if when <= version:
                break
            found.append(trial)
        return sorted(found)

    def _begin(self, record: Begun) -> None:
        ended = {result.id: result for result in self.results}
        again = [trial for trial in self.ended_trials if trial not in ended]  # cancelled ones
        for trial in again:
            attempt = self.attempts[trial][-1]
            attempt.ending = "lost"
            attempt.why = attempt.why or "its search ended"
        self.ended_trials = ended
        for trial, attempts in self.attempts.items():
            if attempts[-1].end is None:
                attempts[-1].end = self.last
                attempts[-1].ending = "lost"
                attempts[-1].why = "its driver ended"
                again.append(trial)
        self._touch(again)
        self.present.clear()
        self._note(record, "", "begun", record.application)

    def _plan(self, record: Planned) -> None:
        slots = tuple(map(sys.intern, record.slots or filter(None, [record.slot])))  # few names
        attempt = TimedAttempt(
            trial=record.trial.id, number=record.attempt, slots=slots, start=record.at
        )
        self.attempts.setdefault(record.trial.id, []).append(attempt)
        self.origins[record.trial.id] = (record.trial.generation, record.trial.parent)
        if record.acquisition is not None:
            self.acquisitions[record.trial.id] = record.acquisition
        self._touch([record.trial.id])

    def _finish(self, record: Finished) -> None:
        trial = record.outcome.trial
        for attempt in self.attempts[trial]:
            if attempt.number == record.attempt and attempt.end is None:  # others were lost
                attempt.end = record.at
                attempt.ending = record.outcome.status
        self._touch([trial])

    def _note(self, record: Record, slot: str, what: SlotChange, text: str) -> None:
        event = SlotEvent(at=record.at, slot=slot, what=what, text=text)
        self.slot_events.append((self.version, event))

    def _touch(self, trials: Iterable[int]) -> None:
        for trial in list(trials):
            self.changed.pop(trial, None)
            self.changed[trial] = self.version
