from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import msgspec
import pytest

from search.trial import Outcome, Trial
from spark_jobs.channel import Address, ChannelClient, ChannelLost, ChannelServer, make_certificate
from spark_jobs.protocol import Attempt, Hello, Next, ProtocolError, Stop, Wait, work_of

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


def test_two_servers_live_side_by_side():
    first, second = Script(work_of(ATTEMPT)), Script(Stop())
    with ChannelServer(LOOPBACK, first) as one, ChannelServer(LOOPBACK, second) as two:
        with ChannelClient(one.address, "1.0.0") as a, ChannelClient(two.address, "1.0.0") as b:
            assert (a.next(), b.next()) == (ATTEMPT, None)
    assert one.address.token != two.address.token


@pytest.mark.parametrize("token", ["", "0" * 64])
def test_a_wrong_token_is_refused_before_the_message_is_read(token):
    handler = Script(work_of(ATTEMPT))
    with ChannelServer(LOOPBACK, handler) as server:
        wrong = msgspec.structs.replace(server.address, token=token)
        with (
            ChannelClient(wrong, "1.0.0") as slot,
            pytest.raises(ChannelLost, match="UNAUTHENTICATED"),
        ):
            slot.next()
    assert handler.heard == []


def test_a_call_without_a_token_is_refused():
    handler = Script(work_of(ATTEMPT))
    with ChannelServer(LOOPBACK, handler) as server:
        credentials = grpc.ssl_channel_credentials(server.address.certificate.encode())
        options = [("grpc.ssl_target_name_override", "experiment-run")]
        with grpc.secure_channel(server.address.target, credentials, options) as channel:
            call = channel.unary_unary("/experiment.Channel/Next")
            with pytest.raises(grpc.RpcError) as caught:
                call(b'{"slot": "1.0.0"}', timeout=30)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert handler.heard == []


def test_only_the_runs_own_certificate_is_accepted():
    with ChannelServer(LOOPBACK, Script(Stop())) as server:
        other = make_certificate()[1].decode()
        credentials = grpc.ssl_channel_credentials(other.encode())
        options = [("grpc.ssl_target_name_override", "experiment-run")]
        with grpc.secure_channel(server.address.target, credentials, options) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary("/experiment.Channel/Next")(b"{}", timeout=30)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


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


def test_it_listens_on_the_one_address_only():
    with ChannelServer(LOOPBACK, Script()) as server:
        port = int(server.address.target.rpartition(":")[2])
        with socket.socket() as other:
            other.bind(("127.0.0.2", port))  # free, so nothing listens on 0.0.0.0


def test_an_address_that_is_not_ours_is_an_error():
    with pytest.raises(Exception, match="192.0.2.1"):
        ChannelServer("192.0.2.1", Script()).__enter__()


def test_the_secrets_of_an_address_are_not_in_its_repr():
    address = Address("host:1", "the token", "the certificate")
    assert "token" not in repr(address)
    assert "certificate" not in str(address)
