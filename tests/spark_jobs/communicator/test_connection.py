"""Messages on a connection are bounded and checked."""

from __future__ import annotations

import errno
import socket
import ssl
import struct
import threading

import msgspec
import pytest

from spark_jobs.channel.credentials import CERTIFICATE_NAME
from spark_jobs.communicator.connection import LARGEST_MESSAGE, Connection, tls_contexts
from spark_jobs.communicator.membership import GangBroken
from spark_jobs.messages import ProtocolError
from tests.spark_jobs.communicator.gangs import Gang


class Words(msgspec.Struct):
    words: list[str]


@pytest.fixture
def pair():
    """A connection of worker 0 to worker 1, and worker 1's side."""
    with Gang(2) as gang:
        connecting, accepting = tls_contexts(gang.memberships[0])
    near, far = socket.socketpair()
    found = []

    def accept():
        found.append(accepting.wrap_socket(far, server_side=True))

    thread = threading.Thread(target=accept)
    thread.start()
    near = connecting.wrap_socket(near, server_hostname=CERTIFICATE_NAME)
    thread.join()
    sides = [
        Connection(tls, gang.memberships[rank], 1 - rank, 30)
        for rank, tls in enumerate([near, found[0]])
    ]
    yield sides
    for side in sides:
        side.close()


def test_messages_arrive_in_order(pair):
    near, far = pair
    for number in range(3):
        near.send_message(Words([str(number)] * number))
    assert [far.receive_message(Words).words for _ in range(3)] == [[], ["1"], ["2", "2"]]


def test_a_message_that_is_too_long_is_refused_on_both_sides(pair):
    near, far = pair
    with pytest.raises(ProtocolError, match="more than"):
        near.send_message(Words(["x" * LARGEST_MESSAGE]))
    near.send(memoryview(struct.pack("!I", LARGEST_MESSAGE + 1)))
    with pytest.raises(GangBroken, match=r"worker 0 at .* sent a message of \d+ bytes, more than"):
        far.receive_message(Words)


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"words": [1]}', b"\x80\x04K\x01."])
def test_an_invalid_message_is_refused(pair, data):
    near, far = pair
    near.send(memoryview(struct.pack("!I", len(data)) + data))
    with pytest.raises(GangBroken, match="sent an invalid message"):
        far.receive_message(Words)


def test_silence_ends(pair):
    near, _ = pair
    near.be_patient(0.1)
    with pytest.raises(GangBroken, match=r"worker 1 at .* sends no data for 0.1 s"):
        near.receive_message(Words)


class Vanished:
    """A socket whose host the kernel has given up, as it does after a minute without an answer."""

    def settimeout(self, seconds):
        pass

    def recv_into(self, data):
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")


@pytest.mark.parametrize("patience", [None, 600])
def test_a_host_that_vanished_has_not_been_silent_for_the_patience(patience):
    with Gang(2) as gang:
        connection = Connection(Vanished(), gang.memberships[0], 1, 600)
    connection.be_patient(patience)
    with pytest.raises(GangBroken, match=r"has ended or left the gang \(Connection timed out\)"):
        connection.receive_message(Words)


def test_an_idle_wait_ends_when_the_connection_is_cut(pair):
    near, _ = pair
    near.be_patient(0.01)
    errors = []

    def wait():
        try:
            near.receive_message(Words, idle=True)
        except GangBroken as error:
            errors.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    near.cut()
    waiting.join()
    assert "has ended or left the gang" in errors[0]


def test_bytes_without_tls_are_no_message(pair):
    near, far = pair
    socket.socket.sendall(near._tls, b"GET / HTTP/1.1\r\n\r\n" * 10)
    with pytest.raises(GangBroken, match="TLS: "):
        far.receive_message(Words)


def test_both_sides_use_the_newest_tls():
    with Gang(1) as gang:
        contexts = tls_contexts(gang.memberships[0])
    for context in contexts:
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
        assert context.verify_mode == ssl.CERT_REQUIRED
