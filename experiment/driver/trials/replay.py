"""Restores the state of a searcher and a judge from the journal of their search."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from experiment.driver.trials.in_flight import InFlight
from experiment.driver.trials.judge import Judge
from experiment.results.status import Running
from experiment.run_files.journal_records import (
    Begun,
    Finished,
    Lost,
    Planned,
    Record,
    Reported,
    Selected,
)
from experiment.run_files.run_state import RunState
from search.checked_searcher import CheckedSearcher
from search.errors import InvalidArgument
from search.trial import Outcome, Trial
from spark_jobs.messages import as_json


class Replay:
    """Repeats the calls to a searcher, a judge and the state of a run by the journal.

    Args:
        state: The state of the run.
        searcher: The searcher, which has not been used.
        judge: The judge, which has not been used.
        in_flight: The attempts in flight at each record; empty at the end.
        ended: Called with each outcome after the state has it.
        selected: Called with the trials whose selections the journal has.
    """

    def __init__(
        self,
        state: RunState,
        *,
        searcher: CheckedSearcher,
        judge: Judge,
        in_flight: InFlight,
        ended: Callable[[Outcome], None],
        selected: Callable[[Collection[int]], None],
    ) -> None:
        self._state = state
        self._searcher = searcher
        self._judge = judge
        self._in_flight = in_flight
        self._ended = ended
        self._selected = selected
        self._last: dict[int, Running] = {}

    def run(self, records: Iterable[Record]) -> dict[int, Running]:
        """Replay the records of a journal.

        Returns:
            Each trial's last attempt, with its last report and why it had to stop.

        Raises:
            InvalidArgument: The searcher proposes other trials than those in the journal.
            SearcherFailed: The searcher or its judge raised.
        """
        for record in records:
            self._take(record)
        self._in_flight.clear()
        return self._last

    def _take(self, record: Record) -> None:
        match record:
            case Planned():
                self._plan(record)
            case Reported() if self._judge.rules:
                self._report(record)
            case Finished() if self._is_end(record):
                self._state.apply(record)
                self._ended(record.outcome)
            case Selected():
                self._selected({selection.trial for selection in record.selections})
            case Begun():
                self._state.apply(record)
                self._in_flight.clear()
            case Lost():
                self._state.apply(record)
                self._in_flight.remove(record.trial)
            case _:
                self._state.apply(record)

    def _is_end(self, record: Finished) -> bool:
        """Return whether it is the trial's outcome: the first one, and not 'cancelled'."""
        outcome = record.outcome
        return outcome.status != "cancelled" and outcome.trial not in self._state.ended

    def _plan(self, record: Planned) -> None:
        trial = record.trial.id
        if not self._state.has_planned(trial):
            self._ask_again(record.trial)
        self._state.apply(record)
        attempt = self._state.in_flight[trial]
        self._in_flight.add(attempt, ())  # its slot belonged to an earlier driver
        self._last[trial] = Running(attempt=attempt, since=None)

    def _ask_again(self, before: Trial) -> None:
        trial = self._searcher.ask_again(before)
        if trial is before:
            return
        if trial is None or as_json(trial) != as_json(before):
            now = "no trial" if trial is None else f"trial {trial.id} with {dict(trial.params)}"
            then = f"trial {before.id} with {dict(before.params)}"
            hint = (
                "use the same points, versions of packages and kind of processor as before; a "
                "searcher that plans by its number of trials cannot get more of them"
            )
            raise InvalidArgument("resume", f"the search that began, with {then}", now, hint)

    def _report(self, record: Reported) -> None:
        for report in record.reports:
            (value,) = report.metrics.values()
            stop = self._judge.replay(record.trial, report.step, value) or ""
            if record.trial in self._last:
                last = replace(self._last[record.trial], last=report, stop=stop)
                self._last[record.trial] = last
