"""The end of the processes that a trial leaves."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import psutil

from spark_jobs.zygote.descendants import kill_all
from tests import ROOT


def test_a_process_of_another_user_is_left_and_all_others_are_ended():
    class OfRoot:
        def kill(self) -> None:
            raise psutil.AccessDenied

    class Gone:
        def kill(self) -> None:
            raise psutil.NoSuchProcess(1)

    odd: list[Any] = [OfRoot(), Gone()]
    with subprocess.Popen(["sleep", "1000"]) as process:
        assert kill_all([*odd, psutil.Process(process.pid)]) == odd[:1]
        assert process.wait(timeout=60) < 0


OF_ANOTHER_USER = """
import os, signal, subprocess
import psutil
from spark_jobs.zygote.descendants import end_descendants

def kill(process):
    print("refused")
    raise psutil.AccessDenied

psutil.Process.kill = kill
left = subprocess.Popen(["sleep", "1000"])
end_descendants()
os.kill(left.pid, signal.SIGKILL)
"""


def test_nobody_waits_for_the_end_of_processes_of_another_user():
    # In an interpreter of its own, since it reaps all children.
    command = [sys.executable, "-c", OF_ANOTHER_USER]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"
