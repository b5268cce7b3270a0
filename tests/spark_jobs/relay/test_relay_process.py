"""Relays in processes of their own: their start, their faults and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from spark_jobs import time_limits
from spark_jobs.channel.exchange import ChannelLost
from spark_jobs.channel.grpc_channel import ChannelServer
from spark_jobs.messages import Heard, Stop, Wait
from spark_jobs.relay.handshake import NONCE
from spark_jobs.trial.pipe.frames import frame
from spark_jobs.warm.executor import socket_name
from tests.experiment.waiting import wait_until
from tests.spark_jobs.channel.channel_contract import (
    ATTEMPT,
    OUTCOME,
    REPORTS,
    Script,
    Working,
)
from tests.spark_jobs.relay.relays import host_in, is_relayed

LOOPBACK = "127.0.0.1"
_LONG = 120.0  # seconds; only keeps a busy host from failing a test


class WorksLater(Working):
    """A driver that has work when a test says so."""

    has_work = False

    def next(self, message):
        answer = super().next(message)
        return answer if self.has_work else Wait()


@pytest.fixture(autouse=True)
def patient(monkeypatch, tmp_path):
    """Also in relays and slots that are processes of their own."""
    monkeypatch.setattr(time_limits, "RELAY_STARTS", _LONG)
    let_relays_try(_LONG, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)


def let_relays_try(seconds, tmp_path):
    """Set how long relays try to reach the driver, in a module that Python imports at its start."""
    (tmp_path / "sitecustomize.py").write_text(
        "from spark_jobs import time_limits as limits\n"
        f"limits.RELAY_STARTS, limits.RELAY_REACHES = {_LONG}, {seconds}"
    )


@pytest.fixture
def host(tmp_path):
    with host_in(tmp_path) as host:
        yield host


@pytest.mark.slow
@pytest.mark.contract
def test_the_slots_of_an_executor_start_one_relay_together(host):
    handler = Working()
    with ChannelServer(LOOPBACK, handler) as server, ThreadPoolExecutor(6) as pool:
        channels = list(pool.map(lambda n: host.channel(server.address, f"1.{n}.0"), range(6)))
        (relay,) = host.running()
        assert all(channel.next() == ATTEMPT for channel in channels)
        assert all(is_relayed(channel) for channel in channels)
        assert stat.S_IMODE(host.folder.stat().st_mode) == 0o700
        assert server.address.token not in " ".join(relay.cmdline())
        assert server.address.token not in str(relay.environ())
        for channel in channels:
            channel.__exit__()
        wait_until(lambda: not host.running())  # it ends after its last slot
    assert [path.name for path in host.folder.iterdir()] == ["salt"]


def test_each_run_has_a_relay_of_its_own(host):
    first, second = Script(ATTEMPT), Script(Stop())
    with ChannelServer(LOOPBACK, first) as one, ChannelServer(LOOPBACK, second) as two:
        with (
            host.channel(one.address, "1.0.0") as a,
            host.channel(two.address, "1.0.0") as b,
        ):
            assert len(host.running()) == 2
            assert (a.next(), b.next()) == (ATTEMPT, None)


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "hangs"])
def test_slots_of_a_relay_that_is_lost_go_on_by_themselves(host, monkeypatch, end):
    """In the middle of a call, which is repeated; the coordinator counts an outcome once."""
    monkeypatch.setattr(time_limits, "RELAY_SILENCE", 0.5)
    handler = WorksLater()
    with (
        ChannelServer(LOOPBACK, handler) as server,
        host.channel(server.address, "1.0.0") as slot,
        ThreadPoolExecutor() as pool,
    ):
        answer = pool.submit(slot.next, 2, OUTCOME)
        wait_until(lambda: handler.outcomes)
        (relay,) = host.running()
        relay.send_signal(end)
        wait_until(lambda: len(handler.outcomes) == 2)
        assert not is_relayed(slot)
        handler.has_work = True
        server.call(lambda: None)
        assert answer.result(timeout=_LONG) == ATTEMPT
        assert slot.report(ATTEMPT, REPORTS) == Heard()
        assert slot.next() == ATTEMPT
    assert set(handler.outcomes) == {0.5}


def test_calls_of_a_relay_that_died_wait_at_the_driver_no_more(host):
    """Else the driver would give them trials."""
    with ChannelServer(LOOPBACK, WorksLater()) as server, ThreadPoolExecutor() as pool:
        with host.channel(server.address, "1.0.0") as slot:
            lines = server._exchange._lines
            answer = pool.submit(slot.next)
            wait_until(lambda: lines)
            (relay,) = host.running()
            slot._connect_directly = lambda: (_ for _ in ()).throw(ChannelLost("killed, too"))
            relay.kill()
            assert answer.exception(timeout=_LONG)
            wait_until(lambda: not lines)


def test_a_relay_that_died_is_replaced_for_later_slots(host):
    with ChannelServer(LOOPBACK, Working()) as server:
        with host.channel(server.address, "1.0.0") as slot:
            assert slot.next() == ATTEMPT
            (relay,) = host.running()
            relay.kill()
            wait_until(lambda: not host.running())
            with host.channel(server.address, "1.1.0") as other:
                assert (slot.next(), other.next()) == (ATTEMPT, ATTEMPT)
                assert (is_relayed(slot), is_relayed(other)) == (False, True)


def test_a_relay_ends_with_the_jvm(host):
    with (
        ChannelServer(LOOPBACK, Working()) as server,
        host.channel(server.address, "1.0.0") as slot,
    ):
        assert slot.next() == ATTEMPT
        host.jvm.kill()
        host.jvm.wait()
        wait_until(lambda: not host.running())


def test_a_relay_stays_when_the_slot_that_started_it_was_killed(host):
    with ChannelServer(LOOPBACK, Working()) as server:
        words = [sys.executable, "-c", _STARTS, str(host.folder), str(host.jvm.pid)]
        first = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        with first:
            first.stdin.write(msgspec.json.encode(server.address) + b"\n")
            first.stdin.flush()
            assert first.stdout.readline() == b"ready\n"
            with host.channel(server.address, "1.1.0") as slot:
                (relay,) = host.running()
                os.killpg(first.pid, signal.SIGKILL)
                first.wait()
                assert slot.next() == ATTEMPT
                assert is_relayed(slot)
                assert host.running() == [relay]


_STARTS = """
import sys, msgspec
from pathlib import Path
from spark_jobs.channel.grpc_channel import Address
from spark_jobs.relay.relayed_channel import relayed_channel
from spark_jobs.warm.executor import Executor
address = msgspec.json.decode(sys.stdin.readline(), type=Address)
executor = Executor(Path(sys.argv[1]), int(sys.argv[2]))
with relayed_channel(executor, address, "1.0.0"):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.contract
def test_there_is_no_relay_where_the_driver_is_not_reached(host, tmp_path, capfd):
    let_relays_try(0.5, tmp_path)
    with ChannelServer(LOOPBACK, Working()) as server:
        address = server.address
    assert host.channel(address, "1.0.0") is None
    assert "no relay: it does not reach the driver" in capfd.readouterr().err


def test_there_is_no_relay_in_a_folder_that_others_can_enter(host):
    host.folder.mkdir(mode=0o755)
    with ChannelServer(LOOPBACK, Working()) as server:
        assert host.channel(server.address, "1.0.0") is None
    assert not host.running()


def test_a_process_that_took_the_path_of_a_relay_learns_nothing(host):
    """The slot connects to the driver itself."""
    salt, heard = b"s" * 32, []
    host.folder.mkdir(mode=0o700)
    (host.folder / "salt").write_bytes(salt)

    def listen(server):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.sendall(frame(b"x" * 64))
                    while data := connection.recv(1_000):
                        heard.append(data)

    with ChannelServer(LOOPBACK, Working()) as server, socket.socket(socket.AF_UNIX) as taken:
        folder = os.open(host.folder, os.O_RDONLY)
        # The whole path may be too long for a socket.
        taken.bind(f"/proc/self/fd/{folder}/{socket_name(server.address.token.encode(), salt)}")
        os.close(folder)
        taken.listen()
        thread = threading.Thread(target=listen, args=[taken])
        thread.start()
        assert host.channel(server.address, "1.0.0") is None
        taken.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert heard
    assert all(len(data) == 4 + NONCE for data in heard)


def test_a_slot_is_not_passed_on_by_a_process_that_only_owns_the_socket(host):
    """It gets no answer to its nonce, and connects to the driver itself."""
    with ChannelServer(LOOPBACK, Working()) as server:
        with host.channel(server.address, "1.0.0"):
            (relay,) = host.running()
            relay.suspend()
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(time_limits, "RELAY_STARTS", 0.5)
                assert host.channel(server.address, "1.1.0") is None
            relay.resume()
            with host.channel(server.address, "1.2.0") as slot:
                assert slot.next() == ATTEMPT


@pytest.mark.slow
@pytest.mark.contract
def test_after_the_driver_died_relays_end_with_their_slots(host):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ChannelServer(LOOPBACK, Working()))
        slot = host.channel(server.address, "1.0.0")
        assert slot.next() == ATTEMPT
        stack.close()
        with pytest.raises(ChannelLost):
            slot.report(ATTEMPT, REPORTS)
        slot.__exit__()
        wait_until(lambda: not host.running())
