"""The processes below this one: how they ended, and ending all of them."""

from __future__ import annotations

import contextlib
import os
import time

import psutil

from spark_jobs import time_limits


def has_crashed(pid: int) -> bool:
    """Return whether an ended child was ended by a signal; the child is not reaped."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return ended is not None and ended.si_code != os.CLD_EXITED


def end_descendants() -> None:
    """Kill and reap all descendants of this process."""
    give_up = time.monotonic() + time_limits.SWEEP
    while time.monotonic() < give_up:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            kill_all(psutil.Process().children(recursive=True))
            time.sleep(0.005)


def kill_all(processes: list[psutil.Process]) -> None:
    """Kill processes, some of which may be gone, or run as another user."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.kill()
