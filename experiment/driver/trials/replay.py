"""Brings a searcher and a judge to where the journal of their search says that they were."""

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
    """Asks a searcher, a judge and the state of a run again what a journal says they were asked.

    Args:
        state: The state of the run.
        searcher: The searcher, which has been asked nothing.
        judge: The judge, which has heard nothing.
        in_flight: What runs; holds what ran at each record, and nothing in the end.
        ended: Called with each outcome that the state has just got.
        selected: Called with the trials whose selection the journal has.
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
        """Take in the records of a journal.

        Returns:
            Each trial's last attempt, with what it reported last and why it was to stop.

        Raises:
            InvalidArgument: The searcher asks for other trials than those in the journal.
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
                held = self._judge.held_to_one(record.outcome)
                self._state.apply(Finished(record.attempt, held, at=record.at))
                self._ended(held)
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
        """Is a trial over with this? The first end counts, and what was cancelled runs again."""
        outcome = record.outcome
        return outcome.status != "cancelled" and outcome.trial not in self._state.ended

    def _plan(self, record: Planned) -> None:
        trial = record.trial.id
        if trial not in self._state.trials:
            self._ask_again(record.trial)
        self._state.apply(record)
        attempt = self._state.in_flight[trial]
        self._in_flight.add(attempt, ())  # its slot was one of a driver before
        self._last[trial] = Running(attempt=attempt, since=None)

    def _ask_again(self, before: Trial) -> None:
        trial = self._searcher.ask_again(before)
        if trial is None or as_json(trial) != as_json(before):
            now = "no trial" if trial is None else f"trial {trial.id} with {dict(trial.params)}"
            then = f"trial {before.id} with {dict(before.params)}"
            hint = "see that points and versions of the packages are what they were"
            raise InvalidArgument("resume", f"the search that began, with {then}", now, hint)

    def _report(self, record: Reported) -> None:
        for report in record.reports:
            (value,) = report.metrics.values()
            stop = self._judge.replay(record.trial, report.step, value) or ""
            if record.trial in self._last:
                last = replace(self._last[record.trial], last=report, stop=stop)
                self._last[record.trial] = last
