"""The channel through a relay, in a thread of this process."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from spark_jobs import time_limits
from spark_jobs.channel import exchange
from spark_jobs.channel.exchange import ChannelLost, ChannelRefused
from spark_jobs.channel.grpc_channel import ChannelServer
from spark_jobs.channel.joined_calls import Called, encode_calls
from spark_jobs.messages import Heard, Hello, Next, Stop, Wait, encode
from spark_jobs.relay import relay as relay_module
from spark_jobs.relay.packets import LARGEST_FRAME, Packets
from spark_jobs.relay.relayed_channel import Outage, RelayLost
from spark_jobs.trial.pipe.frames import frame
from tests.experiment.waiting import wait_until
from tests.proxy import Proxy
from tests.spark_jobs.channel.channel_contract import (
    ATTEMPT,
    OUTCOME,
    REPORTS,
    ChannelContract,
    Script,
    Working,
)
from tests.spark_jobs.relay.relays import Here, is_relayed

LOOPBACK = "127.0.0.1"


def called(number, message):
    return Called(number=number, call="Next", key="0" * 32, message=message)


@contextlib.contextmanager
def relay_of(address):
    with tempfile.TemporaryDirectory() as folder, Here(address, Path(folder)).running() as relay:
        yield relay


class TestChannel(ChannelContract):
    @pytest.fixture
    def opened(self):
        @contextlib.contextmanager
        def opened(handler):
            with ChannelServer(LOOPBACK, handler) as server, relay_of(server.address) as relay:
                yield server, relay.connect

        return opened


@contextlib.contextmanager
def behind_proxy(handler):
    """Yield a slot, and the proxy that is between its relay and the driver."""
    with ChannelServer(LOOPBACK, handler) as server, Proxy(server.address.target) as proxy:
        address = msgspec.structs.replace(server.address, target=proxy.address)
        with relay_of(address) as relay, relay.connect("1.0.0") as slot:
            yield slot, proxy


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(exchange, "_PAUSE", 0.01)


def test_all_slots_share_one_connection_to_the_driver():
    handler = Working()
    with ChannelServer(LOOPBACK, handler) as server, Proxy(server.address.target) as proxy:
        address = msgspec.structs.replace(server.address, target=proxy.address)
        with relay_of(address) as relay, contextlib.ExitStack() as stack:
            slots = [stack.enter_context(relay.connect(f"1.{n}.0")) for n in range(8)]
            assert all(slot.next() == ATTEMPT for slot in slots)
            with ThreadPoolExecutor(8) as pool:
                answers = [pool.submit(slot.next, 2, OUTCOME) for slot in slots]
                assert all(slot.report(ATTEMPT, REPORTS) == Heard() for slot in slots)
                assert all(answer.result() == ATTEMPT for answer in answers)
            assert all(is_relayed(slot) for slot in slots)
        assert proxy.connected == 1
    assert len(handler.outcomes) == 8


@pytest.mark.usefixtures("impatient")
def test_an_outcome_survives_an_outage_between_relay_and_driver():
    handler = Working()
    with behind_proxy(handler) as (slot, proxy), ThreadPoolExecutor() as pool:
        assert slot.next() == ATTEMPT
        proxy.cut()
        answer = pool.submit(slot.next, 2, OUTCOME)
        with pytest.raises(ChannelLost):
            slot.report(ATTEMPT, REPORTS)
        assert not answer.done()
        proxy.forward()
        assert answer.result(timeout=120) == ATTEMPT
        assert is_relayed(slot)
    assert set(handler.outcomes) == {0.5}


@pytest.mark.usefixtures("impatient")
def test_a_relay_that_does_not_reach_the_driver_for_long_is_left(monkeypatch):
    monkeypatch.setattr(time_limits, "RELAY_OUTAGE", 0.0)
    handler = Working()
    with behind_proxy(handler) as (slot, proxy):
        assert slot.next() == ATTEMPT
        proxy.cut()
        for _ in range(2):
            with pytest.raises(ChannelLost):
                slot.report(ATTEMPT, REPORTS)
        assert not is_relayed(slot)
        proxy.forward()
        assert slot.next(2, OUTCOME) == ATTEMPT
    assert set(handler.outcomes) == {0.5}


def test_a_slot_that_is_gone_waits_at_the_driver_no_more():
    """So no trial is given to it."""
    handler = Script(Wait(), Stop())
    with ChannelServer(LOOPBACK, handler) as server, relay_of(server.address) as relay:
        packets = relay.packets()
        message = encode(Next("1.0.0"))
        packets.send(msgspec.msgpack.encode(called(0, message)), 30)
        wait_until(lambda: handler.heard)
        lines = server._exchange._lines
        wait_until(lambda: lines)
        packets.close()
        wait_until(lambda: not lines)
    assert len(handler.heard) == 1


def test_the_end_of_the_driver_ends_a_call():
    handler = Script(Wait())
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as pool:
        ending = stack.enter_context(contextlib.ExitStack())
        server = ending.enter_context(ChannelServer(LOOPBACK, handler))
        slot = stack.enter_context(stack.enter_context(relay_of(server.address)).connect("1.0.0"))
        answer = pool.submit(slot.next)
        wait_until(lambda: handler.heard)
        ending.close()
        slot.__exit__()
        assert isinstance(answer.exception(timeout=60), ChannelLost)


def test_a_wrong_token_is_refused():
    handler = Script(Stop())
    with ChannelServer(LOOPBACK, handler) as server, relay_of(server.address) as relay:
        for token in ("", "0" * 64, "x" * 900):
            with pytest.raises(RelayLost):
                relay.packets(token)
        with relay.connect("1.0.0") as slot:
            assert slot.next() is None
    assert len(handler.heard) == 1


@pytest.mark.parametrize(
    "sent",
    [
        (LARGEST_FRAME + 1).to_bytes(4, "big"),
        frame(b"nonsense"),
        frame(msgspec.msgpack.encode([1, "Other", "0" * 32, b"{}"])),
        frame(msgspec.msgpack.encode(called(0, encode(Next("1.1.0"))))) * 2,
    ],
    ids=["too long", "no call", "another call", "two at once"],
)
def test_a_slot_that_sends_something_else_is_cut_off_and_the_others_go_on(sent):
    handler = Script(Wait(), Stop(), Stop())
    with ChannelServer(LOOPBACK, handler) as server, relay_of(server.address) as relay:
        with relay.connect("1.0.0") as slot:
            packets = relay.packets()
            packets._connection.sendall(sent)
            with pytest.raises(OSError, match="closed"):
                while True:
                    packets.receive(60)
            packets.close()
            del handler.answers[:-1]
            assert slot.next() is None


def test_a_call_that_the_relay_sends_before_the_driver_reads_is_within_the_limits(monkeypatch):
    from spark_jobs.channel import joined_calls

    monkeypatch.setattr(joined_calls, "_MOST_UNSENT", -1)
    with ChannelServer(LOOPBACK, Working()) as server, relay_of(server.address) as relay:
        with relay.connect("1.0.0") as slot, pytest.raises(ChannelLost, match="UNAVAILABLE"):
            slot.report(ATTEMPT, REPORTS)


def test_the_driver_answers_a_limited_number_of_calls_of_a_stream(monkeypatch):
    from spark_jobs.channel import joined_calls

    monkeypatch.setattr(joined_calls, "MOST_CALLS", 1)
    handler = Script(Wait(), Heard())
    with ChannelServer(LOOPBACK, handler) as server, relay_of(server.address) as relay:
        with relay.connect("1.0.0") as slot, ThreadPoolExecutor() as pool:
            waiting = pool.submit(slot.next)
            wait_until(lambda: handler.heard)
            with pytest.raises(ChannelLost, match="UNAVAILABLE"):
                slot.report(ATTEMPT, REPORTS)
            slot.__exit__()
            assert waiting.exception(timeout=60)
    assert len(handler.heard) == 1


def test_frames_that_are_none_end_the_stream_only():
    import grpc

    from spark_jobs.channel.grpc_channel import JOINED, client_options, credentials_of

    handler = Script(Wait(), Stop())
    with ChannelServer(LOOPBACK, handler) as server:
        address = server.address
        metadata = (("authorization", f"Bearer {address.token}"),)
        with grpc.secure_channel(
            address.target, credentials_of(address), client_options()
        ) as channel:
            stream = channel.stream_stream(f"/experiment.Channel/{JOINED}")
            twice = encode_calls([called(1, encode(Next("1.1.0")))] * 2)
            for frames in ([b"nonsense"], [b"\x93\x90\x90\x90"], [b""], [twice]):
                with pytest.raises(grpc.RpcError) as caught:
                    list(stream(iter(frames), metadata=metadata, timeout=60))
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            wait_until(lambda: not server._exchange._lines)  # its call waits no more
            with pytest.raises(grpc.RpcError) as caught:
                list(stream(iter([]), timeout=60))
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with relay_of(address) as relay, relay.connect("1.0.0") as slot:
            slot.hello(Hello(slot="1.0.0", host="host"))
            assert slot.next() is None
    assert server.error is None


@pytest.mark.parametrize("pieces", [[b"one"], [b"", b"two"], [b"x" * 200_000, b""]])
def test_packets_arrive_whole_however_they_are_cut(pieces):
    ours, theirs = socket.socketpair()
    with contextlib.closing(Packets(ours)) as packets, theirs:
        data = b"".join(map(frame, pieces))
        assert packets.receive(0.0) is None
        with ThreadPoolExecutor() as pool:
            sending = pool.submit(
                lambda: [theirs.sendall(data[i : i + 7]) for i in range(0, len(data), 7)]
            )
            assert [packets.receive(60) for _ in pieces] == pieces
            sending.result()
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError):
            packets.receive(60)


def test_a_message_that_is_refused_is_not_repeated():
    with ChannelServer(LOOPBACK, Working()) as server, relay_of(server.address) as relay:
        with relay.connect("1.0.0") as slot, pytest.raises(ChannelRefused):
            slot._key = "no key"
            slot.next()


def test_only_calls_that_are_cut_in_a_row_count_as_an_outage():
    outage = Outage()
    assert outage.seconds(10.0, 11.0) == 0
    assert outage.seconds(30.0, 41.0) == 30
    outage.end()
    assert outage.seconds(50.0, 51.0) == 0
    long = 100.0
    assert outage.seconds(52.0, 52.0 + long) == 0, "it waited at the driver before it was cut"
    assert outage.seconds(120.0, 121.0) == 121.0 - 52.0 - long


def test_a_slot_that_leaves_its_relay_says_why(capfd):
    handler = Working()
    with ChannelServer(LOOPBACK, handler) as server, relay_of(server.address) as relay:
        with relay.connect("1.0.0") as slot:
            slot._lanes["Next"].packets._connection.shutdown(socket.SHUT_RDWR)
            assert slot.next() == ATTEMPT
            assert not is_relayed(slot)
    assert "relay lost: [Errno 32] Broken pipe; connecting" in capfd.readouterr().err


def test_a_relay_that_cannot_look_for_the_driver_ends(monkeypatch):
    async def fails(channel):
        raise OSError("too many open files")

    monkeypatch.setattr(relay_module, "_is_reached", fails)
    with ChannelServer(LOOPBACK, Working()) as server, tempfile.TemporaryDirectory() as folder:
        here = Here(server.address, Path(folder))
        with here.running():
            wait_until(lambda: not here.path.exists())
