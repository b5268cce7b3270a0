"""No thread and no open socket outlives a test."""

from __future__ import annotations

import threading

import psutil
import pytest


@pytest.fixture(autouse=True)
def nothing_left():
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert left == []
    assert [c for c in psutil.Process().net_connections("tcp4") if c.laddr.ip == "127.0.0.1"] == []
