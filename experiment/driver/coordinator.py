"""The coordinator of a search: which slots run which trial, and when a slot ends.

It has no threads, Spark or network. The channel's server calls it from its only thread, and whoever
else changes it does so by `ChannelServer.call`.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Collection, Hashable

from experiment.driver.attempt_ends import AttemptEnds
from experiment.driver.recorder import Recorder
from experiment.driver.slots.gangs import Gangs
from experiment.driver.slots.pace import longer_wait, report_pause
from experiment.driver.slots.roster import Roster
from experiment.driver.trials.trials import Trials
from experiment.run_files.journal_records import WaitReason
from search.trial import Failure
from spark_jobs.messages import Answer, Heard, Hello, Next, Reports, SlotId, Stop, Wait


class Coordinator:
    """Answers the slots of a search: gives them trials, or lets them wait or end.

    Args:
        trials: The trials of the search.
        roster: The slots of the search.
        gangs: The gangs of the search, which run its attempts.
        recorder: The recorder of the run.
        is_ending: Returns whether the search is being ended early; then no trial starts.
        warn: Called with each warning for the user.
        clock: Monotonic time in seconds.

    Attributes:
        ends: The ends of attempts, also by slots that Spark has lost or ended.
    """

    def __init__(
        self,
        trials: Trials,
        roster: Roster,
        gangs: Gangs,
        recorder: Recorder,
        *,
        is_ending: Callable[[], bool] = lambda: False,
        warn: Callable[[str], None] = warnings.warn,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.trials = trials
        self.roster = roster
        self.gangs = gangs
        self._recorder = recorder
        self._is_ending = is_ending
        self._warn = functools.cache(warn)  # each sentence once
        self._clock = clock
        self.ends = AttemptEnds(trials, roster, gangs, recorder, warn=self._warn, clock=clock)

    def hello(self, message: Hello) -> None:
        """See `spark_jobs.channel.exchange.Handler`."""
        roster = self.roster
        if not roster.hear(message):
            return
        news = roster.news(message)
        if message.problem:
            roster.hosts.exclude(message.host, message.problem)
            self.ends.give_up(message.slot, Failure(kind="machine", message=message.problem))
        elif roster.join(message.slot, message.host):
            self.gangs.come(message.slot, self._clock())
            self._recorder.joined(message.slot, message.host, message.gpus)
        for warning in (*news, *roster.warnings()):
            self._warn(warning)

    def next(self, message: Next) -> Answer:
        """See `spark_jobs.channel.exchange.Handler`."""
        slot, trials = message.slot, self.trials
        if message.outcome is not None:
            self.ends.take(slot, message.attempt, message.outcome)
        self.ends.take_overdue()
        host = self.roster.host(slot)
        if trials.problem is not None or trials.target_reached or self._is_ending():
            return Stop()
        if host is None:  # the end of a slot that Spark has given up would not be noticed
            stays = not self.roster.is_given_up(slot) and self._has_to_stay(slot)
            return Wait(longer_wait(len(self.roster))) if stays else Stop()
        if attempt := self.gangs.work(slot):  # it is new, or the answer to its last call was lost
            return attempt
        self.gangs.wait(slot, host, message.address, self._clock())
        planned = trials.next(functools.partial(self._pick, slot))
        return self.gangs.form(*planned) if planned else self._without_a_trial(slot, host)

    def alike(self, slot: str) -> Hashable:
        """See `spark_jobs.channel.exchange.Handler`.

        Host, GPUs and executor decide which trials a slot may run. Of slots that are kept, only
        those are alike which are kept until the same moment.
        """
        stays = SlotId.parse(slot).task if self._has_to_stay(slot) else None
        return self.roster.alike(slot), stays, self.gangs.kept_for(slot)

    def alike_now(self, slot: str) -> Hashable:
        """See `spark_jobs.channel.exchange.Handler`.

        Hosts matter only to trials that are to run again.
        """
        if self.trials.state.waiting or self.roster.host(slot) is None:
            return self.alike(slot)
        obstacles = self.roster.obstacles(slot)
        return obstacles, self._has_to_stay(slot), self.gangs.is_kept(slot)

    def assigned(self) -> list[str]:
        """See `spark_jobs.channel.exchange.Handler`.

        They are members of a gang that another member has completed.
        """
        return self.gangs.assigned()

    def report(self, message: Reports) -> Heard:
        """See `spark_jobs.channel.exchange.Handler`."""
        gangs, now = self.gangs, self._clock()
        attempt = message.slot, message.trial, message.attempt
        gangs.hear(*attempt, now)
        self.ends.take_overdue()
        if order := gangs.order_to_end(*attempt, now):
            return order
        stop, judged = self.trials.report(message), self.trials.judges_reports
        in_gangs = gangs.workers.are_several
        pause = report_pause(len(self.roster), judged=judged, in_gangs=in_gangs)
        return Heard(
            stop=stop if gangs.is_first(message.slot) else "",
            pause=pause,
            last_only=pause > 0 and not judged,
        )

    def slots_decommissioned(self, slots: Collection[str]) -> None:
        """Let slots on executors that are decommissioned end their trials, and get no more."""
        for host in self.roster.decommission(slots):
            self.trials.standing.notes.append(
                f"executor on host {host} is decommissioned, it gets no more trials"
            )

    def missing(self) -> tuple[int, int]:
        """Return the numbers of present and of missing slots for a trial.

        While a trial runs, none is missing. Gangs whose members are overdue are ended first.
        """
        self.ends.take_overdue()
        present = self.roster.workers
        missing = 0 if self.trials.in_flight else max(0, self.gangs.workers.least - present)
        return present, missing

    def _without_a_trial(self, slot: str, host: str) -> Answer:
        """Let a slot end if it gets no more trials, else wait."""
        trials, excluded = self.trials, self.roster.hosts.is_excluded(host)
        gets_none = self.roster.is_barred(slot) or self._nothing_left
        if gets_none and not self._has_to_stay(slot):
            self.gangs.leave(slot)
            self.roster.end(slot)
            why = "its host gets no more trials" if excluded else "nothing is left"
            self._recorder.left(slot, why)
            return Stop()
        trials.fail(self.roster.gpus_problem(trials.in_flight, self._clock()))
        if trials.problem is not None:  # or outcomes found in trial folders have ended the search
            return Stop()
        if not self.gangs.is_kept(slot):  # else for the others of its gang, mostly a moment
            self._recorder.waits(slot, "nothing left" if gets_none else self._why_it_waits(slot))
        return Wait(longer_wait(len(self.roster)))

    def _has_to_stay(self, slot: str) -> bool:
        """Return whether a slot without a trial must not end, since Spark would kill another one.

        Spark kills the other attempts of its task: one that has a trial, or gets one meanwhile.
        """
        if self.trials.is_doubled(slot) or self.gangs.is_doubled(slot):
            return True
        if not self.roster.is_barred(slot) or self._nothing_left:
            return False  # this slot may get a trial, too, or the others get none either
        return self.roster.has_working_copy(slot)

    @property
    def _nothing_left(self) -> bool:
        """Whether free slots get no more trials.

        A gang of several slots that breaks needs as many again, which Spark may not have.
        """
        breakable = self.gangs.workers.are_several and self.trials.in_flight > 0
        return self.trials.nothing_left and not breakable

    def _why_it_waits(self, slot: str) -> WaitReason:
        if self.roster.gpus.reasons(slot):
            return "gpu set aside"
        may_have_more = self.gangs.workers.are_several and not self.trials.is_full
        if may_have_more and not self._pick(slot, None):
            return "too few slots"
        return "host avoided" if self.trials.state.waiting else "no trial yet"

    def _pick(self, slot: str, trial: int | None) -> tuple[str, ...]:
        """Return the slots, with this one, for a retried trial or, by None, for any other one."""
        avoided = self.roster.avoided(trial, self.gangs.workers.least)
        return self.gangs.pick(slot, self.roster.gets_work, self._clock(), avoided)
