"""The state of a run by the records of its journal, for drivers and for readers."""

from __future__ import annotations

from collections import Counter
from dataclasses import KW_ONLY, dataclass, field, replace

from experiment.results.trial_result import TrialResult
from experiment.results.trial_times import TrialTimes
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
    """The state of a run. Pure: only `apply` changes it.

    Attributes:
        paths: The run's paths.
        trials: The planned trials without an outcome, and those that were cancelled, by id. The
            others are in `results`: a long search has many.
        in_flight: Attempts in flight, by trial.
        waiting: The next attempts of trials that are waiting to run again, by trial, in the order
            in which they run.
        lost: Trial and number of each attempt that was given up while its search ran.
        in_gangs: Trial and number of each attempt on several slots of trials without an outcome; a
            failure in its folder is what the slot of rank 0 saw, not the reason.
        times: When and where the last attempt at each trial ran.
        retried: Number of attempts of each trial that count as its retries.
        results: Results of the trials that have an outcome, in the order of the outcomes.
        ended: The ids of these trials.
        objective: The objective's name; None while no outcome has one. Names from finished trials
            replace those from stopped ones.
        named_by_finished: Whether the name is that of a finished trial.
        total: Number of trials of the search, as its last driver recorded it; None before that.
    """

    paths: RunPaths
    _: KW_ONLY
    trials: dict[int, Trial] = field(default_factory=dict)
    in_flight: dict[int, Attempt] = field(default_factory=dict)
    waiting: dict[int, Attempt] = field(default_factory=dict)
    lost: set[tuple[int, int]] = field(default_factory=set)
    in_gangs: set[tuple[int, int]] = field(default_factory=set)
    times: TrialTimes = field(default_factory=TrialTimes)
    retried: Counter[int] = field(default_factory=Counter)
    results: list[TrialResult] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    objective: str | None = None
    named_by_finished: bool = False
    total: int | None = None

    def apply(self, record: Record) -> None:
        """Update the state by a record."""
        match record:
            case Planned(trial=trial):
                self.trials[trial.id] = trial
                self.in_flight[trial.id] = Attempt(trial, record.attempt)
                self.waiting.pop(trial.id, None)
                slots = record.slots or tuple(filter(None, [record.slot]))
                self.times.begin(trial.id, record.at, slots)
                if record.slots:
                    self.in_gangs.add((trial.id, record.attempt))
            case Lost(trial=number):
                self.lost.add((number, record.attempt))
                self.retried[number] += record.counts
                self.in_flight.pop(number, None)
                self.times.end(number, record.at)
                self._run_again(number, record.attempt)
            case Finished(outcome=outcome):
                number = outcome.trial
                if self.in_flight.pop(number, None):  # else its last attempt ended before
                    self.times.end(number, record.at)
                self.waiting.pop(number, None)
                if number not in self.ended:  # the first counts
                    self._end(outcome, record.attempt)
            case Begun():
                self._resume(record.trials)
            case Reported() | Selected() | Joined() | Left() | Waiting():
                pass  # the state has none of these

    def has_planned(self, trial: int) -> bool:
        """Return whether a trial has been planned."""
        return trial in self.trials or trial in self.ended

    def objective_with(self, outcome: Outcome) -> str | None:
        """Return the objective's name after an outcome."""
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
        if outcome.status != "cancelled":  # which runs again when the search is resumed
            del self.trials[trial.id]
            self.in_gangs -= {pair for pair in self.in_gangs if pair[0] == trial.id}

    def _resume(self, total: int) -> None:
        """Let trials run again that were in flight, or cancelled, when the last driver ended."""
        self.total = total
        self.times.begin_application()
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
    """Return a result without a stopped trial's value, which may be of another metric."""
    return replace(result, value=None) if result.status == "stopped" else result
