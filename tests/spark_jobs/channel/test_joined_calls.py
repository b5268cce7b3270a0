"""Calls of many slots over one stream, without any stream."""

import asyncio
import contextlib

import pytest

from spark_jobs.channel.exchange import Exchange, Refusal
from spark_jobs.channel.grpc_channel import ChannelServer
from spark_jobs.channel.joined_calls import Answering, Asking, Called, decode_calls, encode_calls
from spark_jobs.messages import Next, Wait, encode

KEY = "0" * 32


class Idle:
    """A driver without work."""

    def alike(self, slot):
        return None

    alike_now = alike

    def assigned(self):
        return []

    def next(self, message):
        return Wait()


class Stream:
    """A relay's stream, which takes frames only while it is open."""

    def __init__(self):
        self.frames = []
        self.is_open = asyncio.Event()

    async def write(self, frame):
        self.frames.append(frame)
        await self.is_open.wait()

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.Event().wait()

    def cancel(self):
        pass


def ask(asking, slot):
    return asyncio.ensure_future(asking.ask("Next", encode(Next(slot)), KEY))


async def dropped(*calls):
    for call in calls:
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call


def waiting_at_driver(frames):
    """Return how many calls of these frames wait at a driver."""
    exchange = Exchange(Idle())
    answering = Answering(exchange)
    for frame in frames:
        answering._take_all(decode_calls(frame))
    number = sum(not call.cancelled() for call in answering._calls.values())
    for call in answering._calls.values():
        call.cancel()
    return number


@pytest.mark.parametrize("sent_before", [False, True])
def test_a_call_that_nobody_waits_for_does_not_wait_at_the_driver(sent_before):
    async def test():
        stream = Stream()
        asking = Asking(lambda: stream)
        first = ask(asking, "1.0.0")
        if sent_before:
            while not stream.frames:
                await asyncio.sleep(0)
        second, third = ask(asking, "1.1.0"), ask(asking, "1.2.0")
        await asyncio.sleep(0)
        await dropped(first, second)
        stream.is_open.set()
        kept = ask(asking, "1.3.0")
        while asking._calls or asking._dropped:
            await asyncio.sleep(0)
        assert waiting_at_driver(stream.frames) == 2
        assert asking._unsent == 0
        await dropped(third, kept)
        await asking.close()

    asyncio.run(test())


def test_a_call_in_the_frame_of_its_drop_does_not_wait():
    async def test():
        called = Called(number=1, call="Next", key=KEY, message=encode(Next("1.0.0")))
        assert waiting_at_driver([encode_calls([called], [1])]) == 0

    asyncio.run(test())


def called(number, slot):
    return Called(number=number, call="Next", key=KEY, message=encode(Next(slot)))


async def frames_of(*frames):
    """A stream of these frames that stays open."""
    for frame in frames:
        yield frame
    await asyncio.Event().wait()


def test_a_stream_with_a_bad_frame_ends_at_once_also_while_calls_wait():
    async def test():
        answering = Answering(Exchange(Idle()))
        stream = frames_of(encode_calls([called(1, "1.0.0")]), b"nonsense")
        with pytest.raises(Refusal):
            await asyncio.wait_for(anext(answering.frames(stream)), 60)
        await asyncio.sleep(0)
        assert not answering._calls

    asyncio.run(test())


def test_the_calls_of_a_stream_that_is_closed_wait_no_more():
    async def test():
        server = ChannelServer("127.0.0.1", Idle())  # not entered
        bad = Called(number=2, call="Next", key=KEY, message=b"nonsense")
        stream = frames_of(encode_calls([called(1, "1.0.0"), bad]))
        frames = server._answer_joined(stream, None)
        assert await anext(frames), "the second call is refused at once"
        waiting = server._exchange._lines.get("1.0.0")
        await frames.aclose()
        assert waiting.cancelled()

    asyncio.run(test())


def test_a_call_is_refused_where_no_stream_can_be_opened_and_the_next_one_tries_again():
    async def test():
        tries = []

        def connect():
            tries.append(None)
            raise OSError("too many open files")

        asking = Asking(connect)
        for number in (1, 2):
            answered = await asyncio.wait_for(ask(asking, "1.0.0"), 60)
            assert answered.refusal == "UNAVAILABLE"
            assert len(tries) == number
        await asking.close()

    asyncio.run(test())
