"""The slots of an examination: held until all wait, and then some of them connect to each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from experiment.driver.slots.running_gang import Member, RunningGang
from search.trial import Trial
from spark_jobs.channel.credentials import make_certificate
from spark_jobs.messages import (
    Answer,
    Attempt,
    Heard,
    Hello,
    MemberAddress,
    Next,
    Reports,
    Stop,
    Wait,
)
from spark_jobs.session.slot_job import SlotJob

_MOST_MEMBERS = 16  # each connects to all others


class Gathering:
    """Holds slots until all wait, so that each has cores of its own. A `Handler`.

    Then one slot of each host, or two where there is one host, get the same work, for which they
    connect to each other as the workers of a trial do; the others end.

    Args:
        clock: The driver's clock, in seconds since 1970.

    Attributes:
        heard: Time of each slot's last `Hello`, by its name.
        all_came: Whether slots may end; set once.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.heard: dict[str, float] = {}
        self.all_came = False
        self._hosts: dict[str, str] = {}
        self._addresses: dict[str, MemberAddress | None] = {}  # of slots that wait
        self._attempts: dict[str, Attempt] | None = None

    def has_all(self, jobs: Sequence[SlotJob]) -> bool:
        """Return whether each job has ended or its slot waits."""
        return all(
            job.wait(0) or _has(number, self._addresses) for number, job in enumerate(jobs, 1)
        )

    def knows(self, number: int) -> bool:
        """Return whether the slot of a job has started; the first job is 1."""
        return _has(number, self.heard)

    def hello(self, message: Hello) -> None:
        """See `spark_jobs.channel.exchange.Handler`."""
        self._hosts[message.slot] = message.host
        self.heard[message.slot] = self._clock()

    def next(self, message: Next) -> Answer:
        """See `spark_jobs.channel.exchange.Handler`."""
        slot = message.slot
        if not self.all_came:
            self._addresses[slot] = message.address or self._addresses.get(slot)
            return Wait()
        if self._attempts is None:
            known = {slot: address for slot, address in self._addresses.items() if address}
            self._attempts = attempts_of(known, self._hosts)
        return self._attempts.get(slot, Stop())

    def alike(self, slot: str) -> None:
        """Do nothing: all slots are answered together."""

    alike_now = alike

    def assigned(self) -> list[str]:
        """Return nothing: no slot gets work by the message of another one."""
        return []

    def report(self, message: Reports) -> Heard:
        """Do nothing: slots run no trials."""
        return Heard()


def attempts_of(addresses: dict[str, MemberAddress], hosts: dict[str, str]) -> dict[str, Attempt]:
    """Return the work of the slots that are to connect to each other; empty if there is one slot.

    Args:
        addresses: Addresses by slot, in the order in which the slots came.
        hosts: Hosts by slot.
    """
    first: dict[str, str] = {}
    for slot in addresses:
        first.setdefault(hosts[slot], slot)
    members = list(first.values()) if len(first) > 1 else list(addresses)[:2]
    members = members[:_MOST_MEMBERS]
    if len(members) < 2:
        return {}
    chosen = [Member(slot, hosts[slot], addresses[slot]) for slot in members]
    gang = RunningGang(Attempt(Trial(0, {})), chosen, grace=0.0, pair=make_certificate())
    return {slot: gang.attempt_of(slot) for slot in members}


def _has(number: int, slots: Iterable[str]) -> bool:
    return any(name.startswith(f"{number}.") for name in list(slots))
