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


def children_by_parent() -> dict[int, list[int]]:
    """Return the children of each process of this host.

    The kernel's own list of a process' children may lack some while others end.
    """
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended
                fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
                found.setdefault(int(fields[1]), []).append(int(name))
    return found


def kill_trees(
    roots: list[int], children: dict[int, list[int]], spared: Collection[int] = ()
) -> None:
    """Kill processes and their descendants.

    Args:
        roots: The processes.
        children: The children of each process.
        spared: Descendants to leave alone, with theirs.
    """
    left = list(roots)
    while left:
        pid = left.pop()
        left += [child for child in children.get(pid, ()) if child not in spared]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def reap() -> None:
    """Reap all children of this process that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
