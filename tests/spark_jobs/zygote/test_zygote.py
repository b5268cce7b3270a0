"""Zygotes end trials that do not stop, or whose slot dies; see also test_runners.py."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import time

import psutil
import pytest

from search.trial import Trial
from spark_jobs import time_limits
from spark_jobs.messages import LARGEST_MESSAGE, Attempt, Report, encode
from spark_jobs.trial.pipe.frames import FrameReader, frame
from spark_jobs.trial.pipe.link import HEARD, REPORT
from spark_jobs.trial.trial_process import Task
from spark_jobs.zygote.child import Child
from spark_jobs.zygote.zygote import Zygote


@pytest.fixture
def pipes():
    """The pipes of a child, and a child that started long ago."""
    results, writing = os.pipe()
    reading, commands = os.pipe()
    reader = FrameReader(results, LARGEST_MESSAGE)
    yield (
        writing,
        Child(
            pid=0,
            pidfd=0,
            results=results,
            commands=commands,
            reader=reader,
            logs={},
            started=time.monotonic() - 1_000.0,
        ),
    )
    for descriptor in (results, writing, reading, commands):
        os.close(descriptor)


def say(pipes, message):
    writing, child = pipes
    os.write(writing, frame(message))
    child.read(lambda report: None)


def test_a_trial_has_its_time_limit_or_none(pipes):
    _, child = pipes
    assert child.deadline(None) == math.inf
    assert child.deadline(5.0) == child.started + 5.0


def test_a_stop_request_leaves_a_minute_or_three_times_the_longest_gap(pipes):
    _, child = pipes
    child.stop("enough")
    assert child.deadline(None) == child.stopped_at + time_limits.STOP_HEARD
    say(pipes, REPORT + encode(Report(0, {"loss": 1.0})))
    assert child.longest_gap >= 1_000.0
    assert child.deadline(None) >= child.stopped_at + 3_000.0
    say(pipes, REPORT + encode(Report(1, {"loss": 1.0})))
    assert child.deadline(None) >= child.stopped_at + 3_000.0
    assert child.deadline(2_000.0) == child.started + 2_000.0


def test_after_a_stop_request_was_received_the_time_limit_counts_again(pipes):
    _, child = pipes
    child.stop("enough")
    say(pipes, HEARD)
    assert child.deadline(None) == math.inf
    assert child.deadline(5.0) == child.started + 5.0


def test_a_slot_that_dies_just_before_a_sign_of_life_leaves_nothing(pipes):
    _, child = pipes
    slot, control = socket.socketpair()
    lifeline, held = os.pipe()
    reading, writing = os.pipe()
    slot.close()
    os.close(held)
    supervisor = os.fork()
    if supervisor == 0:
        with contextlib.suppress(BaseException):
            child.pid = subprocess.Popen(["sleep", "3600"], start_new_session=True).pid
            os.write(writing, str(child.pid).encode())
            child.pidfd = os.pidfd_open(child.pid)
            task = Task(
                attempt=Attempt(Trial(0, {})),
                folder="",
                logdir="",
                environment={},
                timeout=None,
                grace=1.0,
            )
            Zygote(control.fileno(), lifeline)._watch(child, task)
        os._exit(0)
    trial = int(os.read(reading, 20))
    os.waitpid(supervisor, 0)
    left = psutil.pid_exists(trial)
    with contextlib.suppress(ProcessLookupError):
        os.kill(trial, signal.SIGKILL)
    control.close()
    for descriptor in (lifeline, reading, writing):
        os.close(descriptor)
    assert not left
