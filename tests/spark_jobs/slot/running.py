"""Runs trials, without pytest: also for processes of tests, which would import it anew."""

from __future__ import annotations

import base64
import contextlib
import time

import cloudpickle
import psutil

from search.trial import Trial
from spark_jobs.messages import Attempt
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.trial.trial_process import Program

LIGHT = ("experiment", "spark_jobs.trial.events.event_file")


def program(function, key=None, **settings):
    return Program(function=cloudpickle.dumps(function), key=key, direction="max", **settings)


def pickled(function):
    return base64.b64encode(cloudpickle.dumps(function)).decode()


def wait_until(condition, seconds=120.0):
    """Wait for a condition; the limit only keeps a failing test from hanging."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition was not met"
        time.sleep(0.01)


class Runner:
    """Runs trials of one function, each in a new folder.

    Args:
        runner: The runner.
        root: The run's folder.
        function: The function to call, if the program of the runner is `call_pickled`.
    """

    def __init__(self, runner, root, function=None):
        self.runner, self.paths, self.count = runner, RunPaths(root), 0
        self.given = {} if function is None else {"pickled": pickled(function)}
        self.reports = []  # of the last trial
        self.hear = lambda report: None
        self.gang = None

    def __call__(self, **params):
        self.attempt = Attempt(Trial(self.count, {**self.given, **params}), gang=self.gang)
        self.files = self.paths.attempt(self.count)
        self.files.folder.mkdir(parents=True)
        self.count += 1
        self.reports = []
        outcome = self.runner.run(self.attempt, self.files, self.tell)
        assert outcome.trial == self.attempt.trial.id
        return outcome

    def tell(self, report):
        self.reports.append(report)
        self.hear(report)

    def stop(self, report, *, reason="enough"):
        """Stop the running trial; to be used as `hear`."""
        self.runner.stop(self.attempt, reason)

    def stop_later(self, report):
        """Stop the running trial after its report has returned, so that it learns of it later."""
        wait_until((self.files.folder / "reported").exists)
        self.stop(report)


def alive(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def sleeping(tag):
    """Return the processes that sleep for this odd number of seconds."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            command = process.cmdline()
            if command[:1] == ["sleep"] and command[1:] == [tag]:
                found.append(process.pid)
    return found
