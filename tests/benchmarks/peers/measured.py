"""Runs a command with a time limit, and ends what it leaves: `python -m ...measured LIMIT COMMAND`.

Orphans of the command become children of this process, so that their processor time is counted and
none outlives it. Its exit status is the command's; 124 after the limit, as of timeout(1).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

import psutil

HUNG = 124
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <sys/prctl.h>
_PARENT_DEATH = 1  # PR_SET_PDEATHSIG: ends this process with the benchmark
_POLL = 0.02


def main() -> int:
    """Run the command line's command."""
    limit, command = float(sys.argv[1]), sys.argv[2:]
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if prctl(_SUBREAPER, 1, 0, 0, 0) or prctl(_PARENT_DEATH, signal.SIGTERM, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    process = subprocess.Popen(command)
    try:
        status = _status(process.pid, limit)
    finally:
        _end_all()
    return HUNG if status is None else os.waitstatus_to_exitcode(status) & 255


def _status(command: int, limit: float) -> int | None:
    """Wait for the command, and for orphans meanwhile; return None after the limit."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == command:
            return status
        if pid == 0:
            time.sleep(_POLL)
    return None


def _end_all() -> None:
    """End all descendants, also those that they start meanwhile; nothing interrupts this."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(ChildProcessError):
        while True:
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(_POLL)


if __name__ == "__main__":
    sys.exit(main())
