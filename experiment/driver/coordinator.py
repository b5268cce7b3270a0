"""The coordinator of a search: which slots run which trial, and when a slot ends.

It has no threads, Spark or network: the channel's server calls `hello` and `next` from its only
thread, and all other callers use `ChannelServer.call`.
"""

from __future__ import annotations

import functools
import itertools
import time
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

from msgspec.structs import replace

from experiment.driver.recorder import Recorder
from experiment.driver.slots.gangs import Gangs
from experiment.driver.slots.pace import longer_wait, report_pause
from experiment.driver.slots.roster import Roster
from experiment.driver.slots.running_gang import Verdict
from experiment.driver.trials.trials import Trials
from experiment.results.warned import once
from experiment.run_files.journal_records import WaitReason
from search.trial import Failure
from spark_jobs import time_limits
from spark_jobs.messages import Answer, Heard, Hello, Next, Reports, SlotId, Stop, Wait


class Coordinator:
    """Gives trials to slots, takes their outcomes, and handles lost slots.

    Args:
        trials: The trials of the search.
        roster: The slots of the search.
        recorder: The recorder of the run.
        gangs: The gangs of the search, which run its attempts. Default: of one slot each.
        at_once: Maximum number of trials in flight; None for as many as slots are enough for.
        warn: Called with each warning for the user.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        trials: Trials,
        roster: Roster,
        recorder: Recorder,
        *,
        gangs: Gangs | None = None,
        at_once: int | None = None,
        warn: Callable[[str], None] = warnings.warn,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.trials = trials
        self.roster = roster
        self._recorder = recorder
        self._gangs = gangs or Gangs()
        self._at_once = at_once
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
            self._gangs.come(message.slot, self._clock())
            self._recorder.joined(message.slot, message.host, message.gpus)
        self._tell(self.roster.warnings())

    def next(self, message: Next) -> Answer:
        """See `spark_jobs.channel.exchange.Handler`."""
        slot, trials, now = message.slot, self.trials, self._clock()
        if message.outcome is not None:
            self._settle_and_note(self._gangs.end(slot, message.attempt, message.outcome, now))
        self._settle_overdue()
        host = self.roster.host(slot)
        if trials.problem is not None or trials.target_reached or host is None:
            return Stop()  # the end of a slot that Spark has given up would not be noticed
        if attempt := self._gangs.work(slot):  # it is new, or the answer to its last call was lost
            return attempt
        self._gangs.wait(slot, host, message.address, now)
        planned = trials.next(functools.partial(self._pick, slot))
        return self._gangs.form(*planned) if planned else self._without_a_trial(slot, host)

    def alike(self, slot: str) -> Hashable:
        """See `Handler` in exchange.py: host, GPUs and executor decide which trials it may run.

        Of slots that are kept, only those are alike which are kept until the same moment.
        """
        doubled = SlotId.parse(slot).task if self.trials.keeps(slot) else None
        return self.roster.alike(slot), doubled, self._gangs.kept_for(slot)

    def alike_now(self, slot: str) -> Hashable:
        """See `Handler` in exchange.py: hosts matter to trials only that are to run again."""
        if self.trials.state.waiting or self.roster.host(slot) is None:
            return self.alike(slot)
        hindrances = self.roster.hindrances(slot)
        return hindrances, self.trials.keeps(slot), self._gangs.is_kept(slot)

    def assigned(self) -> list[str]:
        """See `Handler` in exchange.py: members of a gang that another member has completed."""
        return self._gangs.assigned()

    def report(self, message: Reports) -> Heard:
        """See `spark_jobs.channel.exchange.Handler`."""
        slot, now = message.slot, self._clock()
        self._gangs.hear(slot, message.trial, message.attempt, now)
        self._settle_overdue()
        if not self._gangs.is_member(slot, message.trial, message.attempt):
            return Heard(stop=_GIVEN_UP, end=_GIVEN_UP if self._in_gangs else "")
        if why := self._gangs.why_end(slot, now):
            return Heard(end=why)
        stop, judged = self.trials.report(message), self.trials.judges_reports
        heard = Heard(stop=stop if self._gangs.is_first(slot) else "")
        pause = report_pause(len(self.roster), judged=judged)
        if self._in_gangs:  # members have to hear soon of each other
            pause = min(pause, time_limits.GANG_BEAT)
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

    def missing(self) -> tuple[int, int]:
        """Return the numbers of present and of missing slots for a trial.

        None is missing while a trial runs, which may have ended with the time of its workers.
        """
        self._settle_overdue()
        present = self.roster.workers
        missing = 0 if self.trials.in_flight else max(0, self._gangs.workers.least - present)
        return present, missing

    @property
    def members_end(self) -> bool:
        """Whether workers still end of which the others have returned or failed. Thread safe."""
        return self._gangs.are_ending

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
        nothing_left = self.roster.is_leaving(slot) or self._nothing_left
        if excluded or (nothing_left and not trials.keeps(slot)):
            self._gangs.leave(slot)
            self.roster.end(slot)
            why = "its host gets no more trials" if excluded else "nothing is left"
            self._recorder.left(slot, why)
            return Stop()
        if trials.problem is None:  # outcomes found in trial folders may have ended the search
            trials.fail(self.roster.gpus_problem(trials.in_flight, self._clock()))
        if trials.problem is not None:
            return Stop()
        if not self._gangs.is_kept(slot):  # else for the others of its gang, mostly a moment
            self._recorder.waits(slot, "nothing left" if nothing_left else self._why_it_waits(slot))
        return Wait(longer_wait(len(self.roster)))

    @property
    def _in_gangs(self) -> bool:
        """Whether trials run on several slots."""
        return self._gangs.workers.most > 1

    @property
    def _is_full(self) -> bool:
        """Whether as many trials run as may run at once."""
        return self._at_once is not None and self.trials.in_flight >= self._at_once

    @property
    def _nothing_left(self) -> bool:
        """Whether free slots get no more trials.

        A gang of several slots that breaks needs as many again, which Spark may not have.
        """
        breakable = self._in_gangs and self.trials.in_flight > 0
        return self.trials.nothing_left and not breakable

    def _why_it_waits(self, slot: str) -> WaitReason:
        if self.roster.gpus.reasons(slot):
            return "gpu set aside"
        if self._in_gangs and not self._is_full and not self._pick(slot, None):
            return "too few slots"
        return "host avoided" if self.trials.state.waiting else "no trial yet"

    def _pick(self, slot: str, trial: int | None) -> tuple[str, ...]:
        """Return the slots, with this one, for a retried trial or, by None, for any other one."""
        if self._is_full:
            return ()
        least = self._gangs.workers.least
        avoided = () if trial is None else self.roster.avoided(trial, least)
        return self._gangs.pick(slot, self.roster.gets_work, self._clock(), avoided)

    def _settle_overdue(self) -> None:
        for verdict in self._gangs.overdue(self._clock()):
            self._settle_and_note(verdict)

    def _settle_and_note(self, verdict: Verdict | None) -> None:
        """Take a verdict, and note a trial that runs again since one of its slots was lost."""
        again = self._settle(verdict)
        if again and verdict is not None and verdict.outcome.error is not None:
            self._note(f"{verdict.outcome.error.message}, {_run_again(again)}")

    def _settle(self, verdict: Verdict | None) -> list[int]:
        """Take what an attempt has come to, if that is known.

        Returns:
            The trial if it runs again since a slot of its was lost.
        """
        if verdict is None:
            return []
        member, outcome = verdict.member, verdict.outcome
        error, waiting = outcome.error, self.trials.state.waiting
        if verdict.is_lost and error is not None:
            failed = self.trials.give_up(member.slot, error, counts=verdict.counts)
            if failed is not None:
                self.roster.hosts.died(member.host, failed, error.message)
            return [outcome.trial] if outcome.trial in waiting else []
        is_news = self.trials.take(member.slot, verdict.attempt, outcome)
        if is_news and error is not None and error.kind == "machine":
            self.roster.hosts.died(member.host, outcome.trial, error.message)
            self._tell(self.roster.warnings())
        return []

    def _lose(
        self, slots: Iterable[str], reason: Callable[[str], str], *, counts: bool
    ) -> dict[str, list[int]]:
        """Give slots up; return the trials that run again, by their host in words."""
        again: dict[str, list[int]] = {}
        for slot in slots:
            if not self.roster.lose(slot):
                continue
            host = self.roster.host(slot)
            where = f" on host {host}" if host else ""
            failure = Failure("lost executor", reason(where))
            if trials := self._give_up(slot, failure, counts=counts):
                again.setdefault(where, []).extend(trials)
        return again

    def _give_up(self, slot: str, failure: Failure, *, counts: bool = True) -> list[int]:
        """Give a slot up, and the attempt that it runs; `counts` as in `slots_lost`.

        Returns:
            The trial that runs again because of it.
        """
        if self.roster.leave(slot):
            self._recorder.left(slot, failure.message)
        return self._settle(self._gangs.lose(slot, failure, self._clock(), counts=counts))

    def _tell(self, warnings: Iterable[str]) -> None:
        for warning in warnings:
            self._warn(warning)

    def _note(self, sentence: str) -> None:
        self.trials.standing.notes.append(sentence)


_GIVEN_UP = "its slot was given up"


def _run_again(trials: Sequence[int]) -> str:
    if len(trials) == 1:
        return f"trial {trials[0]} runs again"
    return f"trials {', '.join(map(str, trials[:-1]))} and {trials[-1]} run again"
