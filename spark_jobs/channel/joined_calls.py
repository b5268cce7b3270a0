"""Calls of many slots over one stream: frames with several calls, and frames with their answers.

A relay on an executor sends the calls of its slots so. The messages of slots and their answers are
JSON, unchanged; the frames around them are MessagePack.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeVar

import grpc
import msgspec

from spark_jobs import time_limits
from spark_jobs.channel.exchange import Call, Exchange, Refusal, Reply
from spark_jobs.messages import LARGEST_MESSAGE, ProtocolError

LARGEST_FRAME = LARGEST_MESSAGE + (1 << 16)
"""Maximum bytes of a frame: the largest message with its envelope fits into one."""

MOST_CALLS = 1_024
"""Maximum calls at once of one stream: two for each slot of an executor with 512."""

T = TypeVar("T")
_FULL = LARGEST_MESSAGE  # bytes of messages after which a frame is full
_AROUND = 128  # bytes around a message, at most
_CUT = "UNAVAILABLE"
_PASSED_ON = (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAUTHENTICATED)
_MOST_UNSENT = 4 * LARGEST_FRAME  # bytes of answers; no more calls are read meanwhile


class Called(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True
):
    """A slot's call.

    Attributes:
        number: The number of the call, unique in its stream.
        call: The call.
        key: The key of the slot's attempt.
        message: The message, as JSON.
    """

    number: int
    call: Call
    key: str
    message: bytes


class Answered(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True
):
    """The answer to a call.

    Attributes:
        number: The number of the call.
        answer: The answer, as JSON; empty if it is refused.
        key: The key of the attempt in the answer, else ''.
        refusal: The name of gRPC's status if it is refused, else ''.
    """

    number: int
    answer: bytes = b""
    key: str = ""
    refusal: str = ""


class Calls(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A frame of a relay.

    Attributes:
        calls: New calls.
        dropped: Numbers of calls whose slots do not wait for the answers any more.
    """

    calls: tuple[Called, ...] = ()
    dropped: tuple[int, ...] = ()


Answers = tuple[Answered, ...]
"""A frame of the driver."""

_ENCODER = msgspec.msgpack.Encoder()
_CALLS = msgspec.msgpack.Decoder(Calls)
_ANSWERS = msgspec.msgpack.Decoder(Answers)


def encode_calls(calls: Iterable[Called], dropped: Iterable[int] = ()) -> bytes:
    """Return a relay's frame."""
    return _ENCODER.encode(Calls(tuple(calls), tuple(dropped)))


def decode_calls(frame: bytes) -> Calls:
    """Return the calls in a relay's frame; ProtocolError for any other data."""
    return _decoded(_CALLS, frame)


def encode_answers(answers: Iterable[Answered]) -> bytes:
    """Return the driver's frame."""
    return _ENCODER.encode(tuple(answers))


def decode_answers(frame: bytes) -> Answers:
    """Return the answers in the driver's frame; ProtocolError for any other data."""
    return _decoded(_ANSWERS, frame)


def _decoded(decoder: msgspec.msgpack.Decoder[T], frame: bytes) -> T:
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(str(error)) from None


class Answering:
    """The driver's side of one stream.

    Args:
        exchange: Answers the calls.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._calls: dict[int, asyncio.Future[Reply]] = {}  # those that wait
        self._answers: deque[Answered] = deque()
        self._unsent = 0  # bytes
        self._changed = asyncio.Event()
        self._has_room: asyncio.Event | None = None

    async def frames(self, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield frames with the answers to the calls in a stream's frames, as they come.

        Raises:
            Refusal: The stream has something else than frames.
        """
        reading = asyncio.ensure_future(self._read(requests))
        reading.add_done_callback(lambda _: self._changed.set())
        try:
            while not _has_failed(reading) and (self._answers or self._calls or not reading.done()):
                if self._answers:
                    yield self._next_frame()
                else:
                    await self._changed.wait()
                    self._changed.clear()
            try:
                reading.result()
            except ProtocolError as error:
                raise Refusal("INVALID_ARGUMENT", str(error)[:200]) from None
        finally:
            reading.cancel()
            for call in list(self._calls.values()):
                call.cancel()

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        async for frame in requests:
            self._take_all(decode_calls(frame))
            del frame  # else it stays in memory until the next one comes
            while self._unsent > _MOST_UNSENT:
                self._has_room = asyncio.Event()
                await self._has_room.wait()

    def _take_all(self, read: Calls) -> None:
        for called in read.calls:
            self._take(called)
        for number in read.dropped:  # last, as it may be a call of this frame
            if number in self._calls:
                self._calls[number].cancel()

    def _take(self, called: Called) -> None:
        number = called.number
        if number in self._calls:
            raise ProtocolError(f"two calls of number {number}")
        if len(self._calls) >= MOST_CALLS:
            self._post(Answered(number=number, refusal=_CUT))
            return
        try:
            reply = self._exchange.begin(called.call, called.message, called.key, time_limits.WAIT)
        except Refusal as refusal:
            self._post(Answered(number=number, refusal=refusal.status))
            return
        if isinstance(reply, tuple):
            self._post_reply(number, reply)
        else:
            self._calls[number] = reply
            answered = functools.partial(self._answered, number)
            reply.add_done_callback(answered, context=self._exchange.context)

    def _answered(self, number: int, reply: asyncio.Future[Reply]) -> None:
        """Post the answer to a call that has waited."""
        self._calls.pop(number, None)
        if reply.cancelled():
            self._changed.set()  # it may have been the last call of a stream that has ended
        elif isinstance(error := reply.exception(), Refusal):
            self._post(Answered(number=number, refusal=error.status))
        else:
            self._post_reply(number, reply.result())

    def _post_reply(self, number: int, reply: Reply) -> None:
        answer, key = reply
        self._post(Answered(number=number, answer=answer, key=key))

    def _post(self, answered: Answered) -> None:
        self._answers.append(answered)
        self._unsent += len(answered.answer)
        self._changed.set()

    def _next_frame(self) -> bytes:
        """Return a frame with the next answers, as many as it holds."""
        some = _filling(self._answers, lambda answered: answered.answer)
        self._unsent -= sum(len(answered.answer) for answered in some)
        if self._has_room is not None:
            self._has_room.set()
        return encode_answers(some)


class Asking:
    """The relay's side: joins the calls of slots into frames of one stream. In one event loop.

    A broken stream is replaced at the next call.

    Args:
        connect: Returns a new stream, of grpc.aio.
    """

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Answered]] = {}
        self._calls: deque[Called] = deque()
        self._unsent = 0  # bytes
        self._dropped: list[int] = []
        self._changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def ask(self, call: Call, message: bytes, key: str) -> Answered:
        """Return the answer to a slot's call.

        If the stream breaks, it is refused: with UNAVAILABLE it may be repeated.

        When it is cancelled, the driver is told that nobody waits for the answer.
        """
        number = next(self._numbers)
        if self._unsent > _MOST_UNSENT:
            return Answered(number=number, refusal=_CUT)
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        called = Called(number=number, call=call, key=key, message=message)
        self._calls.append(called)
        self._unsent += len(message)
        self._changed.set()
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._run())
        try:
            return await answer
        except asyncio.CancelledError:
            self._drop(called)
            raise
        finally:
            self._waiting.pop(number, None)

    def _drop(self, called: Called) -> None:
        """Take a call back, or tell the driver that nobody waits for its answer."""
        if called in self._calls:  # its drop must not be sent before it
            self._calls.remove(called)
            self._unsent -= len(called.message)
        else:
            self._dropped.append(called.number)
            self._changed.set()

    async def close(self) -> None:
        """End the stream."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

    async def _run(self) -> None:
        errors: Sequence[BaseException | None] = ()
        try:
            errors = await self._use(self._connect())
        except Exception as error:  # no stream can be opened
            errors = [error]
        finally:
            self._refuse_all(_status_of(errors))

    async def _use(self, stream: Any) -> Sequence[BaseException | None]:
        """Use a stream until it breaks; return the errors of reading and writing."""
        both = [asyncio.ensure_future(step(stream)) for step in (self._read, self._write)]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            errors = await asyncio.gather(*both, return_exceptions=True)
            stream.cancel()
        return errors

    def _refuse_all(self, status: str) -> None:
        self._calls.clear()
        self._unsent = 0
        self._dropped.clear()
        for number, answer in self._waiting.items():
            if not answer.done():
                answer.set_result(Answered(number=number, refusal=status))

    async def _read(self, stream: Any) -> None:
        async for frame in stream:
            for answered in decode_answers(frame):
                answer = self._waiting.get(answered.number)
                if answer is not None and not answer.done():
                    answer.set_result(answered)

    async def _write(self, stream: Any) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._calls or self._dropped:
                some = _filling(self._calls, lambda called: called.message)
                self._unsent -= sum(len(called.message) for called in some)
                dropped, self._dropped = self._dropped, []
                await stream.write(encode_calls(some, dropped))


def _has_failed(reading: asyncio.Future[None]) -> bool:
    return reading.done() and reading.exception() is not None


def _status_of(errors: Iterable[BaseException | None]) -> str:
    """Return the status by which calls on a broken stream are refused.

    Args:
        errors: The errors of reading and writing.
    """
    codes = [error.code() for error in errors if isinstance(error, grpc.aio.AioRpcError)]
    return next((code.name for code in codes if code in _PASSED_ON), _CUT)


def _filling(waiting: deque[T], content: Callable[[T], bytes]) -> list[T]:
    """Take the first ones of waiting calls or answers, as many as a frame holds; at least one.

    Args:
        waiting: The calls or answers.
        content: Returns the message of one.
    """
    some: list[T] = []
    size = 0
    while waiting and (not some or size + len(content(waiting[0])) + _AROUND <= _FULL):
        some.append(waiting.popleft())
        size += len(content(some[-1])) + _AROUND
    return some
