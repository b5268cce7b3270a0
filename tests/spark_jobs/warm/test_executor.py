"""Connecting to a process that the slots of an executor share, without such a process."""

from __future__ import annotations

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_jobs.warm.executor import Executor, connect, socket_name

_LONG = 60.0
_SALT = bytes(range(32))


@pytest.fixture(params=[socket.SOCK_STREAM, socket.SOCK_SEQPACKET], ids=["stream", "packets"])
def kind(request):
    return request.param


@pytest.fixture
def busy(tmp_path, kind, monkeypatch):
    """A server whose queue is full, and how to connect to it."""
    executor = Executor(tmp_path / "shared", os.getpid())
    executor.folder.mkdir(mode=0o700)
    (executor.folder / "salt").write_bytes(_SALT)
    monkeypatch.chdir(executor.folder)  # its path may be too long for a socket
    name = socket_name(b"this one", _SALT)

    def connecting(seconds):
        until = time.monotonic() + seconds
        return connect(executor, b"this one", pytest.fail, kind=kind, until=until)

    with (
        socket.socket(socket.AF_UNIX, kind) as server,
        socket.socket(socket.AF_UNIX, kind) as first,
    ):
        server.bind(name)
        server.listen(0)
        server.settimeout(_LONG)
        first.connect(name)
        yield server, connecting


def test_a_slot_waits_while_the_queue_of_the_socket_is_full(busy):
    server, connecting = busy
    with ThreadPoolExecutor() as pool:
        second = pool.submit(connecting, _LONG)
        for _ in range(2):
            server.accept()[0].close()
        second.result().close()


def test_a_queue_that_stays_full_is_waited_for_until_the_time_is_over(busy):
    _, connecting = busy
    with pytest.raises(TimeoutError):
        connecting(0.05)
