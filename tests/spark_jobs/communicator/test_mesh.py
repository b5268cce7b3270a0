"""Members find each other within a limit, and strangers and port scans disturb nobody."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import msgspec
import pytest

from search.errors import InvalidArgument
from spark_jobs.channel.credentials import CERTIFICATE_NAME
from spark_jobs.communicator import mesh
from spark_jobs.communicator.connection import Connection, connected, tls_contexts
from spark_jobs.communicator.listener import Listener
from spark_jobs.communicator.membership import GangBroken, MemberSilent, host_and_port
from tests.experiment.waiting import wait_until
from tests.spark_jobs.communicator.gangs import LIMIT, Gang, results

SHORT = 0.5  # seconds: passes in vain, where a member never comes


def address_of(gang, rank):
    return host_and_port(gang.memberships[rank].members[rank])


def test_a_member_that_is_not_reached_is_named_with_both_addresses():
    with Gang(3) as gang:
        gang.ports[0].close()
        found = gang.together(lambda c: None, ranks=[1, 2], limit=SHORT)
    members = gang.memberships[0].members
    for rank, error in enumerate(found, 1):
        assert isinstance(error, GangBroken)
        assert error.rank in {0, 1, 2}
        assert error.address == members[error.rank]
        assert "within 0.5 s" in str(error) or "has ended" in str(error), rank
    assert str(found[1]) == (
        f"worker 2 on host 127.0.0.1 does not reach worker 0 at {members[0]} within 0.5 s "
        "(Connection refused); open the workers' ports between the executors, or set "
        "spark.experiment.workerPorts to ports that are open"
    )


def test_a_member_that_does_not_connect_is_named():
    with Gang(2) as gang:
        # The host accepts connections for it, but it does nothing.
        gang.ports[1].listen()
        with pytest.raises(
            GangBroken, match=r"worker 0 .* does not reach worker 1 .* within 0.5 s"
        ):
            gang.connect(0, limit=SHORT)


def mesh_of(gang, patience):
    """Return the connections of the first member of a gang, whose others have no process."""
    return mesh.Mesh(
        gang.memberships[0], gang.ports[0], lambda _: None, limit=LIMIT, patience=patience
    )


def test_a_member_that_answers_nothing_is_waited_for_if_the_caller_is_patient(monkeypatch):
    monkeypatch.setattr(mesh, "_AGAIN", SHORT / 5)
    with Gang(2) as gang:
        gang.ports[1].listen()  # its host accepts connections
        made = mesh_of(gang, patience=SHORT)
        with pytest.raises(MemberSilent, match=r"worker 1 .* did not answer within 0.1 s"):
            made.open(1, "requests")
        with pytest.raises(MemberSilent, match=r"worker 1 .* did not answer within 0.5 s"):
            made.open(1, "requests", patient=True)
        made.close()


def test_nobody_is_patient_with_a_member_that_has_ended(monkeypatch):
    monkeypatch.setattr(mesh, "_AGAIN", 0.0)
    with Gang(2) as gang:
        gang.ports[1].close()
        made = mesh_of(gang, patience=LIMIT)
        with pytest.raises(GangBroken, match=r"has ended or left the gang \(Connection refused\)"):
            made.open(1, "requests", patient=True)
        made.close()


def test_a_member_without_descriptors_blames_itself(monkeypatch):
    def exhausted(*arguments):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(mesh, "connected", exhausted)
    with Gang(2) as gang:
        with pytest.raises(GangBroken) as raised:
            gang.connect(0, limit=SHORT)
    first, second = gang.memberships[0].members
    assert raised.value.rank == 0
    assert str(raised.value) == (
        f"worker 0 at {first} cannot connect to worker 1 at {second} (Too many open files)"
    )


def test_a_member_that_cannot_start_a_thread_for_a_moment_is_reached(monkeypatch):
    start, refused = threading.Thread.start, []

    def start_later(thread):
        if thread.name == "gang-member" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_later)
    assert results(2, lambda c: c.size) == [2, 2]
    assert refused


def test_a_member_that_comes_late_is_waited_for():
    with Gang(2) as gang:
        came = threading.Event()

        def late(communicator):
            communicator.barrier()

        first = threading.Thread(target=lambda: (gang.connect(0).close(), came.set()))
        first.start()
        while gang.ports[0].fileno() >= 0 and not _listens(gang.ports[0]):
            pass
        assert not came.is_set()
        gang.connect(1).close()
        first.join()
        assert came.is_set()


def test_a_member_that_listens_late_is_waited_for_longer_than_a_host_that_does_not_answer(
    monkeypatch,
):
    """As one whose slot copies a checkpoint, while the other has it already."""
    refused, later = [], []  # seconds by which the clock is ahead

    def sleep_long(seconds):
        later.append(mesh._ANSWER / 2)
        time.sleep(seconds)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + sum(later), sleep=sleep_long)
    monkeypatch.setattr(mesh, "time", clock)

    def noted(*arguments):
        try:
            return connected(*arguments)
        except ConnectionRefusedError:
            refused.append(sum(later))
            raise

    monkeypatch.setattr(mesh, "connected", noted)
    limit = 1e6  # outlasts the clock
    with Gang(2) as gang, ThreadPoolExecutor(1) as threads:
        first = threads.submit(lambda: gang.connect(0, limit=limit).close())
        wait_until(lambda: first.done() or (refused and refused[-1] > 2 * mesh._ANSWER))
        assert not first.done(), first.result()
        gang.connect(1, limit=limit).close()
        first.result()


def test_a_host_that_does_not_answer_is_named_before_the_limit(monkeypatch):
    monkeypatch.setattr(mesh, "_ANSWER", SHORT)
    with Gang(2) as gang:
        gang.ports[1].listen()  # its host accepts connections for it, but it does nothing
        with pytest.raises(GangBroken, match="does not reach worker 1 .* within 0.5 s"):
            gang.connect(0, limit=LIMIT)


def _listens(port):
    return bool(port.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def test_addresses_in_another_order_are_named_at_once():
    with Gang(2) as gang:
        second = gang.memberships[1]
        gang.memberships[1] = msgspec.structs.replace(second, rank=0)
        with pytest.raises(GangBroken) as raised:
            gang.connect(1)
    assert str(raised.value) == f"worker 1 at {second.members[1]} says that it is worker 0"


@pytest.fixture
def one_retry(monkeypatch):
    """Let the limit of a member pass in the pause after its first try."""
    pauses = []
    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + LIMIT * len(pauses), sleep=pauses.append
    )
    monkeypatch.setattr(mesh, "time", clock)


@pytest.mark.usefixtures("one_retry")
def test_the_cause_is_named_though_the_last_try_only_takes_too_long():
    with Gang(2) as gang:
        listening = gang.ports[1]
        listening.listen()

        def one_reset_then_silence():
            accepted, _ = listening.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()

        resetting = threading.Thread(target=one_reset_then_silence)
        resetting.start()
        with pytest.raises(GangBroken, match=r"reset|EOF|Broken pipe"):
            gang.connect(0)
        resetting.join()


def stranger_with_another_key(gang, address):
    with Gang(2) as others:
        connecting, _ = tls_contexts(others.memberships[0])
    return connected(connecting, address, 10)


def stranger_that_checks_nothing(gang, address):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    plain = socket.create_connection(address, 10)
    return context.wrap_socket(plain, server_hostname=CERTIFICATE_NAME)


def stranger_with_the_certificate_alone(gang, address):
    """It knows the certificate, which is no secret, but has another key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=gang.memberships[0].certificate)
    plain = socket.create_connection(address, 10)
    return context.wrap_socket(plain, server_hostname=CERTIFICATE_NAME)


@pytest.mark.parametrize(
    "stranger",
    [
        stranger_with_another_key,
        stranger_that_checks_nothing,
        stranger_with_the_certificate_alone,
    ],
)
def test_a_stranger_is_refused(stranger):
    def body(communicator):
        if communicator.rank == 0:
            try:
                tls = stranger(gang, address_of(gang, 1))
            except ssl.SSLError:
                pass
            else:  # in TLS 1.3 the client learns at its first read that the server refused it
                with tls, pytest.raises(OSError):
                    tls.sendall(b"\0\0\0\x1d" + b'{"rank":0,"purpose":"requests"}')
                    if not tls.recv(1):
                        raise ConnectionResetError
        return communicator.all_reduce([communicator.rank], "sum")[0]

    with Gang(2) as gang:
        assert gang.together(body) == [1, 1]


@pytest.mark.usefixtures("one_retry")
def test_a_program_with_another_key_on_a_members_port_is_named():
    with Gang(2) as gang, Gang(2) as others:
        _, accepting = tls_contexts(others.memberships[1])
        listener = Listener(gang.ports[1], accepting, ssl.SSLSocket.close)
        listener.start()
        with pytest.raises(GangBroken, match=r"does not reach .* \(TLS: certificate verify failed"):
            gang.connect(0)
        listener.close()


def test_scans_and_silent_connections_disturb_nobody():
    with Gang(3) as gang:
        silent = []

        def scan():
            for rank in range(3):
                for number in range(100):
                    plain = socket.create_connection(address_of(gang, rank), 10)
                    if number % 4 == 0:
                        plain.close()
                        continue
                    if number % 4 == 1:
                        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    if number % 4 == 2:
                        plain.sendall(b"\x16\x03\x01\x02\x00")  # the begin of a handshake
                    silent.append(plain)

        def body(communicator):
            if communicator.rank == 0:
                scan()
            communicator.barrier()
            return communicator.all_reduce([communicator.rank], "sum")[0]

        try:
            assert gang.together(body) == [3, 3, 3]
        finally:
            for plain in silent:
                plain.close()


def test_members_connect_beside_silent_connections():
    with Gang(2) as gang:
        gang.ports[1].listen(300)
        silent = [socket.create_connection(address_of(gang, 1), 10) for _ in range(200)]
        try:
            assert gang.together(lambda c: c.size) == [2, 2]
        finally:
            for plain in silent:
                plain.close()


def test_a_member_with_an_unknown_rank_is_dropped():
    def body(communicator):
        if communicator.rank == 0:
            connecting, _ = tls_contexts(gang.memberships[0])
            tls = connected(connecting, address_of(gang, 1), 10)
            odd = Connection(tls, gang.memberships[0], 1, 10)
            odd.send_message({"rank": 7, "purpose": "ring"})
            with pytest.raises(GangBroken, match="has ended or left"):
                odd.receive_message(dict)
            odd.close()
        communicator.barrier()

    with Gang(2) as gang:
        assert gang.together(body) == [None, None]


def test_a_process_that_a_member_forks_is_no_member():
    def body(communicator):
        if communicator.rank == 0:
            parent = os.getpid()
            communicator._process = parent + 1  # as a child sees it
            for call in (communicator.barrier, communicator.close):
                with pytest.raises(InvalidArgument, match="process that it has forked"):
                    call()
            communicator._process = parent
        communicator.barrier()

    with Gang(2) as gang:
        assert gang.together(body) == [None, None]


def test_no_thread_is_left_when_the_members_have_closed():
    def body(communicator):
        communicator.latest(1 - communicator.rank, "nothing")
        communicator.barrier()

    before = set(threading.enumerate())
    for _ in range(50):
        results(2, body)
        assert set(threading.enumerate()) <= before


def test_a_gang_of_one_needs_no_others():
    with Gang(1) as gang:
        assert gang.together(lambda c: (c.rank, c.size, c.barrier())) == [(0, 1, None)]


def test_places_that_cannot_be():
    place = Gang(2)
    with place:
        with pytest.raises(InvalidArgument, match="rank: expected 0 to 1"):
            msgspec.structs.replace(place.memberships[0], rank=2)
        with pytest.raises(InvalidArgument, match="members: expected addresses such as"):
            msgspec.structs.replace(place.memberships[0], members=("nowhere",))
        assert place.memberships[0].key not in repr(place.memberships[0])
    assert host_and_port("[fe80::1]:80") == ("fe80::1", 80)
