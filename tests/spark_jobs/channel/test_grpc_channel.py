from __future__ import annotations

import contextlib
import re
import resource
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import grpc
import msgspec
import psutil
import pytest

from spark_jobs import time_limits
from spark_jobs.channel import exchange, grpc_channel
from spark_jobs.channel.credentials import make_certificate, new_key
from spark_jobs.channel.exchange import ChannelLost
from spark_jobs.channel.grpc_channel import (
    SERVICE,
    Address,
    ChannelClient,
    ChannelServer,
    client_options,
    credentials_of,
)
from spark_jobs.messages import (
    Heard,
    Hello,
    Next,
    Reports,
    Stop,
    Wait,
    decode,
    encode,
)
from tests import ROOT
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

LOOPBACK = "127.0.0.1"


class TestChannel(ChannelContract):
    @pytest.fixture
    def opened(self):
        @contextlib.contextmanager
        def opened(handler):
            with ChannelServer(LOOPBACK, handler) as server:
                yield server, lambda slot: ChannelClient(server.address, slot)

        return opened


def has_ipv6():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


@pytest.mark.skipif(not has_ipv6(), reason="needs IPv6")
def test_an_address_of_ipv6_may_have_brackets_as_in_sparks_settings():
    with ChannelServer("[::1]", Script(Heard()), advertised="[2001:db8::1]") as server:
        assert re.fullmatch(r"\[2001:db8::1\]:\d+", server.address.target)


def test_a_server_without_a_thread_is_an_error(monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", start)
    with pytest.raises(RuntimeError, match="can't start"), ChannelServer(LOOPBACK, Script(Heard())):
        pass


def test_reports_need_the_token():
    handler = Script(Heard())
    with ChannelServer(LOOPBACK, handler) as server:
        wrong = msgspec.structs.replace(server.address, token="0" * 64)
        with (
            ChannelClient(wrong, "1.0.0") as slot,
            pytest.raises(ChannelLost, match="UNAUTHENTICATED"),
        ):
            slot.report(ATTEMPT, REPORTS)
    assert handler.heard == []


@contextlib.contextmanager
def behind_proxy(handler):
    """Yield a slot and the proxy that is between it and the driver."""
    with ChannelServer(LOOPBACK, handler) as server, Proxy(server.address.target) as proxy:
        address = msgspec.structs.replace(server.address, target=proxy.address)
        with ChannelClient(address, "1.0.0") as slot:
            yield slot, proxy


@pytest.fixture
def impatient(monkeypatch):
    """Calls time out, and the driver answers that there is no work yet, within a second."""
    monkeypatch.setattr(time_limits, "WAIT", 0.2)
    monkeypatch.setattr(time_limits, "ANSWER", 1.0)
    monkeypatch.setattr(exchange, "_PAUSE", 0.01)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "trouble",
    [
        lambda proxy: proxy.cut(),
        lambda proxy: proxy.hold(),
        lambda proxy: proxy.hold("up"),
        lambda proxy: proxy.hold("down"),
    ],
    ids=["reset", "silent", "silent up", "silent down"],
)
def test_an_outcome_survives_an_outage(trouble):
    """After the outage it arrives at least once, and the coordinator counts it once."""
    handler = Working()
    with behind_proxy(handler) as (slot, proxy), ThreadPoolExecutor() as pool:
        assert slot.next() == ATTEMPT
        trouble(proxy)
        with pytest.raises(ChannelLost):
            slot.report(ATTEMPT, REPORTS)
        answer = pool.submit(slot.next, 2, OUTCOME)
        with pytest.raises(ChannelLost):  # a whole call later it still asks
            slot.report(ATTEMPT, REPORTS)
        assert not answer.done()
        proxy.forward()
        assert answer.result(timeout=120) == ATTEMPT
        assert set(handler.outcomes) == {0.5}
        wait_until(lambda: reported(slot))


def reported(slot):
    with contextlib.suppress(ChannelLost):
        return slot.report(ATTEMPT, REPORTS) == Heard()
    return False


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("directions", [(), ("up",), ("down",)], ids=["both", "up", "down"])
def test_a_silently_broken_connection_is_replaced(directions, monkeypatch):
    """A firewall dropped it silently, and never passes anything again."""
    quick = [(name, milliseconds // 10) for name, milliseconds in grpc_channel._KEEPALIVE]
    monkeypatch.setattr(grpc_channel, "_KEEPALIVE", quick)
    handler = Working()
    with behind_proxy(handler) as (slot, proxy), ThreadPoolExecutor() as pool:
        assert slot.next() == ATTEMPT
        before = proxy.connected
        proxy.drop(*directions)
        answer = pool.submit(slot.next, 2, OUTCOME)
        with pytest.raises(ChannelLost):
            slot.report(ATTEMPT, REPORTS)
        proxy.forward()
        assert answer.result(timeout=120) == ATTEMPT
        assert proxy.connected > before
        assert set(handler.outcomes) == {0.5}


@pytest.mark.slow
@pytest.mark.contract
def test_a_dead_connection_is_noticed_in_much_less_than_a_minute():
    """With the real settings: after 15 seconds."""
    handler = Working()
    with behind_proxy(handler) as (slot, proxy), ThreadPoolExecutor() as pool:
        assert slot.next() == ATTEMPT
        proxy.drop()
        before, lost = proxy.connected, proxy.lost
        answer = pool.submit(slot.next, 2, OUTCOME)
        wait_until(lambda: proxy.lost > lost)
        proxy.forward()
        # 45 seconds in slices: while this process stands still, at most one passes.
        assert any(wait([answer], timeout=0.1).done for _ in range(450))
        assert answer.result() == ATTEMPT
        assert proxy.connected > before


@pytest.mark.usefixtures("impatient")
def test_a_slot_that_waits_for_work_survives_an_outage():
    handler = Script(*[Wait()] * 1_000)
    with behind_proxy(handler) as (slot, proxy), ThreadPoolExecutor() as pool:
        answer = pool.submit(slot.next)
        wait_until(lambda: len(handler.heard) > 2)
        proxy.cut()
        heard = len(handler.heard)
        proxy.forward()
        wait_until(lambda: len(handler.heard) > heard + 2)
        handler.answers[:] = [ATTEMPT] * 3
        assert answer.result(timeout=240) == ATTEMPT


def test_a_slow_network_is_waited_for():
    handler = Working()
    with behind_proxy(handler) as (slot, proxy):
        proxy.slow(5_000)
        assert slot.next() == ATTEMPT
        assert slot.next(2, OUTCOME) == ATTEMPT
    assert handler.outcomes == [0.5]


def test_a_report_is_tried_once(monkeypatch):
    handler = Working()
    with behind_proxy(handler) as (slot, proxy):
        assert slot.report(ATTEMPT, REPORTS) == Heard()
        proxy.hold("down")
        monkeypatch.setattr(time_limits, "ANSWER", 3.0)  # before gRPC gives the connection up
        monkeypatch.setattr(exchange, "_PAUSE", 0.01)
        with pytest.raises(ChannelLost, match="DEADLINE_EXCEEDED"):
            slot.report(ATTEMPT, REPORTS)
        assert handler.calls == 2


@pytest.mark.usefixtures("impatient")
def test_an_outage_that_does_not_end_ends_the_slot(monkeypatch):
    monkeypatch.setattr(time_limits, "OUTAGE", 1.5)
    with behind_proxy(Working()) as (slot, proxy):
        proxy.cut()
        with pytest.raises(ChannelLost, match="does not answer"):
            slot._call("Next", Next("1.0.0"), patience=time_limits.OUTAGE)


@pytest.mark.fault(35)
@pytest.mark.parametrize("token", ["", "0" * 64, "an older run's"])
def test_a_wrong_token_is_refused_before_the_message_is_read(token):
    handler = Script(ATTEMPT)
    with ChannelServer(LOOPBACK, handler) as server:
        if token == "an older run's":
            with ChannelServer(LOOPBACK, handler) as older:
                token = older.address.token
        wrong = msgspec.structs.replace(server.address, token=token)
        call = stranger(server.address).stream_unary("/experiment.Channel/Next")
        silence = threading.Event()
        metadata = [("authorization", f"Bearer {token}")]
        with pytest.raises(grpc.RpcError) as caught:  # though it sends no message ever
            call((b"" for _ in iter(silence.wait, True)), timeout=30, metadata=metadata)
        silence.set()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with (
            ChannelClient(wrong, "1.0.0") as slot,
            pytest.raises(ChannelLost, match="UNAUTHENTICATED"),
        ):
            slot.next()
    assert handler.heard == []


def stranger(address):
    """Return a connection with address and certificate, but without the token."""
    credentials = grpc.ssl_channel_credentials(address.certificate.encode())
    options = [("grpc.ssl_target_name_override", "experiment-run")]
    return grpc.secure_channel(address.target, credentials, options)


@pytest.mark.fault(35)
def test_a_call_without_a_token_is_refused():
    handler = Script(ATTEMPT)
    with ChannelServer(LOOPBACK, handler) as server:
        with stranger(server.address) as channel:
            call = channel.unary_unary("/experiment.Channel/Next")
            with pytest.raises(grpc.RpcError) as caught:
                call(b'{"slot": "1.0.0"}', timeout=30)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert handler.heard == []


METHODS = {
    "Hello": Hello(slot="1.0.0", host="host"),
    "Next": Next("1.0.0", 2),
    "Report": Reports(slot="1.0.0", trial=3, attempt=2, reports=REPORTS),
}


@pytest.mark.fault(35)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("key", [None, "", "0" * 31, "0" * 32, "another slot's", "the last one's"])
def test_with_the_token_a_slot_still_needs_the_key_of_its_attempt(method, key):
    handler = Script(ATTEMPT, ATTEMPT, Heard(), Stop())
    with (
        ChannelServer(LOOPBACK, handler) as server,
        ChannelClient(server.address, "1.0.0") as slot,
        ChannelClient(server.address, "1.1.0") as other,
    ):
        first = slot._key
        assert (slot.next(), other.next()) == (ATTEMPT, ATTEMPT)
        assert slot.report(ATTEMPT, REPORTS) == Heard()
        heard = len(handler.heard)
        key = {"another slot's": other._key, "the last one's": first}.get(key, key)
        metadata = [("authorization", f"Bearer {server.address.token}")]
        metadata += [] if key is None else [("attempt-key", key)]
        call = other._channel.unary_unary(f"/experiment.Channel/{method}")
        with pytest.raises(grpc.RpcError) as caught:
            call(encode(METHODS[method]), timeout=30, metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert len(handler.heard) == heard
        assert slot.next(2, OUTCOME) is None
    assert server.error is None


@pytest.mark.fault(35)
def test_token_and_keys_are_compared_in_constant_time(monkeypatch):
    compared = []

    def compare(given, expected):
        compared.append(expected)
        return given == expected

    monkeypatch.setattr("hmac.compare_digest", compare)
    with (
        ChannelServer(LOOPBACK, Script(Stop())) as server,
        ChannelClient(server.address, "1.0.0") as slot,
    ):
        assert slot.next() is None
        assert len(compared) == 3  # the token, and both keys that count
        assert f"Bearer {server.address.token}".encode() in compared
        assert slot._key in compared


@pytest.mark.fault(35)
def test_only_the_runs_own_certificate_is_accepted():
    with ChannelServer(LOOPBACK, Script(Stop())) as server:
        other = msgspec.structs.replace(server.address, certificate=make_certificate()[1].decode())
        with stranger(other) as channel, pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/experiment.Channel/Next")(b"{}", timeout=30)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.fault(35)
def test_nothing_is_sent_without_encryption():
    handler = Script(Stop())
    with ChannelServer(LOOPBACK, handler) as server:
        metadata = [
            ("authorization", f"Bearer {server.address.token}"),
            ("attempt-key", new_key()),
        ]
        with grpc.insecure_channel(server.address.target) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                call = channel.unary_unary("/experiment.Channel/Next")
                call(b'{"slot": "1.0.0"}', timeout=30, metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        with ChannelClient(server.address, "1.0.0") as slot:
            assert slot.next() is None
    assert len(handler.heard) == 1


def test_a_call_with_a_lot_of_metadata_is_refused_and_the_server_continues():
    with (
        ChannelServer(LOOPBACK, Script(Stop())) as server,
        ChannelClient(server.address, "1.0.0") as slot,
    ):
        with pytest.raises(grpc.RpcError) as caught:
            slot._methods["Next"](
                b"", timeout=30, metadata=(*slot._metadata, ("more", "x" * 5_000))
            )
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert slot.next() is None


SERVER = """
import sys
from spark_jobs.channel.grpc_channel import ChannelServer
from spark_jobs.messages import Stop, encode
from tests.spark_jobs.channel.channel_contract import Script

with ChannelServer("127.0.0.1", Script(Stop()), slots=20) as server:
    print(encode(server.address).decode(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.contract
def test_messages_without_the_token_take_little_of_the_drivers_memory():
    """By default gRPC takes 600 MB from the network here, before it asks for a token."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as server:
        address, process = decode(server.stdout.readline(), Address), psutil.Process(server.pid)
        before = process.memory_info().rss
        with ThreadPoolExecutor(20) as pool:
            refusals = pool.map(flood, [address] * 20)
            assert set().union(*refusals) <= {"UNAUTHENTICATED", "UNAVAILABLE"}
        grown = int(re.search(r"VmHWM:\s+(\d+)", status_of(server.pid))[1]) * 1024 - before
        server.stdin.close()
    assert grown < 200e6


def status_of(pid):
    return Path(f"/proc/{pid}/status").read_text(encoding="utf-8")


def flood(address):
    """Call without a token, on a connection of its own; return the codes of the answers."""
    options = [*client_options(), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(address.target, credentials_of(address), options) as channel:
        hello = channel.unary_unary(f"/{SERVICE}/Hello")
        codes = set()
        for _ in range(4):
            calls = [hello.future(bytes(1 << 20), timeout=60) for _ in range(32)]
            codes |= {call.exception().code().name for call in calls}
        return codes


def test_connections_leave_a_quarter_of_the_files_to_the_users_program(monkeypatch):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, hard))
    assert ChannelServer(LOOPBACK, Script(), slots=5_000)._connections == 768
    assert ChannelServer(LOOPBACK, Script(), slots=10)._connections == 84
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, hard))
    assert ChannelServer(LOOPBACK, Script(), slots=5_000)._connections == 10_064


@pytest.mark.fault(35)
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_it_listens_on_the_one_address_only(host):
    with ChannelServer(host, Script()) as server:
        port = int(server.address.target.rpartition(":")[2])
        listening = [
            connection.laddr.ip.removeprefix("::ffff:")
            for connection in psutil.Process().net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
        ]
    assert listening == [host]


def test_an_address_that_is_not_ours_is_an_error():
    with pytest.raises(Exception, match="192.0.2.1"):
        ChannelServer("192.0.2.1", Script()).__enter__()


def test_the_secrets_of_an_address_are_not_in_its_repr():
    address = Address(target="host:1", token="the token", certificate="the certificate")
    assert "token" not in repr(address)
    assert "certificate" not in str(address)


def test_a_call_of_the_driver_to_a_server_that_has_ended_does_nothing():
    """The error of the server says why; it must not be hidden by another one."""
    with ChannelServer(LOOPBACK, Script()) as server:
        called = []
        server.call(lambda: called.append("before"))
    server.call(lambda: called.append("after"))
    server.wake()
    assert called == ["before"]


def test_a_socket_of_grpc_that_another_server_has_read_is_no_error_to_log(caplog):
    """As of two searches at once, with older versions of grpcio."""

    def fail(error):
        raise error

    spurious, other = BlockingIOError(11, "temporarily unavailable"), ValueError("another")
    with ChannelServer(LOOPBACK, Script()) as server:
        for error in (spurious, other):
            server._loop.call_soon_threadsafe(fail, error)
        server.call(lambda: None)  # it runs after both
    assert [record.exc_info[1] for record in caplog.records] == [other]
