"""The driver's side of a search: hands out trials, takes in outcomes, keeps the journal.

No thread, no Spark, no network in here: the channel's server calls `hello` and `next` from its one
thread, and everybody else goes through `ChannelServer.call`.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from experiment.journal import Journal
from experiment.result import TrialResult
from experiment.status import Running, Status
from search.direction import Direction
from search.searcher import Searcher
from search.stopping import StoppingRule, start_all
from search.trial import Outcome
from spark_jobs.objective import AmbiguousObjective, Objective
from spark_jobs.paths import RunPaths
from spark_jobs.protocol import (
    Answer,
    Attempt,
    Heard,
    Hello,
    Next,
    ProtocolError,
    Reports,
    Stop,
    Wait,
    outcome_of_json,
    outcome_to_json,
    work_of,
)
from spark_jobs.trial_process import stopped

_MOST_OUTPUT = 1_000  # pieces that wait to be shown
_GIVEN_UP = "its slot was given up"


class Observer(Protocol):
    """Hears of each trial that came to an end, after the journal has it."""

    def ended(self, result: TrialResult, status: Status) -> None:
        """Take in a result, and how far the search is with it."""


class Coordinator:
    """Drives a searcher with what slots ask and tell.

    Args:
        searcher: Owned by the coordinator from now on.
        paths: Of the run.
        journal: Gets every decision before anyone hears of it.
        direction: Of the objective.
        observers: Told of each result, in this order; one that raises is left out from then on.
        max_failures: More failed trials than that are a `problem`.
        stopping: Rules by which trials are stopped.
        optimization_key: Which of the metrics that trials report is the objective.
        slots: How many slots the search asked for.
        warn: Shows the user a sentence.
        clock: Seconds that only grow.

    Attributes:
        results: Of the trials that came to an end, in that order.
        problem: Why the search cannot go on, in one sentence; None while it can.
        has_started: Has any slot ever said its first words?
    """

    def __init__(
        self,
        searcher: Searcher,
        paths: RunPaths,
        journal: Journal,
        *,
        direction: Direction = Direction.MAX,
        observers: Sequence[Observer] = (),
        max_failures: int | None = None,
        stopping: Sequence[StoppingRule] = (),
        optimization_key: str | None = None,
        slots: int = 1,
        warn: Callable[[str], None] = warnings.warn,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._searcher, self._paths, self._journal = searcher, paths, journal
        self._direction, self._clock = direction, clock
        self._observers, self._max_failures, self._warn = list(observers), max_failures, warn
        self.results: list[TrialResult] = []
        self.problem: str | None = None
        self.has_started = False
        self._output: deque[tuple[int, str]] = deque(maxlen=_MOST_OUTPUT)
        self._judge = start_all(stopping, direction) if stopping else None
        self._objective_of = Objective(optimization_key, direction)
        self._unjudged: dict[int, list[str]] = {}  # what trials reported instead of the objective
        self._judged = False  # has any report told the rules of the objective?
        self._objective: str | None = None
        self._returned = False  # has a finished trial said that it is called so?
        self._best: TrialResult | None = None
        self._failures = self._cancelled = 0
        self._finished, self._seconds = 0, 0.0  # finished trials, and what they took in all
        self._running: Mapping[str, Running] = {}  # by slot; replaced, since others look at it
        self._again: deque[Attempt] = deque()
        self._slots: dict[str, None] = {}  # in the order of their first words
        self._lost: set[str] = set()  # slots
        self._over: set[int] = set()  # jobs
        self._warned: set[str] = set()
        self._slot_count = slots
        self._gpus_warned = False

    @property
    def done(self) -> bool:
        """Has every trial of the search come to an end?"""
        return self._searcher.finished and not self._running and not self._again

    @property
    def status(self) -> Status:
        """How far the search is. From another thread, too: each part of it is read at once."""
        return Status(
            self._searcher.total,
            self.results,
            len(self.results),
            self._failures,
            self._cancelled,
            tuple(self._running.values()),
            len(self._slots),
            self._best,
            self._objective,
            self._seconds / self._finished if self._finished > 1 else None,
            self._output,
        )

    def hello(self, message: Hello) -> None:
        """See `spark_jobs.channel.Handler`."""
        job, _ = _task(message.slot)
        if job in self._over or message.slot in self._lost:
            return
        self._slots[message.slot] = None
        self.has_started = True
        if message.problem and self.problem is None:
            self.problem = message.problem
        for warning in message.warnings:
            self._warn_once(warning)
        if message.free_gpus:
            self._warn_of_gpus(message)

    def next(self, message: Next) -> Answer:
        """See `spark_jobs.channel.Handler`."""
        slot = message.slot
        if message.outcome is not None:
            self._take(slot, message.attempt, outcome_of_json(message.outcome))
        if self.problem is not None or slot not in self._slots:
            return Stop()  # nobody would notice the end of a slot that Spark has given up
        if slot in self._running:  # the answer to its last call got lost
            return work_of(self._running[slot].attempt)
        attempt = self._again.popleft() if self._again else self._ask()
        if attempt is None:
            return Stop() if self._searcher.finished and not self._is_doubled(slot) else Wait()
        work = work_of(attempt)
        self._journal.append({"event": "planned", "slot": slot, **_planned(attempt)})
        self._running = {**self._running, slot: Running(attempt, self._clock())}
        return work

    def report(self, message: Reports) -> Heard:
        """See `spark_jobs.channel.Handler`."""
        out = self._running.get(message.slot)
        if out is None or (out.attempt.trial.id, out.attempt.number) != (
            message.trial,
            message.attempt,
        ):
            return Heard(_GIVEN_UP)
        if message.output:
            self._output.append((message.trial, message.output))
        last, stop = out.last, self._judge_reports(message) or out.stop
        for report in message.reports:
            last = report if last is None else report.after(last)
        self._running = {**self._running, message.slot: replace(out, last=last, stop=stop)}
        return Heard(stop)

    def _judge_reports(self, message: Reports) -> str | None:
        """Return why a trial is to stop; None where it may go on."""
        if self._judge is None or self.problem is not None:
            return None
        reason: str | None = None
        values: list[tuple[int, float | str]] = []
        for report in message.reports:
            try:
                name = self._objective_of.reported(report.metrics)
            except AmbiguousObjective as error:
                self.problem = str(error)
                return None
            if name is None:
                self._unjudged[message.trial] = list(report.metrics)
            else:
                self._judged = True
                values.append((report.step, report.metrics[name]))
                reason = self._judge.report(message.trial, report.step, report.value(name))
        if values:
            record = {"trial": message.trial, "attempt": message.attempt, "values": values}
            self._journal.append({"event": "reported", **record})
        return reason

    def _is_doubled(self, slot: str) -> bool:
        """Has another slot of this task a trial? Spark kills it when the task has ended well."""
        task = _task(slot)
        return any(_task(other) == task for other in self._running if other != slot)

    def slots_lost(self, slots: Iterable[str]) -> None:
        """Run the trials again that were out on slots whose tasks Spark has lost."""
        for slot in slots:
            if slot not in self._lost:
                self._lost.add(slot)
                self._slots.pop(slot, None)
                self._lose(slot)

    def job_ended(self, job: int) -> None:
        """Run the trials again that were out on the slots of a job that is over."""
        self._over.add(job)
        self.slots_lost([slot for slot in self._slots if _task(slot)[0] == job])

    def cancel_rest(self) -> None:
        """Record the trials that are still out as cancelled; the search has ended without them."""
        again, self._again = self._again, deque()
        now = self._clock()
        out = [(out.attempt, now - out.since) for out in self._running.values()]
        for attempt, seconds in [*out, *((attempt, 0.0) for attempt in again)]:
            self._record(attempt, Outcome(attempt.trial.id, "cancelled", seconds=seconds))

    def _ask(self) -> Attempt | None:
        trial = self._searcher.ask()
        return None if trial is None else Attempt(trial)

    def _take(self, slot: str, number: int, outcome: Outcome) -> None:
        out = self._running.get(slot)
        if out is None or out.attempt.trial.id != outcome.trial or out.attempt.number != number:
            return  # told before, or of an attempt that was given up
        outcome = self._with_one_objective(outcome)
        self._record(out.attempt, outcome)
        if outcome.error is not None:
            self._judge_failure(outcome.error.kind, outcome.error.message)

    def _record(self, attempt: Attempt, outcome: Outcome) -> None:
        """Write an outcome to the journal, then tell everybody."""
        self._journal.append(
            {"event": "finished", "attempt": attempt.number, "outcome": outcome_to_json(outcome)}
        )
        self._running = {s: o for s, o in self._running.items() if o.attempt is not attempt}
        self._searcher.tell(self._as_scored(outcome))
        if self._judge is not None:
            self._judge.ended(outcome.trial, outcome.status)
            names = self._unjudged.pop(outcome.trial, [])
            if outcome.status == "finished" and not self._judged:
                said = ", ".join(map(repr, names[:10])) or "nothing"
                wanted = self._objective_of.key or outcome.objective
                self._warn_once(
                    f"stopping= goes by what trials report of {wanted!r}, and they report {said}: "
                    "none of them is judged"
                )
        folder = self._paths.shown(self._paths.attempt(attempt.trial.id, attempt.number).folder)
        result = TrialResult.of(attempt.trial, outcome, folder)
        self._failures += result.status == "failed"
        self._cancelled += result.status == "cancelled"
        if result.status == "finished":  # failed ones may end at once, and would promise too much
            self._finished, self._seconds = self._finished + 1, self._seconds + result.seconds
        best = None if self._best is None else self._best.value
        if self._direction.better(result.value, best):
            self._best = result
        self.results.append(result)
        status = self.status
        for observer in list(self._observers):
            try:
                observer.ended(result, status)
            except Exception as error:  # a full disk under TensorBoard's files ends no search
                self._observers.remove(observer)
                self._warn(f"{type(observer).__name__} is left out from now on: {error}")

    def _as_scored(self, outcome: Outcome) -> Outcome:
        """Return an outcome for the searcher, which takes back nothing that it was told.

        What a stopped trial reported is its value once it is sure that it is called so.
        """
        sure = self._returned or self._objective_of.key is not None
        return outcome if sure or outcome.status != "stopped" else replace(outcome, value=None)

    def _with_one_objective(self, outcome: Outcome) -> Outcome:
        """Let the first outcome say what the objective is called, and hold the others to it."""
        if outcome.objective is None:
            return outcome
        if outcome.status == "finished" and not self._returned:
            self._returned, before = True, self._objective
            self._objective = outcome.objective
            if before not in (None, outcome.objective):
                self._warn_of_names(before, outcome.objective)
                self._forget_values_of_stopped()
        self._objective = self._objective or outcome.objective
        if outcome.objective == self._objective:
            return outcome
        if outcome.status == "stopped":  # what it reported cannot be told from another quantity
            self._warn_of_names(outcome.objective, self._objective)
            return replace(outcome, value=None)
        message = f"the objective is {outcome.objective!r}, it was {self._objective!r} before"
        return Outcome.failed(outcome.trial, "invalid value", message, seconds=outcome.seconds)

    def _forget_values_of_stopped(self) -> None:
        """Take back that values which were reported under another name are the objective's."""
        self.results[:] = [
            replace(result, value=None) if result.status == "stopped" else result
            for result in self.results
        ]
        self._best = None

    def _warn_of_names(self, reported: str | None, returned: str | None) -> None:
        self._warn_once(
            f"trials report {reported!r} and return {returned!r}, so those that are stopped have "
            f"no value; if the two are the same, say optimization_key={reported!r}"
        )

    def _judge_failure(self, kind: str, message: str) -> None:
        if self.problem is not None:
            return
        if kind == "ambiguous objective":
            self.problem = message
        elif self._max_failures is not None and self._failures > self._max_failures:
            self.problem = (
                f"{self._failures} trials failed, more than max_failures={self._max_failures}"
            )

    def _lose(self, slot: str) -> None:
        """Give an attempt up: its slot is gone. It is not a failure of the trial."""
        out = self._running.get(slot)
        if out is None:
            return
        self._running = {s: o for s, o in self._running.items() if o is not out}
        attempt = out.attempt
        if out.stop:  # nobody wants it to run again
            ended = stopped(
                self._objective_of, attempt.trial.id, out.stop, out.last, self._clock() - out.since
            )
            self._record(attempt, self._with_one_objective(ended))
            return
        self._journal.append({"event": "lost", "slot": slot, **_planned(attempt)})
        self._again.append(Attempt(attempt.trial, attempt.number + 1))

    def _warn_once(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            self._warn(warning)

    def _warn_of_gpus(self, message: Hello) -> None:
        if not self._gpus_warned:
            self._gpus_warned = True
            self._warn(
                f"{self._slot_count} slots, {message.free_gpus} GPUs on host {message.host}: Spark "
                "does not know of GPUs here, so each trial sees all of them; set "
                "spark.task.resource.gpu.amount to give each its own"
            )


def _task(slot: str) -> tuple[int, int]:
    """Return job and partition of the task whose attempt a slot is."""
    try:
        job, partition, _ = map(int, slot.split("."))
    except ValueError:
        raise ProtocolError(f"{slot!r} is no slot") from None
    return job, partition


def _planned(attempt: Attempt) -> dict[str, object]:
    work = work_of(attempt)
    return {
        "trial": work.trial,
        "attempt": work.attempt,
        "generation": work.generation,
        "parent": work.parent,
        "params": work.params,
    }
