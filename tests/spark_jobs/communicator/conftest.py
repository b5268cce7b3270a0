"""No thread and no open socket outlives a test."""

from __future__ import annotations

import threading

import psutil
import pytest


def loopback_sockets():
    """Return this process' sockets; a Spark session of another test has some, too."""
    connections = psutil.Process().net_connections("tcp4")
    return {c.laddr for c in connections if c.laddr.ip == "127.0.0.1"}


@pytest.fixture(autouse=True)
def nothing_left():
    before, sockets = set(threading.enumerate()), loopback_sockets()
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert left == []
    assert loopback_sockets() <= sockets
