"""What the records of a journal add up to: the one fold of it, for drivers and for readers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from experiment.results.trial_result import TrialResult
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
)
from search.trial import Outcome, Trial
from spark_jobs.messages import Attempt
from spark_jobs.run_folder.paths import RunPaths


@dataclass(slots=True)
class RunState:
    """Where a run is. Pure: it changes by `apply` alone.

    Attributes:
        paths: Of the run.
        trials: All that were planned, by id.
        in_flight: Attempts that slots have, by trial.
        waiting: Attempts that are to run next, by trial, in this order: of trials whose last
            attempt does not count.
        lost: Trial and number of each attempt that was given up while its search ran.
        retried: How many attempts of each trial count as its retries.
        results: Of the trials that came to an end, in that order.
        ended: The ids of these.
        objective: What the objective is called; None while no outcome has said so. Outcomes of
            trials that finished know better than those of trials that were stopped.
        named_by_finished: Has a trial that finished said what it is called?
        total: How many trials the search has in all, as its last driver said; None before one has.
    """

    paths: RunPaths
    trials: dict[int, Trial] = field(default_factory=dict)
    in_flight: dict[int, Attempt] = field(default_factory=dict)
    waiting: dict[int, Attempt] = field(default_factory=dict)
    lost: set[tuple[int, int]] = field(default_factory=set)
    retried: Counter[int] = field(default_factory=Counter)
    results: list[TrialResult] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    objective: str | None = None
    named_by_finished: bool = False
    total: int | None = None

    def apply(self, record: Record) -> None:
        """Take in a record."""
        match record:
            case Planned(trial=trial):
                self.trials[trial.id] = trial
                self.in_flight[trial.id] = Attempt(trial, record.attempt)
                self.waiting.pop(trial.id, None)
            case Lost(trial=number):
                self.lost.add((number, record.attempt))
                self.retried[number] += record.counts
                self.in_flight.pop(number, None)
                self._run_again(number, record.attempt)
            case Finished(outcome=outcome):
                number = outcome.trial
                self.in_flight.pop(number, None)
                self.waiting.pop(number, None)
                if number not in self.ended:  # the first counts
                    self._end(outcome, record.attempt)
            case Begun():
                self._go_on(record.trials)
            case Reported() | Selected() | Joined() | Left() | Waiting():
                pass  # of how the run came to where it is

    def objective_with(self, outcome: Outcome) -> str | None:
        """Return what the objective is called once an outcome is in."""
        if outcome.objective is None or (outcome.status != "finished" and self.objective):
            return self.objective
        return self.objective if self.named_by_finished else outcome.objective

    def _end(self, outcome: Outcome, number: int) -> None:
        trial = self.trials[outcome.trial]
        self.ended.add(trial.id)
        before, self.objective = self.objective, self.objective_with(outcome)
        self.named_by_finished |= outcome.objective is not None and outcome.status == "finished"
        if before not in (None, self.objective):
            self.results[:] = map(_without_value_if_stopped, self.results)
        folder = self.paths.shown_attempt(trial.id, number)
        result = TrialResult.of(trial, outcome, folder, number)
        if outcome.objective not in (None, self.objective):
            result = replace(result, value=None)
        self.results.append(result)

    def _go_on(self, total: int) -> None:
        """Let run again what was out, and what was cancelled, when the driver before ended."""
        self.total = total
        for attempt in self.in_flight.values():
            self._run_again(attempt.trial.id, attempt.number)
        self.in_flight.clear()
        for result in self.results:
            if result.status == "cancelled":
                self.ended.remove(result.id)
                self._run_again(result.id, result.attempt)
        self.waiting = {trial: self.waiting[trial] for trial in sorted(self.waiting)}
        self.results[:] = [result for result in self.results if result.status != "cancelled"]

    def _run_again(self, trial: int, attempt: int) -> None:
        self.waiting[trial] = Attempt(self.trials[trial], attempt + 1)


def _without_value_if_stopped(result: TrialResult) -> TrialResult:
    """Return a result without what may be another quantity: what a stopped trial reported."""
    return replace(result, value=None) if result.status == "stopped" else result
