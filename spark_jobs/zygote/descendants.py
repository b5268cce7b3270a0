"""The processes below this one: how they ended, and ending all of them."""

from __future__ import annotations

import os
import time

import psutil

from spark_jobs import time_limits


def has_crashed(pid: int) -> bool:
    """Return whether an ended child was ended by a signal; the child is not reaped."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return ended is not None and ended.si_code != os.CLD_EXITED


def end_descendants() -> None:
    """Kill and reap all descendants of this process that it may kill."""
    give_up = time.monotonic() + time_limits.SWEEP
    while time.monotonic() < give_up:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            left = psutil.Process().children(recursive=True)
            if left and kill_all(left) == left:
                return
            time.sleep(0.005)


def kill_all(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Kill processes, some of which may be gone; return those of other users."""
    others = []
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass
        except psutil.AccessDenied:
            others.append(process)
    return others
