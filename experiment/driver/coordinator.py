"""The coordinator of a search: which slot runs which trial, and when a slot ends.

It has no threads, Spark or network: the channel's server calls `hello` and `next` from its only
thread, and all other callers use `ChannelServer.call`.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

from msgspec.structs import replace

from experiment.driver.recorder import Recorder
from experiment.driver.slots.pace import longer_wait, report_pause
from experiment.driver.slots.roster import Roster
from experiment.driver.trials.trials import Trials
from experiment.results.warned import once
from experiment.run_files.journal_records import WaitReason
from search.trial import Failure, Outcome
from spark_jobs.messages import Answer, Heard, Hello, Next, Reports, Stop, Wait


class Coordinator:
    """Gives trials to slots, takes their outcomes, and handles lost slots.

    Args:
        trials: The trials of the search.
        roster: The slots of the search.
        recorder: The recorder of the run.
        warn: Called with each warning for the user.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        trials: Trials,
        roster: Roster,
        recorder: Recorder,
        *,
        warn: Callable[[str], None] = warnings.warn,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.trials = trials
        self.roster = roster
        self._recorder = recorder
        self._warn = once(warn)
        self._clock = clock

    def hello(self, message: Hello) -> None:
        """See `spark_jobs.channel.exchange.Handler`."""
        if not self.roster.hear(message):
            return
        self._tell(self.roster.news(message))
        if message.problem:
            self.roster.hosts.exclude(message.host, message.problem)
            self._give_up(message.slot, Failure("machine", message.problem))
        elif self.roster.join(message.slot, message.host):
            self._recorder.joined(message.slot, message.host, message.gpus)
        self._tell(self.roster.warnings())

    def next(self, message: Next) -> Answer:
        """See `spark_jobs.channel.exchange.Handler`."""
        slot, trials = message.slot, self.trials
        if message.outcome is not None:
            self._take(slot, message.attempt, message.outcome)
        host = self.roster.host(slot)
        if trials.problem is not None or trials.target_reached or host is None:
            return Stop()  # the end of a slot that Spark has given up would not be noticed
        if attempt := trials.on(slot):  # the answer to its last call was lost
            return attempt
        if self.roster.gets_work(slot):
            attempt = trials.next((slot,), self.roster.avoids(host))
        return attempt or self._without_a_trial(slot, host)

    def alike(self, slot: str) -> Hashable:
        """See `Handler` in exchange.py: host, GPUs and executor decide which trials it may run."""
        return self.roster.alike(slot), self.trials.keeps(slot)

    def alike_now(self, slot: str) -> Hashable:
        """See `Handler` in exchange.py: hosts matter to trials only that are to run again."""
        if self.trials.state.waiting or self.roster.host(slot) is None:
            return self.alike(slot)
        return self.roster.gets_work(slot), self.trials.keeps(slot)

    def report(self, message: Reports) -> Heard:
        """See `spark_jobs.channel.exchange.Handler`."""
        heard, judged = self.trials.report(message), self.trials.judges_reports
        pause = report_pause(len(self.roster), judged=judged)
        return replace(heard, pause=pause, last_only=not judged) if pause else heard

    def slots_lost(self, slots: Iterable[str]) -> None:
        """Let trials run again that were in flight on slots whose tasks Spark has lost."""
        again = self._lose(slots, lambda where: f"its executor{where} was lost", counts=True)
        for where, trials in again.items():
            self._note(f"executor{where} lost, {_run_again(sorted(trials))}")

    def slots_ended(self, slots: Iterable[str], *, counts: bool) -> None:
        """Let trials run again that were in flight on slots that Spark has ended.

        Args:
            slots: The slots.
            counts: Whether that counts as a retry of the trials.
        """
        again = self._lose(slots, lambda where: f"Spark ended its slot's job{where}", counts=counts)
        if trials := sorted(itertools.chain.from_iterable(again.values())):
            self._note(f"Spark ended the slot's job, {_run_again(trials)}")

    def slots_leaving(self, slots: Collection[str]) -> None:
        """Let slots on executors that are decommissioned end their trials, and get no more."""
        for host in self.roster.decommission(slots):
            self._note(f"executor on host {host} is decommissioned, it gets no more trials")

    def job_ended(self, job: int, *, counts: bool = False) -> None:
        """Handle the end of a job's slots; end the search if no host is left.

        Args:
            job: The job's number.
            counts: Whether the end of a slot counts as a retry of its trial. Lost tasks do, see
                `slots_lost`; set it if it is not known which tasks Spark has lost.
        """
        self.roster.job_over(job)
        self.slots_ended(self.roster.of_job(job), counts=counts)
        self.trials.fail(self.roster.forget_job(job))

    def _without_a_trial(self, slot: str, host: str) -> Answer:
        """Let a slot end if it gets no more trials, else wait."""
        trials, excluded = self.trials, self.roster.hosts.is_excluded(host)
        nothing_left = self.roster.is_leaving(slot) or trials.nothing_left
        if excluded or (nothing_left and not trials.keeps(slot)):
            self.roster.end(slot)
            why = "its host gets no more trials" if excluded else "nothing is left"
            self._recorder.left(slot, why)
            return Stop()
        if trials.problem is None:  # outcomes found in trial folders may have ended the search
            trials.fail(self.roster.gpus_problem(trials.in_flight, self._clock()))
        if trials.problem is not None:
            return Stop()
        self._recorder.waits(slot, "nothing left" if nothing_left else self._why_it_waits(slot))
        return Wait(longer_wait(len(self.roster)))

    def _why_it_waits(self, slot: str) -> WaitReason:
        if self.roster.gpus.reasons(slot):
            return "gpu set aside"
        return "host avoided" if self.trials.state.waiting else "no trial yet"

    def _take(self, slot: str, attempt: int, outcome: Outcome) -> None:
        is_news, error = self.trials.take(slot, attempt, outcome), outcome.error
        if is_news and error is not None and error.kind == "machine":
            host = self.roster.host(slot) or ""
            self.roster.hosts.died(host, outcome.trial, error.message)
            self._tell(self.roster.warnings())

    def _lose(
        self, slots: Iterable[str], reason: Callable[[str], str], *, counts: bool
    ) -> dict[str, list[int]]:
        """Give slots up; return the trials that run again, by their host in words."""
        again: dict[str, list[int]] = {}
        for slot in slots:
            if not self.roster.lose(slot):
                continue
            host, waiting = self.roster.host(slot), len(self.trials.state.waiting)
            where = f" on host {host}" if host else ""
            self._give_up(slot, Failure("lost executor", reason(where)), counts=counts)
            if trials := list(self.trials.state.waiting)[waiting:]:
                again.setdefault(where, []).extend(trials)
        return again

    def _give_up(self, slot: str, failure: Failure, *, counts: bool = True) -> None:
        """Give a slot up, and the trial that it runs; `counts` as in `slots_lost`."""
        host = self.roster.leave(slot)
        if host:
            self._recorder.left(slot, failure.message)
        failed = self.trials.give_up(slot, failure, counts=counts)
        if failed is not None:
            self.roster.hosts.died(host, failed, failure.message)

    def _tell(self, warnings: Iterable[str]) -> None:
        for warning in warnings:
            self._warn(warning)

    def _note(self, sentence: str) -> None:
        self.trials.standing.notes.append(sentence)


def _run_again(trials: Sequence[int]) -> str:
    if len(trials) == 1:
        return f"trial {trials[0]} runs again"
    return f"trials {', '.join(map(str, trials[:-1]))} and {trials[-1]} run again"
