"""Ends attempts by outcomes, lost slots and ended jobs, and updates trials and hosts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from experiment.driver.recorder import Recorder
from experiment.driver.slots.gangs import Gangs
from experiment.driver.slots.roster import Roster
from experiment.driver.slots.running_gang import Verdict
from experiment.driver.trials.trials import Trials
from search.trial import Failure, Outcome


class AttemptEnds:
    """Takes outcomes and losses of slots; notes for the user which trials run again for a loss.

    The gangs decide when an attempt has ended, and by which of its members.

    Args:
        trials: The trials of the search.
        roster: The slots of the search.
        gangs: The gangs of the search, which run its attempts.
        recorder: The recorder of the run.
        warn: Called with each warning for the user.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        trials: Trials,
        roster: Roster,
        gangs: Gangs,
        recorder: Recorder,
        *,
        warn: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._trials = trials
        self._roster = roster
        self._gangs = gangs
        self._recorder = recorder
        self._warn = warn
        self._clock = clock

    def take(self, slot: str, attempt: int, outcome: Outcome) -> None:
        """Take the outcome that a slot sends of an attempt, by its number."""
        if verdict := self._gangs.end(slot, attempt, outcome, self._clock()):
            self._settle_and_note(verdict)

    def take_overdue(self) -> None:
        """Take the ends of gangs whose members have had their time to end."""
        for verdict in self._gangs.overdue(self._clock()):
            self._settle_and_note(verdict)

    def slots_lost(self, slots: Iterable[str]) -> None:
        """Give up slots whose tasks Spark has lost."""
        again = self._lose(slots, "its executor{} was lost", counts=True)
        for where, trials in again.items():
            self._note(f"executor{where} lost", trials)

    def slots_ended(self, slots: Iterable[str], *, counts: bool) -> None:
        """Give up slots that Spark has ended; `counts` as in `give_up`."""
        again = self._lose(slots, "Spark ended its slot's job{}", counts=counts)
        self._note("Spark ended the slot's job", [*itertools.chain.from_iterable(again.values())])

    def job_ended(self, job: int, *, counts: bool = False) -> None:
        """Give up the slots of a job that has ended; end the search if no host is left.

        Args:
            job: The job's number.
            counts: Whether the end of a slot counts as a retry of its trial. Lost tasks do; set
                it if it is not known which tasks Spark has lost.
        """
        self._roster.job_over(job)
        self.slots_ended(self._roster.of_job(job), counts=counts)
        self._trials.fail(self._roster.forget_job(job))

    def give_up(self, slot: str, failure: Failure, *, counts: bool = True) -> int | None:
        """Give up a slot and the attempt that it runs.

        Args:
            slot: The slot.
            failure: Why it is given up.
            counts: Whether that counts as a retry of the trial.

        Returns:
            The trial that runs again because of it, if that is known already.
        """
        if self._roster.leave(slot):
            self._recorder.left(slot, failure.message)
        verdict = self._gangs.lose(slot, failure, self._clock(), counts=counts)
        return None if verdict is None else self._settle(verdict)

    def _lose(self, slots: Iterable[str], why: str, *, counts: bool) -> dict[str, list[int]]:
        """Give slots up; return the trials that run again, by their host in words.

        Args:
            slots: The slots.
            why: The reason, with {} for the host in words.
            counts: See `give_up`.
        """
        again: dict[str, list[int]] = {}
        for slot in slots:
            if not self._roster.lose(slot):
                continue
            host = self._roster.host(slot)
            where = f" on host {host}" if host else ""
            named = "" if self._gangs.workers.are_several else where  # a worker's failure has it
            failure = Failure(kind="lost executor", message=why.format(named))
            trial = self.give_up(slot, failure, counts=counts)
            if trial is not None:
                again.setdefault(where, []).append(trial)
        return again

    def _settle_and_note(self, verdict: Verdict) -> None:
        again, error = self._settle(verdict), verdict.outcome.error
        if again is not None and error is not None:
            self._note(error.message, [again])

    def _settle(self, verdict: Verdict) -> int | None:
        """Pass on the end of an attempt.

        Returns:
            The trial if it runs again since one of its slots was lost.
        """
        member, outcome = verdict.member, verdict.outcome
        error, hosts = outcome.error, self._roster.hosts
        if verdict.is_lost and error is not None:
            failed = self._trials.give_up(member.slot, error, counts=verdict.counts)
            if failed is not None:
                hosts.died(member.host, failed, error.message)
            return outcome.trial if outcome.trial in self._trials.state.waiting else None
        is_news = self._trials.take(member.slot, verdict.attempt, outcome)
        if is_news and error is not None and error.kind == "machine" and not error.of_store:
            hosts.died(member.host, outcome.trial, error.message)
            for warning in self._roster.warnings():
                self._warn(warning)
        return None

    def _note(self, what: str, again: Sequence[int]) -> None:
        """Note for the user that trials run again, if there are any."""
        if again:
            self._trials.standing.notes.append(f"{what}, {_run_again(sorted(again))}")


def _run_again(trials: Sequence[int]) -> str:
    if len(trials) == 1:
        return f"trial {trials[0]} runs again"
    return f"trials {', '.join(map(str, trials[:-1]))} and {trials[-1]} run again"
