"""Forming gangs of free slots: a gang is the slots that run one attempt together, mostly one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator

from experiment.driver.slots.arrivals import Arrivals
from experiment.driver.slots.running_gang import Member, RunningGang, Verdict
from experiment.setup.workers import ALONE, Workers
from search.trial import Failure, Outcome
from spark_jobs.channel.credentials import make_certificate
from spark_jobs.messages import GIVEN_UP, Attempt, Heard, MemberAddress, SlotId


class Gangs:
    """The free slots, and the gangs that run attempts.

    A gang is formed of slots that all wait at the same moment, all at once or not at all. So no
    slot is held for an incomplete gang, and gangs of a search never wait for each other's slots. A
    member that has ended is free once its gang is over: then the same slots, mostly of one host,
    are free together. A trial on one slot runs in a gang of one.

    Where gangs may have different sizes, one is formed of all free slots, up to the largest size,
    as soon as that many are free or no more are expected.

    Args:
        workers: Number of slots of a gang. Default: one.
        grace: Seconds between SIGTERM and SIGKILL when a trial is ended.
        make_pair: Returns a new private key and its certificate, PEM.
    """

    def __init__(
        self,
        workers: Workers = ALONE,
        *,
        grace: float = 1.0,
        make_pair: Callable[[], tuple[bytes, bytes]] = make_certificate,
    ) -> None:
        self.workers = workers
        self._arrivals = Arrivals()
        self._grace = grace
        self._make_pair = make_pair
        self._free: dict[str, dict[str, None]] = {}  # slots that wait, by host, in their order
        self._hosts: dict[str, str] = {}  # of these slots
        self._addresses: dict[str, MemberAddress] = {}  # by slot, as last sent
        self._gangs: dict[str, RunningGang] = {}  # by slot, until the gang is over for the slot
        self._kept: dict[str, str] = {}  # slots that wait for the end of their gangs; their hosts
        self._ending: list[RunningGang] = []
        self._assigned: list[str] = []

    def work(self, slot: str) -> Attempt | None:
        """Return the attempt that a slot runs, with its place in the gang, or None."""
        gang = self._gangs.get(slot)
        return gang.attempt_of(slot) if gang is not None and gang.runs(slot) else None

    def come(self, slot: str, now: float) -> None:
        """Record that a new slot has come, which is to ask for work."""
        self._arrivals.come(slot, now)

    def wait(self, slot: str, host: str, address: MemberAddress | None, now: float) -> None:
        """Let a slot that runs nothing wait for an attempt.

        Args:
            slot: The slot.
            host: Its host.
            address: Where its trial can listen; None for the address that it sent before. A slot
                without any waits in vain, unless gangs have one member.
            now: Monotonic time in seconds.
        """
        self._arrivals.ask(slot, now)
        if address is not None:
            self._addresses[slot] = address
        if slot in self._gangs:
            self._kept[slot] = host
        elif not self.workers.are_several or slot in self._addresses:
            self._free_on(host, slot)

    def is_kept(self, slot: str) -> bool:
        """Return whether a slot waits for other members of its last gang to end."""
        return slot in self._kept

    def kept_for(self, slot: str) -> tuple[int, int] | None:
        """Return the trial and attempt whose end a kept slot waits for; None if it is not kept."""
        if slot not in self._kept:
            return None
        attempt = self._gangs[slot].attempt
        return attempt.trial.id, attempt.number

    def is_doubled(self, slot: str) -> bool:
        """Return whether another attempt of the slot's task still runs a trial that has to end.

        Spark would kill that attempt if this one ended.
        """
        return any(
            gang.runs(other) and SlotId.parse(other).task == SlotId.parse(slot).task
            for gang in self._ending
            for other in gang.slots
            if other != slot
        )

    def leave(self, slot: str) -> None:
        """Forget a slot that waits and has to end."""
        self._take(slot)
        self._arrivals.leave(slot)
        self._kept.pop(slot, None)
        self._addresses.pop(slot, None)
        gang = self._gangs.get(slot)
        if gang is not None and not gang.runs(slot):
            del self._gangs[slot]

    def pick(
        self, slot: str, may_work: Callable[[str], bool], now: float, avoided: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Return free slots for a gang with this slot, by rank; empty if there are too few.

        Other slots of the same host come first, then those of the hosts with the most free slots,
        so that neighbours in rank are close. Two attempts of one Spark task never meet: Spark ends
        the other one when the first has ended.

        Args:
            slot: A slot that waits.
            may_work: Returns whether a slot may get an attempt.
            now: Monotonic time in seconds.
            avoided: Hosts whose slots do not fit.
        """
        host = self._hosts.get(slot)
        least, most = self.workers
        if len(self._hosts) < least or host is None or host in avoided or not may_work(slot):
            return ()
        others = self._others(slot, may_work, avoided)
        slots = (slot, *itertools.islice(others, most - 1))
        if len(slots) == most:
            return slots
        return slots if len(slots) >= least and self._arrivals.are_over(now) else ()

    def form(self, attempt: Attempt, slots: tuple[str, ...]) -> Attempt:
        """Form a gang of picked slots; return the attempt for the first.

        Args:
            attempt: The attempt to run.
            slots: What `pick` has returned, unchanged since.
        """
        gang = RunningGang(
            attempt,
            [Member(slot, self._take(slot), self._addresses.get(slot)) for slot in slots],
            grace=self._grace,
            pair=self._make_pair() if len(slots) > 1 else None,
        )
        self._gangs |= dict.fromkeys(slots, gang)
        self._assigned += slots[1:]
        return gang.attempt_of(slots[0])

    def assigned(self) -> list[str]:
        """Return the slots that got an attempt since the last call because another one asked."""
        assigned, self._assigned = self._assigned, []
        return assigned

    def end(self, slot: str, number: int, outcome: Outcome, now: float) -> Verdict | None:
        """Take the outcome of a member; return the verdict on the attempt.

        Args:
            slot: The member's slot.
            number: The attempt's number.
            outcome: The outcome.
            now: Monotonic time in seconds.

        Returns:
            None if it is not known yet, and if the slot does not run this attempt.
        """
        gang = self._running(slot, outcome.trial, number)
        if gang is None:
            return None
        gang.end(slot, outcome, now)
        return self._settle(gang, now)

    def lose(self, slot: str, failure: Failure, now: float, *, counts: bool) -> Verdict | None:
        """Remove a slot that was lost; return the verdict on its attempt, as `end` does.

        Args:
            slot: The slot.
            failure: Why it was lost.
            now: Monotonic time in seconds.
            counts: Whether that counts as a retry of the trial.
        """
        gang = self._gangs.get(slot)
        self.leave(slot)
        if gang is None or not gang.runs(slot):
            return None
        gang.lose(slot, failure, now, counts=counts)
        return self._settle(gang, now)

    def overdue(self, now: float) -> Iterator[Verdict]:
        """Yield the verdicts on broken gangs whose members have had their time to end."""
        for gang in [gang for gang in self._ending if gang.is_over(now)]:
            if verdict := self._settle(gang, now):
                yield verdict

    @property
    def are_ending(self) -> bool:
        """Whether members still run whose gangs have to end. Thread safe."""
        return bool(self._ending)

    def is_first(self, slot: str) -> bool:
        """Return whether a slot has rank 0 in its gang."""
        gang = self._gangs.get(slot)
        return gang is not None and gang.slots[0] == slot

    def hear(self, slot: str, trial: int, number: int, now: float) -> None:
        """Take note of a message of a slot about an attempt, which it may not run any more."""
        gang = self._running(slot, trial, number)
        if gang is not None:
            gang.hear(slot, now)

    def order_to_end(self, slot: str, trial: int, number: int, now: float) -> Heard | None:
        """Return the answer to a member that has to end, or to a slot that is no member.

        Args:
            slot: The slot.
            trial: The trial of the attempt that the slot runs, as it says.
            number: The attempt's number.
            now: Monotonic time in seconds.

        Returns:
            None if the slot runs this attempt, and may go on.
        """
        gang = self._running(slot, trial, number)
        if gang is None:
            return Heard(stop=GIVEN_UP, end=GIVEN_UP if self.workers.are_several else "")
        why = gang.why_end(now)
        return Heard(end=why) if why else None

    def _running(self, slot: str, trial: int, number: int) -> RunningGang | None:
        gang = self._gangs.get(slot)
        if gang is None or not gang.runs(slot):
            return None
        its = gang.attempt
        return gang if (its.trial.id, its.number) == (trial, number) else None

    def _others(
        self, slot: str, may_work: Callable[[str], bool], avoided: Collection[str]
    ) -> Iterator[str]:
        """Yield the other slots that fit, by preference; one of each task."""
        tasks, own = {SlotId.parse(slot).task}, self._hosts[slot]
        hosts = sorted(self._free, key=lambda host: (host != own, -len(self._free[host])))
        for host in hosts:
            for other in () if host in avoided else self._free[host]:
                task = SlotId.parse(other).task
                if task not in tasks and may_work(other):
                    tasks.add(task)
                    yield other

    def _free_on(self, host: str, slot: str) -> None:
        self._free.setdefault(host, {})[slot] = None
        self._hosts[slot] = host

    def _take(self, slot: str) -> str:
        """Remove a slot from the free ones; return its host, '' if it was not free."""
        host = self._hosts.pop(slot, "")
        if host:
            del self._free[host][slot]
            if not self._free[host]:
                del self._free[host]
        return host

    def _settle(self, gang: RunningGang, now: float) -> Verdict | None:
        """Return the verdict on a gang, if there is a new one; free its slots if it is over."""
        if not gang.is_over(now):
            if gang.is_ending and gang not in self._ending:
                self._ending.append(gang)
            return gang.verdict(now)
        if gang in self._ending:
            self._ending.remove(gang)
        for slot in gang.slots:
            if self._gangs.get(slot) is gang and not gang.runs(slot):
                del self._gangs[slot]
                if slot in self._kept:
                    self._free_on(self._kept.pop(slot), slot)
        return gang.verdict(now)
