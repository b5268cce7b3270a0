"""Waiting for conditions, and looking at the processes of trials."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil


def wait_until(condition: Callable[[], object], seconds: float = 240.0) -> None:
    """Wait until a condition holds; the limit only keeps a failing test from hanging."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds:g} s"
        time.sleep(0.05)


def processes_in(folder: Path) -> list[int]:
    """Return the process ids that trials wrote down as names `pid-<number>`."""
    return [int(path.name.rpartition("-")[2]) for path in folder.glob("pid-*")]


def alive(pids: list[int]) -> list[int]:
    """Return those of the processes that still run."""

    def runs(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return [pid for pid in pids if runs(pid)]
