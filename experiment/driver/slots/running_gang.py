"""A gang that runs an attempt, and the outcome of the attempt by the ends of its members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

from msgspec.structs import replace

from search.trial import Failure, FailureKind, Outcome
from spark_jobs import time_limits
from spark_jobs.messages import Attempt, Gang, MemberAddress

# Kinds of failures, the one that explains others first.
_CAUSES: tuple[FailureKind, ...] = (
    "lost executor",
    "machine",
    "memory",
    "gpu memory",
    "time",
    "invalid value",
    "ambiguous objective",
    "exit",
    "user error",
)
assert set(_CAUSES) == set(get_args(FailureKind))

# Texts, in lower case, of the errors that frameworks raise in other members when one has ended.
_CONSEQUENCES = (
    "gangbroken",
    "unavailableerror",
    "collective ops is aborted",
    "connection closed by peer",
    "connection refused",
    "connection reset",
    "broken pipe",
    "socket closed",
    "eoferror",
    "timed out",
    "ncclremoteerror",
    "remote process exited",  # NCCL's text of the same
)
# TensorFlow, JAX and NCCL's watchdog end their process so when they have lost another one.
_ABORTED = "(SIGABRT)"


class Member(NamedTuple):
    """A member of a gang.

    Attributes:
        slot: Its slot.
        host: The slot's host.
        address: Where it can listen for the others; None in a gang of one.
    """

    slot: str
    host: str
    address: MemberAddress | None


class Verdict(NamedTuple):
    """The decision of a gang on its attempt.

    Attributes:
        attempt: The attempt's number.
        member: The member that decides it: rank 0 with a value, else the member to blame.
        outcome: The attempt's outcome.
        is_lost: Whether the member's slot was lost, so that the outcome is not the member's own.
        counts: Whether a loss counts as a retry of the trial.
    """

    attempt: int
    member: Member
    outcome: Outcome
    is_lost: bool = False
    counts: bool = True


class _End(NamedTuple):
    outcome: Outcome
    is_lost: bool = False
    counts: bool = True

    @property
    def has_failed(self) -> bool:
        return self.outcome.error is not None


class RunningGang:
    """A gang from its forming until its last member has ended.

    The value of rank 0 is the trial's, at once. Otherwise the first failure breaks the gang: the
    other members have to end, and then the failure that explains the others is the trial's. The
    first failure to arrive is rarely that one: the others fail before Spark reports the member that
    died.

    Args:
        attempt: The attempt.
        members: The members, by rank.
        grace: Seconds between SIGTERM and SIGKILL; also what the others have to end by themselves
            once rank 0 has returned.
        pair: The gang's private key and certificate, PEM; None in a gang of one.

    Attributes:
        attempt: The attempt.
        slots: The members' slots, by rank.
    """

    def __init__(
        self,
        attempt: Attempt,
        members: Sequence[Member],
        *,
        grace: float,
        pair: tuple[bytes, bytes] | None = None,
    ) -> None:
        self.attempt = attempt
        self.slots = tuple(member.slot for member in members)
        self._members = tuple(members)
        self._grace = grace
        self._pair = pair
        self._ends: dict[str, _End] = {}
        self._heard: dict[str, float] = {}  # times of members' last messages
        self._broken: tuple[float, str] | None = None  # time of the first failure, who failed
        self._returned: float | None = None  # time of rank 0's value
        self._is_settled = False

    @property
    def is_ending(self) -> bool:
        """Whether its members have to end, now or soon."""
        return self._broken is not None or self._returned is not None

    def attempt_of(self, slot: str) -> Attempt:
        """Return the attempt for a member, with its place in the gang."""
        if self._pair is None:
            return self.attempt
        addresses = [member.address for member in self._members if member.address is not None]
        key, certificate = self._pair
        gang = Gang(
            rank=self.slots.index(slot),
            members=tuple(address.links for address in addresses),
            servers=tuple(address.server for address in addresses),
            key=key.decode(),
            certificate=certificate.decode(),
        )
        return Attempt(self.attempt.trial, self.attempt.number, gang)

    def runs(self, slot: str) -> bool:
        """Return whether a member has not ended."""
        return slot not in self._ends

    def hear(self, slot: str, now: float) -> None:
        """Record a message of a member, which runs or stores its files."""
        self._heard[slot] = now

    def end(self, slot: str, outcome: Outcome, now: float) -> None:
        """Record the outcome of a member that has not ended."""
        self._record(slot, _End(outcome), now)

    def lose(self, slot: str, failure: Failure, now: float, *, counts: bool) -> None:
        """Record that the slot of a member was lost; `counts` as in `Verdict`."""
        outcome = Outcome(self.attempt.trial.id, "failed", error=failure)
        self._record(slot, _End(outcome, is_lost=True, counts=counts), now)

    def why_end(self, now: float) -> str:
        """Return why the members that still run have to end; '' if they have not."""
        if self._broken is not None:
            return f"{self._broken[1]} has failed"
        if self._returned is not None and now >= self._returned + self._grace:
            return f"{self._name(0)} has returned"
        return ""

    def is_over(self, now: float) -> bool:
        """Return whether all members have ended, or have had their time to.

        Once one has failed, the others' time counts from their last messages: they send some until
        they have stored their files, from which the next attempt resumes.
        """
        if len(self._ends) == len(self.slots):
            return True
        limit = 2 * self._grace + time_limits.GANG_END
        if self._returned is not None:
            return now > self._returned + limit
        if self._broken is None:
            return False
        broken = self._broken[0]
        heard = (self._heard.get(slot, 0.0) for slot in self.slots if self.runs(slot))
        return now > min(max(broken, *heard), broken + time_limits.OUTAGE) + limit

    def verdict(self, now: float) -> Verdict | None:
        """Return the verdict on the attempt; None if it is not known yet, or was returned."""
        if self._is_settled:
            return None
        if self._returned is not None:
            return self._settled(0, self._ends[self.slots[0]])
        if not self.is_over(now):
            return None
        slot = min(self._failures(), key=self._cause, default=self.slots[0])
        silent = next(filter(self.runs, self.slots), None)
        if silent is not None and self._cause(slot)[0]:  # that of which this is a consequence
            return self._settled(self.slots.index(silent), self._silent(now))
        return self._settled(self.slots.index(slot), self._ends[slot])

    def _record(self, slot: str, end: _End, now: float) -> None:
        rank = self.slots.index(slot)
        self._ends[slot] = end
        if end.has_failed:
            self._broken = self._broken or (now, self._name(rank))
        elif rank == 0 and end.outcome.status != "cancelled":
            self._returned = now

    def _failures(self) -> list[str]:
        """Return the slots of the members that have failed, in the order of their failures."""
        return [slot for slot, end in self._ends.items() if end.has_failed]

    def _cause(self, slot: str) -> tuple[bool, int]:
        """Return the sort key of a member's failure: the one that explains others is least."""
        failure = self._ends[slot].outcome.error
        assert failure is not None, "only failures are compared"
        text = failure.message.lower()
        is_consequence = failure.unreached or (
            failure.kind in ("user error", "exit")
            and (
                any(words in text for words in _CONSEQUENCES)
                or (_ABORTED in failure.message and slot != self._failures()[0])
            )
        )
        return is_consequence, _CAUSES.index(failure.kind)

    def _silent(self, now: float) -> _End:
        """Return the end of a member that has not ended in time, though another one has failed.

        Spark takes minutes to miss a host that is cut off.
        """
        assert self._broken is not None, "a member has failed"
        since, who = self._broken
        error = self._ends[self._failures()[0]].outcome.error
        message = f"it has not ended {now - since:.0f} s after {who} has failed"
        if error is not None:
            message += f": {error.message}"
        failure = Failure(kind="lost executor", message=message)
        return _End(Outcome(self.attempt.trial.id, "failed", error=failure), is_lost=True)

    def _settled(self, rank: int, end: _End) -> Verdict:
        self._is_settled = True
        member = self._members[rank]
        outcome, failure = end.outcome, end.outcome.error
        if failure is not None and len(self.slots) > 1:
            message = f"{self._name(rank)}, on {member.host}: {failure.message}"
            outcome = replace(outcome, error=replace(failure, message=message))
        return Verdict(self.attempt.number, member, outcome, end.is_lost, end.counts)

    def _name(self, rank: int) -> str:
        return f"worker {rank} of {len(self.slots)}"
