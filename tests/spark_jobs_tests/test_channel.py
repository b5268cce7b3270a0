from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import msgspec
import psutil
import pytest

from search.trial import Outcome, Trial
from spark_jobs import channel
from spark_jobs.channel import Address, ChannelClient, ChannelLost, ChannelServer
from spark_jobs.credentials import make_certificate, new_key
from spark_jobs.protocol import (
    LARGEST_MESSAGE,
    Attempt,
    Heard,
    Hello,
    Next,
    ProtocolError,
    Report,
    Reports,
    Stop,
    Wait,
    encode,
    work_of,
)
from tests.proxy import Proxy

LOOPBACK = "127.0.0.1"
ATTEMPT = Attempt(Trial(3, {"x": (1, 2)}, 1), 2)


class Script:
    """A handler that answers from a list and keeps what it was told."""

    def __init__(self, *answers):
        self.answers, self.heard = list(answers), []
        self.threads = set()

    def hello(self, message):
        self.threads.add(threading.get_ident())
        self.heard.append(message)

    def report(self, message):
        return self.next(message)

    def next(self, message):
        self.threads.add(threading.get_ident())
        self.heard.append(message)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_slot_says_hello_works_and_stops():
    handler = Script(work_of(ATTEMPT), Stop())
    outcome = Outcome(3, "finished", 0.5, "metric", {"metric": 0.5})
    with ChannelServer(LOOPBACK, handler) as server, ChannelClient(server.address, "1.0.0") as slot:
        slot.hello(Hello("1.0.0", "host", warnings=("w",)))
        assert slot.next() == ATTEMPT
        assert slot.next(2, outcome) is None
    assert [type(message) for message in handler.heard] == [Hello, Next, Next]
    assert handler.heard[2].outcome["value"] == 0.5
    assert len(handler.threads) == 1


def test_a_waiting_slot_is_answered_when_something_changed():
    handler = Script(Wait(), Wait(), work_of(ATTEMPT))
    with ChannelServer(LOOPBACK, handler) as server, ThreadPoolExecutor() as pool:
        with ChannelClient(server.address, "1.0.0") as slot:
            answer = pool.submit(slot.next)
            while len(handler.answers) > 1:  # the slot waits now, or did for the first change
                server.call(lambda: None)
            server.call(lambda: None)
            assert answer.result(timeout=30) == ATTEMPT
    assert all(message.outcome is None for message in handler.heard)


def test_many_slots_wait_without_a_thread_each():
    handler = Script(*[Wait()] * 40, *[Stop()] * 40)
    with ChannelServer(LOOPBACK, handler) as server, ThreadPoolExecutor(40) as pool:
        before = threading.active_count()
        clients = [ChannelClient(server.address, f"1.{number}.0") for number in range(40)]
        answers = [pool.submit(client.next) for client in clients]
        while len(handler.heard) < 40:
            server.call(lambda: None) if len(handler.answers) <= 40 else None
        assert threading.active_count() - before <= 40 + 2 * len(clients)  # all of it the clients'
        server.call(lambda: None)
        assert [answer.result(timeout=30) for answer in answers] == [None] * 40
        for client in clients:
            client._channel.close()


REPORTS = (Report.of(1, {"loss": 0.5}), Report.of(2, {"loss": float("nan")}))


def test_reports_get_to_the_driver_and_its_answer_back():
    handler = Script(Heard(), Heard("step 2: too bad ü"), Heard())
    with ChannelServer(LOOPBACK, handler) as server, ChannelClient(server.address, "1.0.0") as slot:
        assert slot.report(ATTEMPT, REPORTS) == ""
        assert slot.report(ATTEMPT, REPORTS[:1], "said\n") == "step 2: too bad ü"
        assert slot.report(ATTEMPT, (), "said\n") == ""
    first, second, third = handler.heard
    assert first == Reports("1.0.0", 3, 2, REPORTS)
    assert second == Reports("1.0.0", 3, 2, REPORTS[:1], "said\n")
    assert third == Reports("1.0.0", 3, 2, (), "said\n")
    assert len(handler.threads) == 1


def test_as_much_as_a_slot_sends_at_once_is_taken():
    from spark_jobs import link, live

    large = Report.of(1, {"m" * (link.LARGEST_REPORT - 60): 0.5})
    assert link.LARGEST_REPORT - 60 < len(encode(large)) < link.LARGEST_REPORT
    worst = "\0" * (2 * live._MOST_OUTPUT)  # what grows most in JSON
    reports = (large,) * live._MOST_AT_ONCE
    handler = Script(Heard())
    with ChannelServer(LOOPBACK, handler) as server, ChannelClient(server.address, "1.0.0") as slot:
        assert slot.report(ATTEMPT, reports, worst) == ""
    assert handler.heard[0].reports == reports
    assert len(encode(handler.heard[0])) < LARGEST_MESSAGE


GOOD_REPORTS = b'{"slot":"1.0.0","trial":3,"attempt":1,"reports":[%s]}'


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{}",
        b'{"slot":"1.0.0"}',
        GOOD_REPORTS.replace(b"3", b'"3"') % b"",
        GOOD_REPORTS.replace(b"}", b',"extra":1}') % b"",
        GOOD_REPORTS % b'{"step":1}',
        GOOD_REPORTS % b'{"step":0.5,"metrics":{}}',
        GOOD_REPORTS % b'{"step":1%s,"metrics":{}}' % (b"0" * 30),
        GOOD_REPORTS % b'{"step":1,"metrics":{"loss":"abc"}}',
        GOOD_REPORTS % b'{"step":1,"metrics":{"loss":null}}',
        GOOD_REPORTS % b'{"step":1,"metrics":{"loss":true}}',
        GOOD_REPORTS % b'{"step":1,"metrics":{},"extra":1}',
    ],
)
def test_reports_with_wrong_fields_are_refused_and_the_server_goes_on(message):
    handler = Script(Heard())
    with ChannelServer(LOOPBACK, handler) as server, ChannelClient(server.address, "1.0.0") as slot:
        call = slot._channel.unary_unary("/experiment.Channel/Report")
        with pytest.raises(grpc.RpcError) as caught:
            call(message, timeout=30, metadata=slot._metadata)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert slot.report(ATTEMPT, REPORTS) == ""
    assert server.error is None


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


def test_reports_do_not_wake_slots_that_wait():
    handler = Script(Wait(), Heard(), work_of(ATTEMPT))
    with (
        ChannelServer(LOOPBACK, handler) as server,
        ThreadPoolExecutor() as pool,
        ChannelClient(server.address, "1.0.0") as waiting,
        ChannelClient(server.address, "1.1.0") as slot,
    ):
        answer = pool.submit(waiting.next)
        wait_until(lambda: handler.heard)
        assert slot.report(ATTEMPT, REPORTS) == ""
        assert len(handler.answers) == 1
        server.call(lambda: None)
        assert answer.result(timeout=30) == ATTEMPT


def wait_until(condition, seconds=60.0):
    """Wait for a condition; the limit only keeps a failing test from hanging."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition was not met"
        time.sleep(0.01)


@contextlib.contextmanager
def behind_proxy(handler):
    """Yield a slot and the proxy that is between it and the driver."""
    with ChannelServer(LOOPBACK, handler) as server, Proxy(server.address.target) as proxy:
        address = msgspec.structs.replace(server.address, target=proxy.address)
        with ChannelClient(address, "1.0.0") as slot:
            yield slot, proxy


@pytest.fixture
def impatient(monkeypatch):
    """Calls give up, and the driver says that there is nothing yet, after parts of a second."""
    monkeypatch.setattr(channel, "_PATIENCE", 0.2)
    monkeypatch.setattr(channel, "_DEADLINE", 1.0)
    monkeypatch.setattr(channel, "_PAUSE", 0.01)


class Working:
    """A driver that has work once it got an outcome; counts how often it got each."""

    def __init__(self):
        self.outcomes, self.calls = [], 0

    def hello(self, message):
        """Nothing to note."""

    def report(self, message):
        self.calls += 1
        return Heard()

    def next(self, message):
        self.calls += 1
        if message.outcome is not None:
            self.outcomes.append(message.outcome["value"])
        return work_of(ATTEMPT)


OUTCOME = Outcome(3, "finished", 0.5, "metric", {"metric": 0.5})


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
    """Once the network is back it arrives: at least once, and the coordinator counts it once."""
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
        return slot.report(ATTEMPT, REPORTS) == ""
    return False


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("directions", [(), ("up",), ("down",)], ids=["both", "up", "down"])
def test_a_connection_that_died_without_a_word_is_made_anew(directions, monkeypatch):
    """A firewall forgot it: nobody is told, and it never passes anything again."""
    quick = [(name, milliseconds // 10) for name, milliseconds in channel._KEEPALIVE]
    monkeypatch.setattr(channel, "_KEEPALIVE", quick)
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
        assert answer.result(timeout=45) == ATTEMPT
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
        handler.answers[:] = [work_of(ATTEMPT)] * 3
        assert answer.result(timeout=60) == ATTEMPT


def test_a_slow_network_is_waited_for():
    handler = Working()
    with behind_proxy(handler) as (slot, proxy):
        proxy.slow(5_000)
        assert slot.next() == ATTEMPT
        assert slot.next(2, OUTCOME) == ATTEMPT
    assert handler.outcomes == [0.5]


@pytest.mark.usefixtures("impatient")
def test_a_report_is_tried_once():
    handler = Working()
    with behind_proxy(handler) as (slot, proxy):
        assert slot.report(ATTEMPT, REPORTS) == ""
        proxy.hold("down")
        with pytest.raises(ChannelLost, match="DEADLINE_EXCEEDED"):
            slot.report(ATTEMPT, REPORTS)
        assert handler.calls == 2


@pytest.mark.usefixtures("impatient")
def test_an_outage_that_does_not_end_ends_the_slot(monkeypatch):
    monkeypatch.setattr(channel, "_OUTAGE", 1.5)
    with behind_proxy(Working()) as (slot, proxy):
        proxy.cut()
        with pytest.raises(ChannelLost, match="does not answer"):
            slot._call(slot._next, Next("1.0.0"), patience=channel._OUTAGE)


def test_closing_ends_a_call_that_is_out_and_refuses_new_ones():
    handler = Script(Wait())
    with ChannelServer(LOOPBACK, handler) as server, ThreadPoolExecutor() as pool:
        slot = ChannelClient(server.address, "1.0.0")
        answer = pool.submit(slot.next)
        wait_until(lambda: handler.heard)
        slot.__exit__()
        assert isinstance(answer.exception(timeout=30), ChannelLost)
        with pytest.raises(ChannelLost):
            slot.report(ATTEMPT, REPORTS)


def test_two_servers_live_side_by_side():
    first, second = Script(work_of(ATTEMPT)), Script(Stop())
    with ChannelServer(LOOPBACK, first) as one, ChannelServer(LOOPBACK, second) as two:
        with ChannelClient(one.address, "1.0.0") as a, ChannelClient(two.address, "1.0.0") as b:
            assert (a.next(), b.next()) == (ATTEMPT, None)
    assert one.address.token != two.address.token


@pytest.mark.fault(35)
@pytest.mark.parametrize("token", ["", "0" * 64, "an older run's"])
def test_a_wrong_token_is_refused_before_the_message_is_read(token):
    handler = Script(work_of(ATTEMPT))
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
    """Return a connection of somebody who knows address and certificate, and no token."""
    credentials = grpc.ssl_channel_credentials(address.certificate.encode())
    options = [("grpc.ssl_target_name_override", "experiment-run")]
    return grpc.secure_channel(address.target, credentials, options)


@pytest.mark.fault(35)
def test_a_call_without_a_token_is_refused():
    handler = Script(work_of(ATTEMPT))
    with ChannelServer(LOOPBACK, handler) as server:
        with stranger(server.address) as channel:
            call = channel.unary_unary("/experiment.Channel/Next")
            with pytest.raises(grpc.RpcError) as caught:
                call(b'{"slot": "1.0.0"}', timeout=30)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert handler.heard == []


METHODS = {
    "Hello": Hello("1.0.0", "host"),
    "Next": Next("1.0.0", 2, {}),
    "Report": Reports("1.0.0", 3, 2, REPORTS),
}


@pytest.mark.fault(35)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("key", [None, "", "0" * 31, "0" * 32, "another slot's", "the last one's"])
def test_who_has_the_token_still_speaks_for_its_own_attempt_only(method, key):
    handler = Script(work_of(ATTEMPT), work_of(ATTEMPT), Heard(), Stop())
    with (
        ChannelServer(LOOPBACK, handler) as server,
        ChannelClient(server.address, "1.0.0") as slot,
        ChannelClient(server.address, "1.1.0") as other,
    ):
        first = slot._key
        assert (slot.next(), other.next()) == (ATTEMPT, ATTEMPT)
        assert slot.report(ATTEMPT, REPORTS) == ""
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


def test_a_slot_whose_work_got_lost_on_the_way_asks_again_with_the_key_it_has():
    handler = Script(*[work_of(ATTEMPT)] * 3, Heard(), Stop())
    with ChannelServer(LOOPBACK, handler) as server, ChannelClient(server.address, "1.0.0") as slot:
        for _ in range(2):  # as the answers do not arrive
            slot._next(encode(Next("1.0.0")), timeout=30, metadata=slot._metadata)
        assert slot.next() == ATTEMPT
        assert slot.report(ATTEMPT, REPORTS) == ""
        assert slot.next(2, OUTCOME) is None


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
def test_nothing_is_said_without_encryption():
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


def test_a_call_with_a_lot_of_metadata_is_refused_and_the_server_goes_on():
    with (
        ChannelServer(LOOPBACK, Script(Stop())) as server,
        ChannelClient(server.address, "1.0.0") as slot,
    ):
        with pytest.raises(grpc.RpcError) as caught:
            slot._next(b"", timeout=30, metadata=(*slot._metadata, ("more", "x" * 5_000)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert slot.next() is None


@pytest.mark.parametrize("message", [b"", b"nonsense", b'{"slot": 1}', b"[" * 10_000])
def test_what_is_no_message_is_refused_and_the_server_goes_on(message):
    handler = Script(Stop())
    with ChannelServer(LOOPBACK, handler) as server, ChannelClient(server.address, "1.0.0") as slot:
        call = slot._channel.unary_unary("/experiment.Channel/Next")
        with pytest.raises(grpc.RpcError) as caught:
            call(message, timeout=30, metadata=slot._metadata)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert slot.next() is None
    assert server.error is None


def test_an_outcome_that_is_none_is_the_slots_fault_not_the_searchs():
    handler = Script(ProtocolError("not an outcome"), Stop())
    with ChannelServer(LOOPBACK, handler) as server, ChannelClient(server.address, "1.0.0") as slot:
        with pytest.raises(ChannelLost, match="INVALID_ARGUMENT"):
            slot.next()
        assert slot.next() is None
    assert server.error is None


def test_an_error_of_the_driver_is_kept_and_ends_the_slot():
    with (
        ChannelServer(LOOPBACK, Script(OSError("disk full"))) as server,
        ChannelClient(server.address, "1.0.0") as slot,
        pytest.raises(ChannelLost, match="ABORTED"),
    ):
        slot.next()
    assert str(server.error) == "disk full"


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
    address = Address("host:1", "the token", "the certificate")
    assert "token" not in repr(address)
    assert "certificate" not in str(address)
