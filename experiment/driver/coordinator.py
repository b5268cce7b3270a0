"""The driver's side of a search: hands out trials, takes in outcomes, keeps the journal.

No thread, no Spark, no network in here: the channel's server calls `hello` and `next` from its one
thread, and everybody else goes through `ChannelServer.call`.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

from experiment.driver.recorder import Recorder
from experiment.driver.slots.roster import Roster
from experiment.driver.trials.in_flight import InFlight
from experiment.driver.trials.judge import Judge
from experiment.driver.trials.next_attempts import NextAttempts
from experiment.driver.trials.replay import Replay
from experiment.driver.trials.standing import Standing
from experiment.results.result import too_many_failures
from experiment.results.status import Observer, Running, Status
from experiment.results.trial_result import TrialResult
from experiment.run_files.journal import Journal
from experiment.run_files.journal_records import (
    Begun,
    Record,
    WaitReason,
)
from experiment.run_files.left_outcomes import LeftBehind
from experiment.run_files.run_state import RunState
from search.checked_searcher import CheckedSearcher, SearcherFailed
from search.direction import Direction, Goal
from search.searcher import Searcher
from search.stopping import StoppingRule
from search.trial import RETRIED, Failure, FailureKind, Outcome, Trial
from spark_jobs.messages import (
    Answer,
    Attempt,
    Heard,
    Hello,
    Next,
    Reports,
    Stop,
    Wait,
)
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.trial.objective import AmbiguousObjective

_GIVEN_UP = "its slot was given up"


class Coordinator:
    """Drives a searcher with what slots ask and tell.

    Args:
        searcher: Owned by the coordinator from now on.
        paths: Of the run.
        journal: Gets every decision before anyone hears of it.
        direction: Of the objective, or of each of several; then there is no stopping.
        observers: Told of each result, in this order; one that raises is left out from then on.
        max_failures: More failed trials than that are a `problem`.
        retries: How often a trial runs again.
        retry_on: After which failures.
        stopping: Rules by which trials are stopped; the searcher may have its own, too.
        optimization_key: Which of the metrics that trials report is the objective.
        target: A value of the objective with which the search ends; None goes on without.
        slots: How many slots the search asked for.
        warn: Shows the user a sentence.
        clock: Seconds that only grow.
        now: Seconds since 1970, for the journal.

    Attributes:
        state: Where the run is, as its journal says.
        roster: The slots.
        standing: What is shown of the search.
        problem: Why the search cannot go on, in one sentence; None while it can.
    """

    def __init__(
        self,
        searcher: Searcher,
        paths: RunPaths,
        journal: Journal,
        *,
        direction: Goal = Direction.MAX,
        observers: Sequence[Observer] = (),
        max_failures: int | None = None,
        retries: int = 3,
        retry_on: Collection[FailureKind] = RETRIED,
        stopping: Sequence[StoppingRule] = (),
        optimization_key: str | None = None,
        target: float | None = None,
        slots: int = 1,
        warn: Callable[[str], None] = warnings.warn,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._searcher = CheckedSearcher(searcher)
        self._total = 0
        self.state = RunState(paths)
        self._recorder = Recorder(journal, self.state, now)
        self._clock = clock
        self._max_failures = max_failures
        self._warn = warn
        self.problem: str | None = None
        self.standing = Standing(
            self.state, direction=direction, target=target, observers=observers, warn=warn
        )
        self._judge = Judge(
            direction,
            optimization_key,
            stopping,
            self._searcher.judge,
            state=self.state,
            warn=self._warn_once,
        )
        self._in_flight = InFlight(clock)
        self._attempts = NextAttempts(self.state, retries=retries, retry_on=retry_on)
        self.roster = Roster(slots)
        self._warned: set[str] = set()
        self._gpus_warned = self._detour_told = False

    @property
    def done(self) -> bool:
        """Has every trial of the search come to an end?"""
        return self._asks_no_more and not self._in_flight and not self.state.waiting

    @property
    def results(self) -> Sequence[TrialResult]:
        """Those of the trials that came to an end, in that order; the sequence goes on growing."""
        return self.state.results

    @property
    def _asks_no_more(self) -> bool:
        """Has the searcher nothing to ask for any more? One that cannot say so ends the search."""
        try:
            return self._searcher.finished
        except SearcherFailed as error:
            self.problem = self.problem or str(error)
            return False

    @property
    def _trials_in_all(self) -> int:
        """How many trials there will be, as the searcher last said."""
        try:
            self._total = self._searcher.total
        except SearcherFailed as error:
            self.problem = self.problem or str(error)
        return self._total

    @property
    def target_reached(self) -> bool:
        """Is the best trial as good as the target, so that no more is to be tried?"""
        return self.standing.target_reached

    @property
    def progress(self) -> int:
        """How many attempts have come to an end by themselves; grows until the search is done."""
        return len(self.results) + self.state.retried.total()

    @property
    def left(self) -> int:
        """How many trials may still be handed out, those that are to run again too."""
        if self._asks_no_more:
            return len(self.state.waiting)
        return max(0, self._trials_in_all - len(self.results) - len(self._in_flight))

    @property
    def status(self) -> Status:
        """How far the search is. From another thread, too: each part of it is read at once."""
        return self.standing.status(
            total=self._trials_in_all,
            running=self._in_flight.running,
            slots=len(self.roster),
        )

    def begin(
        self,
        begun: Begun,
        records: Iterable[Record] = (),
        left: Iterable[LeftBehind] = (),
        matches: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin a segment of the journal, and bring a search to where the ones before say it was.

        Trials that were out run again, as new attempts, unless they left an outcome.

        Args:
            begun: Begins the new segment.
            records: Of the journal so far, see `read_records`.
            left: What trials that the journal knows no end of have left in their folders.
            matches: Called when the journal has turned out to be one of this search, and before
                anything is written.

        Raises:
            InvalidArgument: The searcher asks for other trials than those in the journal.
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
            said = before[trial]
            if not self._end_by_folder(said.attempt.trial) and said.stop:
                # nobody wants it to run again
                last = self._judge.stopped(trial, said.stop, said.last, 0.0)
                self._end(said.attempt, last)

    def hello(self, message: Hello) -> None:
        """See `spark_jobs.channel.exchange.Handler`."""
        if not self.roster.hear(message):
            return
        for warning in (*message.warnings, *self.roster.gpus.hear(message)):
            self._warn_once(warning)
        if message.detour and not self._detour_told:
            self._detour_told = True
            self._warn(message.detour)
        if message.problem:
            self.roster.hosts.exclude(message.host, message.problem)
            self._give_up(message.slot, Failure("machine", message.problem))
        else:
            self._join(message)
        self._warn_of_hosts()

    def _join(self, message: Hello) -> None:
        is_new = self.roster.host(message.slot) is None
        if not self.roster.join(message.slot, message.host):
            return
        if is_new:
            self._recorder.joined(message.slot, message.host, message.gpus)
        if message.free_gpus:
            self._warn_of_gpus(message)

    def next(self, message: Next) -> Answer:
        """See `spark_jobs.channel.exchange.Handler`."""
        slot = message.slot
        if message.outcome is not None:
            self._in_flight.prepared(slot)
            self._take(slot, message.attempt, message.outcome)
        host = self.roster.host(slot)
        if self.problem is not None or self.target_reached or host is None:
            return Stop()  # nobody would notice the end of a slot that Spark has given up
        if out := self._in_flight.on(slot):  # the answer to its last call got lost
            return out.attempt
        attempt = self._next_for(host) if self.roster.gets_work(slot) else None
        if attempt is not None:
            self._recorder.planned(attempt, (slot,))
            self._in_flight.add(attempt, (slot,))
            return attempt
        nothing_left = self.roster.is_leaving(slot) or (
            self._asks_no_more and not self.state.waiting
        )
        excluded = self.roster.hosts.is_excluded(host)
        if excluded or (nothing_left and not self._in_flight.is_doubled(slot)):
            self.roster.end(slot)
            why = "its host gets no more work" if excluded else "nothing is left"
            self._recorder.left(slot, why)
            return Stop()
        if self.problem is None:  # what trials had left behind may have ended the search
            self.problem = self.roster.gpus_problem(len(self._in_flight), self._clock())
        if self.problem is not None:
            return Stop()
        self._recorder.waits(slot, "nothing left" if nothing_left else self._why_it_waits(slot))
        return Wait()

    def _why_it_waits(self, slot: str) -> WaitReason:
        if self.roster.gpus.reasons(slot):
            return "gpu set aside"
        return "host avoided" if self.state.waiting else "no trial yet"

    def alike(self, slot: str) -> Hashable:
        """See `Handler` in exchange.py: host, GPUs and executor decide what it may run."""
        return self.roster.alike(slot)

    def report(self, message: Reports) -> Heard:
        """See `spark_jobs.channel.exchange.Handler`."""
        if self._in_flight.find(message.slot, message.trial, message.attempt) is None:
            return Heard(_GIVEN_UP)
        if message.output:
            self.standing.output.append((message.trial, message.output))
        self._in_flight.prepared(message.slot)
        stop = self._judge_reports(message)
        return Heard(self._in_flight.report(message.slot, message.reports, stop))

    def _judge_reports(self, message: Reports) -> str:
        """Return why a trial is to stop; '' where it may go on."""
        if self.problem is not None:
            return ""
        try:
            verdict = self._judge.report(message.trial, message.reports)
        except (AmbiguousObjective, SearcherFailed) as error:
            self.problem = str(error)
            return ""
        if verdict.reports:
            self._recorder.reported(message.trial, message.attempt, verdict.reports)
        return verdict.reason or ""

    def slots_lost(self, slots: Iterable[str]) -> None:
        """Run the trials again that were out on slots whose tasks Spark has lost."""
        again = self._lose(slots, lambda where: f"its executor{where} was lost", counts=True)
        for where, trials in again.items():
            self.standing.notes.append(f"executor{where} lost, {_run_again(sorted(trials))}")

    def slots_ended(self, slots: Iterable[str], *, counts: bool) -> None:
        """Run the trials again that were out on slots that Spark has ended, which is not theirs.

        Args:
            slots: The slots.
            counts: Does that count as one of the trials' retries?
        """
        again = self._lose(slots, lambda where: f"Spark ended its slot's job{where}", counts=counts)
        if trials := sorted(itertools.chain.from_iterable(again.values())):
            self.standing.notes.append(f"Spark ended the slot's job, {_run_again(trials)}")

    def _lose(
        self, slots: Iterable[str], reason: Callable[[str], str], *, counts: bool
    ) -> dict[str, list[int]]:
        """Give slots up; return the trials that run again by the place of their slot."""
        again: dict[str, list[int]] = {}
        for slot in slots:
            if not self.roster.lose(slot):
                continue
            host, waiting = self.roster.host(slot), len(self.state.waiting)
            where = f" on host {host}" if host else ""
            self._give_up(slot, Failure("lost executor", reason(where)), counts=counts)
            if trials := list(self.state.waiting)[waiting:]:
                again.setdefault(where, []).extend(trials)
        return again

    def slots_leaving(self, slots: Collection[str]) -> None:
        """Let slots whose executors are being decommissioned end their trials, and take no more."""
        for host in self.roster.decommission(slots):
            self.standing.notes.append(
                f"executor on host {host} is decommissioned, it gets no more trials"
            )

    def job_ended(self, job: int, *, counts: bool = False) -> None:
        """Take in that the slots of a job are gone; see whether any host is left.

        Args:
            job: Its number.
            counts: Does the end of a slot count as one of its trial's retries? Those of lost tasks
                do, see `slots_lost`; so may all where nobody knows which tasks Spark has lost.
        """
        self.roster.job_over(job)
        self.slots_ended(self.roster.of_job(job), counts=counts)
        nobody = self.roster.forget_job(job)
        self.problem = self.problem or nobody

    def cancel_rest(self) -> None:
        """Record the trials that are still out as cancelled; the search has ended without them."""
        now = self._clock()
        out = [(out.attempt, out.seconds(now)) for out in self._in_flight.running]
        for attempt, seconds in [*out, *((ran, 0.0) for ran in self._attempts.before())]:
            self._record(attempt, Outcome(attempt.trial.id, "cancelled", seconds=seconds))

    def _next_for(self, host: str) -> Attempt | None:
        """Return what a slot of a host is to run; None where there is nothing for now."""
        if self.state.waiting:  # seldom; it goes through all slots
            again = self._attempts.again(self.roster.avoids(host))
            if again is not None:
                return again
        while self.problem is None and (trial := self._ask()):
            if not self._end_by_folder(trial):
                return self._attempts.first(trial)
        return None

    def _ask(self) -> Trial | None:
        try:
            return self._searcher.ask()
        except SearcherFailed as error:
            self.problem = str(error)
            return None

    def _end_by_folder(self, trial: Trial) -> bool:
        """Take in the end that a trial has left in its folder; False where it is to run."""
        end = self._attempts.end_found(trial)
        if end is None:
            return False
        self._recorder.planned(end[0], ())
        self._end(*end)
        return True

    def _take(self, slot: str, number: int, outcome: Outcome) -> None:
        out = self._in_flight.find(slot, outcome.trial, number)
        if out is None:
            return  # told before, or of an attempt that was given up
        if outcome.error is not None and outcome.error.kind == "machine":
            host = self.roster.host(slot) or ""
            self.roster.hosts.died(host, outcome.trial, outcome.error.message)
            self._warn_of_hosts()
        if outcome.error is not None and self._attempts.is_retried(outcome):
            self._try_again(out, slot, outcome.error, outcome.seconds)
        else:
            self._end(out.attempt, outcome)

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Take in the outcome of a trial that does not run again."""
        self._record(attempt, self._judge.held(outcome))

    def _try_again(
        self, out: Running, slot: str, failure: Failure, seconds: float, *, counts: bool = True
    ) -> None:
        """Let a trial that failed on a slot run again, unless it was to stop: nobody wants that."""
        attempt, trial = out.attempt, out.attempt.trial.id
        if out.stop:
            self._end(attempt, self._judge.stopped(trial, out.stop, out.last, seconds))
            return
        self._recorder.lost(attempt, slot, failure, counts=counts)
        told = f"attempt {attempt.number} has failed, it runs again: {failure.message}\n"
        self.standing.output.append((trial, told))
        self._in_flight.remove(trial)

    def _record(self, attempt: Attempt, outcome: Outcome) -> None:
        """Write an outcome to the journal, then tell everybody."""
        self._recorder.finished(attempt, outcome)
        self._ended(outcome)
        if outcome.status == "cancelled":  # nobody has tried it: it runs again after a resume
            self._recorder.drop_selections()
        self._recorder.write_selections()

    def _ended(self, outcome: Outcome) -> None:
        """Tell everybody of an outcome that the journal and the state of the run have."""
        self._in_flight.remove(outcome.trial)
        result = self.results[-1]
        self.standing.take(result)
        try:
            self._searcher.tell(self._judge.scored(outcome))
            self._recorder.selected(self._searcher.selections)
            self._judge.ended(outcome)
        except SearcherFailed as error:
            self.problem = self.problem or str(error)
        self.standing.tell(result, self.status)
        if outcome.error is not None:
            self._judge_failure(outcome.error)

    def _judge_failure(self, failure: Failure) -> None:
        if self.problem is not None:
            return
        if failure.kind == "ambiguous objective":
            self.problem = failure.message
        elif self._max_failures is not None and self.standing.failed > self._max_failures:
            self.problem = too_many_failures(self.standing.failed, self._max_failures)

    def _give_up(self, slot: str, failure: Failure, *, counts: bool = True) -> None:
        """Give a slot up, with the trial that may be out on it; it may count as a retry of that."""
        host, out = self.roster.leave(slot), self._in_flight.on(slot)
        if host:
            self._recorder.left(slot, failure.message)
        if out is None:
            return
        attempt, seconds = out.attempt, out.seconds(self._clock())
        trial = attempt.trial.id
        outcome = Outcome(trial, "failed", error=failure, seconds=seconds)
        if out.stop or not counts or self._attempts.is_retried(outcome):
            self._try_again(out, slot, failure, seconds, counts=counts)
        else:
            self.roster.hosts.died(host, trial, failure.message)  # for good
            self._end(attempt, outcome)

    def _warn_once(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            self._warn(warning)

    def _warn_of_hosts(self) -> None:
        for warning in self.roster.warnings():
            self._warn_once(warning)

    def _warn_of_gpus(self, message: Hello) -> None:
        if not self._gpus_warned:
            self._gpus_warned = True
            self._warn(self.roster.shared_gpus(message))


def _run_again(trials: Sequence[int]) -> str:
    if len(trials) == 1:
        return f"trial {trials[0]} runs again"
    return f"trials {', '.join(map(str, trials[:-1]))} and {trials[-1]} run again"
