"""Processes below this one. The standard library alone, for the keeper."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Inherit the orphans of all descendants of this process instead of losing them to init."""
    _set_subreaper(1)


def resign_as_subreaper() -> None:
    """Undo `become_subreaper`."""
    _set_subreaper(0)


def _set_subreaper(value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def kill_children(spared: Collection[int] = ()) -> bool:
    """Kill the children of this process; return whether there were any.

    Only these: nobody else reaps them, so that no other process can have got their numbers. The
    children of a subreaper's killed children become its own, so it calls this until none is left.

    Args:
        spared: The children to leave alone.
    """
    children = [child for child in _children() if child not in spared]
    for child in children:
        # It runs as another user, or this process was started with SIGCHLD ignored.
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return bool(children)


def _children() -> list[int]:
    """Return the children of this process.

    The kernel's own list of them may lack some while others end.
    """
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended
                fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[1]) == os.getpid():
                    found.append(int(name))
    return found


def signal_pidfd(pidfd: int, number: signal.Signals) -> None:
    """Send a signal to a process, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


def reap() -> None:
    """Reap all children of this process that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
