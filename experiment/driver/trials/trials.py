"""The trials of a running search: the next attempts, and their outcomes."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence, Sized
from typing import TypeVar

from experiment.driver.recorder import Recorder
from experiment.driver.trials.in_flight import InFlight
from experiment.driver.trials.judge import Judge
from experiment.driver.trials.next_attempts import NextAttempts
from experiment.driver.trials.replay import Replay
from experiment.driver.trials.standing import Standing
from experiment.results.result import too_many_failures
from experiment.results.status import Observer, Output, Overview, Running, Status
from experiment.results.trial_result import TrialResult
from experiment.run_files.journal_records import Begun, Record
from experiment.run_files.left_outcomes import LeftBehind
from experiment.setup.workers import ALONE, Workers
from search.checked_searcher import CheckedSearcher, SearcherFailed
from search.direction import Direction, Goal
from search.searcher import Searcher
from search.stopping.rules import StoppingRule
from search.trial import RETRIED, Failure, FailureKind, Outcome, Trial
from spark_jobs.messages import Attempt, Reports
from spark_jobs.trial.objective import AmbiguousObjective

T = TypeVar("T")

_STEPS_UNUSED = (
    "trials neither report steps nor ask for experiment.max_steps(), so each of them may train in "
    "full; add experiment.keras_callbacks() to model.fit, or call experiment.report(step=...)"
)


class Trials:
    """Gives the trials of a searcher to slots as attempts, and takes their outcomes.

    A slot is only a name here: callers decide which slots there are and which of them get trials.

    Args:
        searcher: The searcher, owned by this object from now on.
        recorder: The run's recorder, with the state of the run.
        slots: The present slots; only counted, for the status.
        workers: Number of slots of each trial; only for the status. Default: one.
        at_once: Maximum number of trials in flight; None for as many as slots are enough for.
        direction: Direction of the objective, or of each of several; then no trial is stopped.
        observers: Observers that receive each result, in this order; one that raises is removed.
        max_failures: Number of failed trials that are allowed; one more ends the search.
        retries: Maximum number of retries of a trial.
        retry_on: The kinds of failures that are retried.
        stopping: The stopping rules; the searcher may have its own, too.
        optimization_key: The name of the objective among the reported metrics.
        repeats: Number of calls of the train function in each trial.
        target: The objective's value at which the search ends, or None.
        grows: Whether trials are added while the search runs.
        warn: Called with each warning for the user.
        clock: Monotonic time in seconds.

    Attributes:
        state: The state of the run, by its journal.
        standing: The status of the search.
        problem: Why the search cannot continue, in one sentence; None while it can.
    """

    def __init__(
        self,
        searcher: Searcher,
        recorder: Recorder,
        *,
        slots: Sized = (),
        workers: Workers = ALONE,
        at_once: int | None = None,
        direction: Goal = Direction.MAX,
        observers: Sequence[Observer] = (),
        max_failures: int | None = None,
        retries: int = 3,
        retry_on: Collection[FailureKind] = RETRIED,
        stopping: Sequence[StoppingRule] = (),
        optimization_key: str | None = None,
        repeats: int = 1,
        target: float | None = None,
        grows: bool = False,
        warn: Callable[[str], None] = warnings.warn,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._searcher = CheckedSearcher(searcher, grows=grows)
        self._recorder = recorder
        self._slots = slots
        self._workers = workers
        self._at_once = at_once
        self._clock = clock
        self._warn = functools.cache(warn)  # each sentence once
        self._max_failures = max_failures
        self._total = 0
        self.state = recorder.state
        self.problem: str | None = None
        self.standing = Standing(
            self.state, direction=direction, target=target, observers=observers, warn=warn
        )
        self._judge = Judge(
            direction,
            optimization_key,
            stopping,
            self._searcher.judge,
            repeats=repeats,
            group_of=self._searcher.group_of,
            state=self.state,
            warn=self._warn,
        )
        self._in_flight = InFlight(clock)
        self._attempts = NextAttempts(
            self.state, retries=retries, retry_on=retry_on, held=self._judge.held
        )

    @property
    def results(self) -> Sequence[TrialResult]:
        """The results of ended trials, in the order of their ends; the sequence grows."""
        return self.state.results

    @property
    def nothing_left(self) -> bool:
        """Whether no slot will get a trial, unless one in flight fails and is retried."""
        return self._asks_no_more and not self.state.waiting

    @property
    def done(self) -> bool:
        """Whether every trial of the search has ended."""
        return self.nothing_left and not self._in_flight

    @property
    def judges_reports(self) -> bool:
        """Whether stopping rules need each report of each trial."""
        return self._judge.rules

    @property
    def target_reached(self) -> bool:
        """Whether the best trial has reached the target, so that the search ends."""
        return self.standing.target_reached

    @property
    def progress(self) -> int:
        """Number of ended trials and counted retries; grows until the search is done."""
        return len(self.results) + self.state.retried.total()

    @property
    def left(self) -> int:
        """Maximum number of trials that slots may still get, including retries."""
        if self._asks_no_more:
            return len(self.state.waiting)
        return max(0, self._trials_in_all - len(self.results) - self.in_flight)

    @property
    def in_flight(self) -> int:
        """Number of trials in flight."""
        return len(self._in_flight)

    @property
    def is_full(self) -> bool:
        """Whether as many trials are in flight as may be."""
        return self._at_once is not None and self.in_flight >= self._at_once

    @property
    def overview(self) -> Overview:
        """The state of the search. Thread safe: each part of it is read at once."""
        return self.standing.overview(
            total=self._trials_in_all,
            in_flight=self.in_flight,
            slots=len(self._slots),
            at_once=self._workers.at_once(len(self._slots)),
        )

    @property
    def status(self) -> Status:
        """The same with the trials in flight, which are copied. Thread safe."""
        return self.overview.with_running(self._in_flight.running)

    @property
    def _asks_no_more(self) -> bool:
        """Whether the searcher proposes no more trials."""
        return self._of_searcher(lambda: self._searcher.finished, False)

    @property
    def _trials_in_all(self) -> int:
        """Number of trials of the search, by the searcher's last answer."""
        self._total = self._of_searcher(lambda: self._searcher.total, self._total)
        return self._total

    def fail(self, problem: str | None) -> None:
        """End the search early; the first reason counts, and None is ignored."""
        self.problem = self.problem or problem

    def begin(
        self,
        begun: Begun,
        records: Iterable[Record] = (),
        left: Iterable[LeftBehind] = (),
        matches: Callable[[], None] = lambda: None,
    ) -> None:
        """Start a segment of the journal, and restore the state of the search from earlier ones.

        Trials that were in flight run again, as new attempts, unless their folders have an outcome.

        Args:
            begun: The first record of the new segment.
            records: The records of the journal so far, see `read_records`.
            left: Outcomes in the folders of trials without one in the journal.
            matches: Called when the journal is known to be of this search, before the first write.

        Raises:
            InvalidArgument: The searcher proposes other trials than those in the journal.
            SearcherFailed: The searcher or its judge raised.
            OSError: The journal cannot be written.
        """
        replay = Replay(
            self.state,
            searcher=self._searcher,
            judge=self._judge,
            in_flight=self._in_flight,
            ended=self._ended,
            selected=self._recorder.has_selected,
        )
        before = replay.run(records)
        matches()
        self._recorder.begun(begun)
        self._recorder.write_selections()
        self._attempts.found(left)
        for trial in sorted(self.state.waiting):
            running = before[trial]
            if not self._end_by_folder(running.attempt.trial, running.stop) and running.stop:
                # a stopped trial does not run again
                last = self._judge.stopped(trial, running.stop, running.last, 0.0)
                self._end(running.attempt, last)

    def next(
        self, pick: Callable[[int | None], tuple[str, ...]]
    ) -> tuple[Attempt, tuple[str, ...]] | None:
        """Give free slots an attempt; return it with its slots, or None if there is none for now.

        Args:
            pick: Returns the slots for a retried trial, by its id, or for any other one, by None;
                empty if there are none for now.
        """
        slots = () if self.is_full else pick(None)
        if not slots:
            return None
        planned = self._attempts.again(pick)
        if planned is None:
            first = self._first()
            planned = None if first is None else (first, slots)
        if planned is not None:
            trial = planned[0].trial.id
            acquisition = self._of_searcher(lambda: self._searcher.acquisition_of(trial), None)
            self._recorder.planned(*planned, acquisition)
            self._in_flight.add(*planned)
        return planned

    def is_doubled(self, slot: str) -> bool:
        """Return whether another attempt of the slot's task has a trial; Spark would kill it."""
        return self._in_flight.is_doubled(slot)

    def report(self, message: Reports) -> str:
        """Take a trial's reports; return why it has to stop, or ''."""
        running = self._in_flight.find(message.slot, message.trial, message.attempt)
        if running is None:  # it has ended, and this slot's part in it has not
            return ""
        if message.output:
            worker = running.slots.index(message.slot)
            self.standing.output.append(Output(message.trial, message.output, worker))
        self._in_flight.prepared(message.slot)
        stop = self._judge_reports(message)
        return self._in_flight.report(message.slot, message.reports, stop)

    def take(self, slot: str, number: int, outcome: Outcome) -> bool:
        """Take the outcome of an attempt.

        Args:
            slot: The slot that sends it.
            number: The attempt's number.
            outcome: The attempt's outcome.

        Returns:
            Whether it is new: False if it was taken before, or the attempt was given up.
        """
        self._in_flight.prepared(slot)
        running = self._in_flight.find(slot, outcome.trial, number)
        if running is None:
            return False
        outcome = self._judge.held(outcome)
        if outcome.error is not None and self._attempts.is_retried(outcome, running.stop):
            self._retry(running, slot, outcome.error, outcome.seconds)
        else:
            self._end(running.attempt, outcome)
        return True

    def give_up(self, slot: str, failure: Failure, *, counts: bool = True) -> int | None:
        """Handle the loss of a slot: its trial runs again, or has failed.

        Args:
            slot: The slot.
            failure: Why the slot was lost.
            counts: Whether it counts as a retry of the trial.

        Returns:
            The id of the trial that has failed and does not run again; None if there is none.
        """
        running = self._in_flight.on(slot)
        if running is None:
            return None
        seconds, trial = running.seconds(self._clock()), running.attempt.trial.id
        outcome = Outcome(trial, "failed", error=failure, seconds=seconds)
        if running.stop or not counts or self._attempts.is_retried(outcome):
            self._retry(running, slot, failure, seconds, counts=counts)
            return None
        self._end(running.attempt, outcome)
        return trial

    def cancel_rest(self) -> None:
        """Record the trials that have not ended at the end of the search as cancelled."""
        now = self._clock()
        running = [(run.attempt, run.seconds(now)) for run in self._in_flight.running]
        for attempt, seconds in [*running, *((ran, 0.0) for ran in self._attempts.before())]:
            self._record(attempt, Outcome(attempt.trial.id, "cancelled", seconds=seconds))

    def _of_searcher(self, call: Callable[[], T], otherwise: T) -> T:
        """Return the result of a call to the searcher; end the search if it raises."""
        try:
            return call()
        except SearcherFailed as error:
            self.fail(str(error))
            return otherwise

    def _first(self) -> Attempt | None:
        """Return the first attempt of the next trial that the searcher proposes, or None."""
        while self.problem is None and (trial := self._of_searcher(self._searcher.ask, None)):
            if not self._end_by_folder(trial):
                return self._attempts.first(trial)
        return None

    def _end_by_folder(self, trial: Trial, stop: str = "") -> bool:
        """Take the outcome in a trial's folder; return False if that does not end the trial."""
        end = self._attempts.end_found(trial, stop)
        if end is None:
            return False
        self._recorder.planned(end[0], ())
        self._end(*end)
        return True

    def _judge_reports(self, message: Reports) -> str:
        """Return why a trial has to stop; '' if it may continue."""
        if self.problem is not None:
            return ""
        try:
            reason, judged = self._judge.report(message.trial, message.reports)
        except (AmbiguousObjective, SearcherFailed) as error:
            self.fail(str(error))
            return ""
        if judged:
            self._recorder.reported(message.trial, message.attempt, judged)
        return reason or ""

    def _retry(
        self, running: Running, slot: str, failure: Failure, seconds: float, *, counts: bool = True
    ) -> None:
        """Let a trial that failed on a slot run again, unless it had to stop anyway."""
        attempt, trial = running.attempt, running.attempt.trial.id
        if running.stop:
            self._end(attempt, self._judge.stopped(trial, running.stop, running.last, seconds))
            return
        self._recorder.lost(attempt, slot, failure, counts=counts)
        line = f"attempt {attempt.number} has failed, it runs again: {failure.message}\n"
        self.standing.output.append(Output(trial, line))
        self._in_flight.remove(trial)

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Take the outcome, as `Judge.held` returns it, of a trial that does not run again."""
        limit = attempt.trial.max_steps
        if limit is not None and outcome.status == "finished" and outcome.step is None:
            self._warn(_STEPS_UNUSED)
        self._record(attempt, outcome)

    def _record(self, attempt: Attempt, outcome: Outcome) -> None:
        """Write an outcome to the journal, then pass it on."""
        self._recorder.finished(attempt, outcome)
        self._ended(outcome)
        if outcome.status == "cancelled":  # the trial runs again after a resume
            self._recorder.drop_selections()
        self._recorder.write_selections()

    def _ended(self, outcome: Outcome) -> None:
        """Pass an outcome of the run's state to the searcher, the judge and the observers."""
        self._in_flight.remove(outcome.trial)
        result = self.results[-1]
        self.standing.take(result)
        self._of_searcher(lambda: self._tell_searcher(outcome), None)
        self.standing.tell(result, self.overview)
        if outcome.error is not None:
            self._judge_failure(outcome.error)

    def _tell_searcher(self, outcome: Outcome) -> None:
        self._searcher.tell(self._judge.scored(outcome))
        self._recorder.selected(self._searcher.selections)
        self._judge.ended(outcome)

    def _judge_failure(self, failure: Failure) -> None:
        if failure.kind == "ambiguous objective":
            self.fail(failure.message)
        elif self._max_failures is not None and self.standing.failed > self._max_failures:
            self.fail(too_many_failures(self.standing.failed, self._max_failures))
