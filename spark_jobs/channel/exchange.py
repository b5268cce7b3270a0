"""The calls between slots and driver, independent of their transport.

A channel carries three calls, `Hello`, `Next` and `Report`, from a slot to the driver, and an
answer to each back. `SlotChannel` is a slot's side of it, with an implementation for gRPC in
`grpc_channel.py` and one for a mailbox on storage in `file_channel.py`. On the driver's side both
pass the messages to one `Exchange`.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import contextvars
import functools
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Literal, Protocol, Self, TypeVar

from search.errors import ExperimentError
from search.trial import Outcome
from spark_jobs import time_limits
from spark_jobs.channel.credentials import AttemptKeys, new_key
from spark_jobs.channel.waiting_lines import WaitingLines
from spark_jobs.messages import (
    Answer,
    Attempt,
    Heard,
    Hello,
    MemberAddress,
    Next,
    ProtocolError,
    Report,
    Reports,
    Wait,
    Welcome,
    decode,
    decode_answer,
    encode,
)
from spark_jobs.retrying import call_again

_PAUSE = 0.5  # seconds between two tries

Call = Literal["Hello", "Next", "Report"]
"""The calls of a slot."""

CALLS: dict[Call, type[Hello] | type[Next] | type[Reports]] = {
    "Hello": Hello,
    "Next": Next,
    "Report": Reports,
}
"""The message of each call."""

Reply = tuple[bytes, str]
"""The answer to a message, and the key of the attempt in it, else ''."""

T = TypeVar("T")


class ChannelLost(ExperimentError):
    """The driver does not answer."""


class ChannelRefused(ChannelLost):
    """The driver refuses the message, now and later."""


class ChannelClosed(ChannelLost):
    """The channel was closed here, so no more messages are sent."""


class Cut(ExperimentError):
    """A message or its answer was lost; the message may be sent again."""


class Refusal(ExperimentError):
    """The driver's refusal to answer a message.

    Attributes:
        status: The name of gRPC's status.
    """

    def __init__(
        self, status: Literal["ABORTED", "INVALID_ARGUMENT", "PERMISSION_DENIED"], details: str
    ) -> None:
        super().__init__(details)
        self.status = status


class Handler(Protocol):
    """The driver's handler of messages. Called in the server's thread only."""

    def hello(self, message: Hello) -> None:
        """Take in a slot's first message."""

    def next(self, message: Next) -> Answer:
        """Take in a slot's last outcome and return its next work, at once."""

    def alike(self, slot: str) -> Hashable:
        """Return a key that is equal for slots that have to wait for the same work."""

    def alike_now(self, slot: str) -> Hashable:
        """Return a key that is equal for slots which would get the same answer now; coarser."""

    def assigned(self) -> Iterable[str]:
        """Return the slots that got work since the last call by the message of another slot."""

    def report(self, message: Reports) -> Heard:
        """Take in the reports of a slot's trial."""


class Exchange:
    """Passes messages of any transport to a handler. Used in one event loop only.

    Args:
        handler: Receives the messages.

    Attributes:
        error: The handler's error, if it raised one; it ends the search.
        context: The context of all callbacks; one for each would take memory.
    """

    def __init__(self, handler: Handler) -> None:
        self.context = contextvars.copy_context()
        self._handler = handler
        self._keys = AttemptKeys()
        self._lines = WaitingLines[asyncio.Future[Reply]](handler.alike, handler.alike_now)
        self._to_wake = False
        self.error: BaseException | None = None

    async def answer(self, call: Call, request: bytes, key: str, patience: float) -> Reply:
        """Return the answer to a message; the arguments and errors are those of `begin`."""
        reply = self.begin(call, request, key, patience)
        return reply if isinstance(reply, tuple) else await reply

    def begin(
        self, call: Call, request: bytes, key: str, patience: float
    ) -> Reply | asyncio.Future[Reply]:
        """Return the answer to a message, or a future of it if the slot has to wait for work.

        A task for each slot that waits would take more memory than all else about the slot.

        Args:
            call: The call.
            request: The message.
            key: The slot's key.
            patience: Seconds to wait for work before the answer that there is none yet.

        Raises:
            Refusal: The message gets no answer.
        """
        message = self._read(call, request, key)
        match message:
            case Hello():
                self._guarded(lambda: self._handler.hello(message))
                self._wake_soon()  # a slot that is to end leaves its trial to others
                return encode(Welcome(time.time())), ""
            case Reports():
                return encode(self._guarded(lambda: self._handler.report(message))), ""
        return self._guarded(lambda: self._next(message, patience))

    def wake(self) -> None:
        """Let waiting slots ask again, as far as needed, see `WaitingLines.wake`."""
        self._to_wake = False
        with contextlib.suppress(Refusal):  # noted as `error`, which ends the search
            self._guarded(self._wake)

    def _wake(self) -> None:
        self._lines.wake(self._ask_again)
        self._answer_assigned()

    def _answer_assigned(self) -> None:
        """Answer waiting slots that got work by the message of another slot."""
        for slot in self._handler.assigned():
            waiting = self._lines.get(slot)
            if waiting is not None:
                self._ask_again(slot, waiting)

    def _ask_again(self, slot: str, waiting: asyncio.Future[Reply]) -> bool:
        """Ask for a slot that waits; return False if it has to wait on."""
        if waiting.done():  # it does not wait any more, and is about to leave its line
            return True
        try:
            answer = self._guarded(functools.partial(self._handler.next, Next(slot)))
        except Refusal as refusal:
            waiting.set_exception(refusal)
            return True
        if isinstance(answer, Wait):
            return False
        waiting.set_result(self._reply(slot, answer))
        return True

    def _wake_soon(self) -> None:
        """Wake once after all messages that have arrived: with many hosts it takes a while."""
        if not self._to_wake:
            self._to_wake = True
            asyncio.get_running_loop().call_soon(self.wake)

    def _reply(self, slot: str, answer: Answer) -> Reply:
        following = self._keys.following(slot) if isinstance(answer, Attempt) else ""
        return encode(answer), following

    def _next(self, message: Next, patience: float) -> Reply | asyncio.Future[Reply]:
        slot = message.slot
        answer = self._handler.next(message)
        if message.outcome is not None:
            self._wake_soon()  # the outcome may free work for others
        earlier = self._lines.get(slot)
        if earlier is not None:
            # This call may be a late one, whose answer nobody reads: then the slot asks once more.
            _settle(earlier, Wait())
        self._answer_assigned()
        if not isinstance(answer, Wait):
            return self._reply(slot, answer)
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Reply] = loop.create_future()
        # Before others are woken, which may need this slot for their trial.
        self._lines.join(slot, waiting)
        longer = min(message.longer, time_limits.LONGER_WAIT)
        timer = loop.call_later(patience + longer, _settle, waiting, answer, context=self.context)
        leave = functools.partial(self._leave, slot, timer)
        waiting.add_done_callback(leave, context=self.context)
        return waiting

    def _leave(self, slot: str, timer: asyncio.TimerHandle, waiting: asyncio.Future[Reply]) -> None:
        timer.cancel()
        self._lines.leave(slot, waiting)

    def _read(self, call: Call, request: bytes, key: str) -> Hello | Next | Reports:
        """Return a decoded message, after checking the key of its slot."""
        try:
            message = decode(request, CALLS[call])
        except ProtocolError as error:
            raise Refusal("INVALID_ARGUMENT", str(error)[:200]) from None
        if not self._keys.admits(message.slot, key):
            raise Refusal("PERMISSION_DENIED", "not a key of this slot")
        return message

    def _guarded(self, function: Callable[[], T]) -> T:
        try:
            return function()
        except ProtocolError as error:
            raise Refusal("INVALID_ARGUMENT", str(error)[:200]) from None
        except Exception as error:
            self.error = error
            raise Refusal("ABORTED", "the search has ended") from None


def _settle(waiting: asyncio.Future[Reply], answer: Wait) -> None:
    if not waiting.done():
        waiting.set_result((encode(answer), ""))


def clock_lag(before: float, there: float, after: float) -> float:
    """Return the seconds by which a clock lags another one, which was read between two readings.

    Args:
        before: Time of this clock at the request.
        there: Time of the other clock.
        after: Time of this clock at the answer, which may be long after the request.
    """
    return 0.0 if before <= there <= after else there - after


class SlotChannel(abc.ABC):
    """A slot's side of a channel. A context manager; leaving it ends running calls.

    Its contract is tests/spark_jobs/channel/channel_contract.py. Two threads may use it: one for
    reports, and one for everything else.

    Args:
        slot: The slot's name.

    Attributes:
        LONGER_WAIT: Maximum seconds by which it lets the driver wait longer for work than usually.
        GANG_BEAT: Seconds without a report until it sends a heartbeat of a trial on several slots.
        heard: Called after each try with whether an answer came, in the calling thread.

    Raises:
        ChannelLost: From every method, if the driver does not answer.
    """

    LONGER_WAIT = 0.0
    GANG_BEAT = time_limits.GANG_BEAT

    def __init__(self, slot: str) -> None:
        self._slot = slot
        self.heard: Callable[[bool], None] = lambda answered: None
        self._key = new_key()  # the first one; each attempt brings the next

    def __enter__(self) -> Self:
        return self

    @abc.abstractmethod
    def __exit__(self, *error: object) -> None: ...

    def hello(self, message: Hello) -> float:
        """Send the first message; return the seconds by which this host's clock lags the driver's.

        0 if the two agree within the round-trip time.
        """
        before = time.time()
        there = decode(self._call("Hello", message.cut()), Welcome).now
        return clock_lag(before, there, time.time())

    def next(
        self,
        attempt: int = 0,
        outcome: Outcome | None = None,
        address: MemberAddress | None = None,
    ) -> Attempt | None:
        """Send the last outcome and wait for the next attempt; None if no work is left.

        Args:
            attempt: The number of the attempt with the outcome.
            outcome: The outcome.
            address: Where the next attempt can listen for the others of its gang.
        """
        message = Next(self._slot, attempt, outcome, address=address)
        while True:
            match decode_answer(self._call("Next", message)):
                case Attempt() as following:
                    return following
                case Wait(longer):
                    longer = min(longer, self.LONGER_WAIT)
                    message = Next(self._slot, address=address, longer=longer)
                case _:
                    return None

    def report(self, attempt: Attempt, reports: tuple[Report, ...], output: str = "") -> Heard:
        """Send a trial's reports, in one try; return the driver's answer."""
        message = Reports(
            slot=self._slot,
            trial=attempt.trial.id,
            attempt=attempt.number,
            reports=reports,
            output=output,
        )
        return decode(self._call("Report", message, patience=0), Heard)

    def _call(
        self, call: Call, message: Hello | Next | Reports, patience: float = time_limits.OUTAGE
    ) -> bytes:
        """Call until an answer comes; a message may arrive twice."""
        longer = message.longer if isinstance(message, Next) else 0.0

        def ask() -> tuple[bytes, str]:
            try:
                answer = self._ask(call, encode(message), longer)
            except Cut:
                self.heard(False)
                raise
            self.heard(True)
            return answer

        try:
            answer, key = call_again(
                ask,
                after=lambda error: isinstance(error, Cut),
                outage=patience,
                pause=_PAUSE,
            )
        except Cut as error:
            raise ChannelLost(f"the driver does not answer: {error}") from None
        self._key = key or self._key
        return answer

    @abc.abstractmethod
    def _ask(self, call: Call, request: bytes, longer: float = 0.0) -> tuple[bytes, str]:
        """Send a message with the key; return the answer and the next key, '' without a new one.

        Args:
            call: The call.
            request: The message.
            longer: Seconds by which the answer may take longer than usually.

        Raises:
            Cut: No answer came; the message may be sent again.
            ChannelRefused: The message was refused, and would be again.
            ChannelClosed: The channel was closed here.
        """
