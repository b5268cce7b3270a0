"""What slots and driver say to each other, whatever carries it: the seam of the channels.

A channel carries three calls, `Hello`, `Next` and `Report`, from a slot to the driver, and the
answer to each back. `SlotChannel` is a slot's side of it: `grpc_channel.py` has that of gRPC,
`file_channel.py` that of a mailbox on storage. On the driver's side both hand what arrives to one
`Exchange`.
"""

from __future__ import annotations

import abc
import asyncio
import functools
import time
from collections.abc import Callable, Hashable
from typing import Literal, Protocol, Self, TypeVar

from search.errors import ExperimentError
from search.trial import Outcome
from spark_jobs import time_limits
from spark_jobs.channel.credentials import AttemptKeys, new_key
from spark_jobs.messages import (
    Answer,
    Attempt,
    Heard,
    Hello,
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
"""What a slot may call."""

CALLS: dict[Call, type[Hello] | type[Next] | type[Reports]] = {
    "Hello": Hello,
    "Next": Next,
    "Report": Reports,
}
"""The message that goes with each call."""

T = TypeVar("T")


class ChannelLost(ExperimentError):
    """The driver does not answer."""


class ChannelRefused(ChannelLost):
    """The driver takes no such message, or none any more."""


class Cut(ExperimentError):
    """A message, or its answer, got lost on its way; it may be sent again."""


class Refusal(ExperimentError):
    """Why the driver does not answer a message.

    Attributes:
        status: As gRPC calls it.
    """

    def __init__(
        self, status: Literal["ABORTED", "INVALID_ARGUMENT", "PERMISSION_DENIED"], details: str
    ) -> None:
        super().__init__(details)
        self.status = status


class Handler(Protocol):
    """What the driver does with what slots say. Called in the server's thread only."""

    def hello(self, message: Hello) -> None:
        """Take in a slot's first words."""

    def next(self, message: Next) -> Answer:
        """Take in a slot's last outcome and return its next work, at once."""

    def alike(self, slot: str) -> Hashable:
        """Return what a slot has in common with those that have to wait whenever it has to."""

    def report(self, message: Reports) -> Heard:
        """Take in what a slot's trial reported."""


class Exchange:
    """Has a handler answer messages, however they came. Used in one event loop only.

    Args:
        handler: Gets what the slots say.

    Attributes:
        error: What the handler raised, if it did; the search cannot go on then.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._keys = AttemptKeys()
        # Slots that wait, in the order in which they came, by what makes them alike.
        self._lines: dict[Hashable, dict[str, asyncio.Future[Answer]]] = {}
        self.error: BaseException | None = None

    async def answer(
        self, call: Call, request: bytes, key: str, patience: float
    ) -> tuple[bytes, str]:
        """Return the answer to a message, and the key of the work that it brings, else ''.

        Args:
            call: Which call it is.
            request: The message.
            key: That the slot has shown.
            patience: Seconds that a slot waits for work before it is told that there is none yet.

        Raises:
            Refusal: It gets none.
        """
        message = self._read(call, request, key)
        match message:
            case Hello():
                self._guarded(lambda: self._handler.hello(message))
                self.wake()  # a slot that is not to be one any more leaves its trial to others
                return encode(Welcome(time.time())), ""
            case Reports():
                return encode(self._guarded(lambda: self._handler.report(message))), ""
        answer = await self._next(message, patience)
        following = self._keys.following(message.slot) if isinstance(answer, Attempt) else ""
        return encode(answer), following

    def wake(self) -> None:
        """Let waiting slots ask again: of those that are alike, one after the other till one waits.

        With a thousand slots that wait for a generation to end, asking each after each of its
        trials would take all of a processor.
        """
        for line in list(self._lines.values()):
            for slot, waiting in list(line.items()):
                if waiting.done():  # it waits no more, and is about to leave the line
                    continue
                try:
                    answer = self._guarded(functools.partial(self._handler.next, Next(slot)))
                except Refusal as refusal:
                    waiting.set_exception(refusal)
                    continue
                if isinstance(answer, Wait):
                    break
                waiting.set_result(answer)

    async def _next(self, message: Next, patience: float) -> Answer:
        answer = self._guarded(lambda: self._handler.next(message))
        if message.outcome is not None:
            self.wake()  # what was told may free work for others
        if not isinstance(answer, Wait):
            return answer
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        alike = self._handler.alike(message.slot)
        line = self._lines.setdefault(alike, {})
        line[message.slot] = waiting
        try:
            return await asyncio.wait_for(waiting, patience)
        except TimeoutError:
            return answer
        finally:
            if line.get(message.slot) is waiting:  # the slot has not asked again since
                del line[message.slot]
            if not line and self._lines.get(alike) is line:
                del self._lines[alike]

    def _read(self, call: Call, request: bytes, key: str) -> Hello | Next | Reports:
        """Return a message of the slot that it says it is from."""
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


def clock_lag(before: float, there: float, after: float) -> float:
    """Return the seconds by which a clock lags another one, which was read between two looks at it.

    Args:
        before: What this clock said when the other was asked.
        there: What the other one said.
        after: What this clock said when the answer came, which may be long after the question.
    """
    return 0.0 if before <= there <= after else there - after


class SlotChannel(abc.ABC):
    """A slot's side of a channel. A context manager; leaving it ends calls that are out.

    Its contract is tests/spark_jobs/channel/channel_contract.py. Two threads may use it: one for
    reports, and one for everything else.

    Args:
        slot: The slot's name.

    Attributes:
        heard: Told after each try whether an answer came. From the thread that asked.

    Raises:
        ChannelLost: From every method, where the driver does not answer.
    """

    def __init__(self, slot: str) -> None:
        self._slot = slot
        self.heard: Callable[[bool], None] = lambda answered: None
        self._key = new_key()  # the first one; each work brings the next

    def __enter__(self) -> Self:
        return self

    @abc.abstractmethod
    def __exit__(self, *error: object) -> None: ...

    def hello(self, message: Hello) -> float:
        """Say the first words; return the seconds by which this host's clock lags the driver's.

        0 where the two agree as far as the way there and back can show.
        """
        before = time.time()
        there = decode(self._call("Hello", message.cut()), Welcome).now
        return clock_lag(before, there, time.time())

    def next(self, attempt: int = 0, outcome: Outcome | None = None) -> Attempt | None:
        """Hand in the last outcome and wait for the next trial; None where no work is left."""
        message = Next(self._slot, attempt, outcome)
        while True:
            match decode_answer(self._call("Next", message)):
                case Attempt() as following:
                    return following
                case Wait():
                    message = Next(self._slot)
                case _:
                    return None

    def report(self, attempt: Attempt, reports: tuple[Report, ...], output: str = "") -> str:
        """Pass on what a trial reported; return why it is to stop, or ''. Asks only once."""
        message = Reports(self._slot, attempt.trial.id, attempt.number, reports, output)
        return decode(self._call("Report", message, patience=0), Heard).stop

    def _call(
        self, call: Call, message: Hello | Next | Reports, patience: float = time_limits.OUTAGE
    ) -> bytes:
        """Call until there is an answer: each message may arrive twice."""

        def ask() -> tuple[bytes, str]:
            try:
                answer = self._ask(call, encode(message))
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
    def _ask(self, call: Call, request: bytes) -> tuple[bytes, str]:
        """Send a message, with the key; return the answer and the next key, '' where none came.

        Raises:
            Cut: No answer came; it may be sent again.
            ChannelRefused: It would be refused again.
            ChannelLost: The channel was closed here.
        """
