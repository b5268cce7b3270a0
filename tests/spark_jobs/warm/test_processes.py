"""The processes that a zygote leaves are ended, and no others."""

from __future__ import annotations

import subprocess
import sys

import pytest

TREE = "sleep {0} & (sleep {0} & setsid sleep {0} & wait) & wait"
FORKS_AGAIN_AND_AGAIN = "while true; do sleep {0} & sleep 0.001; done"

KILLS = """
import os
import subprocess
import sys
import time

import psutil

from spark_jobs.warm.processes import become_subreaper, kill_children, reap

become_subreaper()
us = psutil.Process()
spared = subprocess.Popen(["sh", "-c", "sleep 3600 & wait"])
subprocess.Popen(["sh", "-c", sys.argv[1]])
while len(us.children(recursive=True)) < 6 or not psutil.Process(spared.pid).children():
    time.sleep(0.01)

real, killed = os.kill, []


def kill(pid, number):
    killed.append(pid)
    real(pid, number)


children = {child.pid for child in us.children()} - {spared.pid}
os.kill = kill
kill_children({spared.pid})
os.kill = real
while kill_children({spared.pid}):
    reap()
    time.sleep(0.005)
left = [child.ppid() for child in us.children(recursive=True)]
while kill_children():
    reap()
assert set(killed) == children, (killed, children)
assert left == [us.pid, spared.pid]
"""


@pytest.mark.parametrize("script", [TREE, FORKS_AGAIN_AND_AGAIN], ids=["tree", "many"])
def test_only_children_are_killed_until_none_is_left(script):
    """Only a child's number cannot be that of another process, since nobody else reaps it."""
    subprocess.run([sys.executable, "-c", KILLS, script.format(3600)], check=True, timeout=240)
