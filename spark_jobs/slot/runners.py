"""The runners of a slot's trials: in the slot's process, or in a process per trial.

`TrialRunner` is their interface; its contract is tests/spark_jobs/slot/test_runners.py.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import IO, Protocol, Self

import psutil

from search.trial import Failure, Outcome
from spark_jobs import time_limits
from spark_jobs.messages import (
    Attempt,
    Report,
)
from spark_jobs.processes import set_environment, signal_name
from spark_jobs.run_folder.paths import AttemptPaths
from spark_jobs.run_folder.scratch import remove_left, temporary_folder
from spark_jobs.slot.driver_watch import Abandoned
from spark_jobs.slot.gang.variables import variables_of
from spark_jobs.trial.pipe.link import DirectLink
from spark_jobs.trial.trial_process import Program, Task, evaluate, stopped
from spark_jobs.warm.asking import KeeperEnded, Unavailable, Warm
from spark_jobs.warm.processes import become_subreaper, resign_as_subreaper
from spark_jobs.zygote.bounded_log import bound, open_log
from spark_jobs.zygote.descendants import kill_all
from spark_jobs.zygote.link import RunnerBroken, Tell, ZygoteLink
from spark_jobs.zygote.messages import Ended

_KEEPERS = 3  # to ask in a row, since one may end meanwhile


class TrialRunner(Protocol):
    """Runs one trial at a time. A context manager: leaving it ends what it started."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the user about the way trials run."""

    def run(self, attempt: Attempt, paths: AttemptPaths, tell: Tell) -> Outcome:
        """Run a trial whose folder exists; any result or failure becomes an outcome.

        Args:
            attempt: The attempt to run.
            paths: Its files.
            tell: Called with each report of the trial, from this thread.
        """

    def stop(self, attempt: Attempt, reason: str) -> None:
        """Request an attempt to stop, if it runs. From any thread; the first reason counts."""

    def end(self, attempt: Attempt, reason: str) -> None:
        """End the process of an attempt, if it runs in one of its own. From any thread.

        `run` returns the outcome 'cancelled' then, unless the attempt has returned a value.
        """

    def abandon(self) -> None:
        """End the running trial, if it has a process of its own. From any thread.

        `run` raises `Abandoned` then, and in every later call.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class InProcessRunner:
    """Runs trials in this process: for debuggers, and where a process per trial costs too much.

    A trial that ends its process ends the slot, and changes of global state remain. A framework
    that has started CUDA here keeps its GPUs, whatever the environment of a later runner.

    Args:
        program: The settings of the search.
        environment: Environment variables of this process while the runner is entered: set, or
            removed if None.
    """

    warnings: tuple[str, ...] = ()

    def __init__(
        self, program: Program, environment: Mapping[str, str | None] | None = None
    ) -> None:
        self._program = program
        self._environment = dict(environment or {})
        self._before: dict[str, str | None] = {}
        self._running: tuple[Attempt, DirectLink] | None = None

    def __enter__(self) -> Self:
        self._before = {name: os.environ.get(name) for name in self._environment}
        set_environment(self._environment)
        return self

    def __exit__(self, *error: object) -> None:
        set_environment(self._before)

    def run(self, attempt: Attempt, paths: AttemptPaths, tell: Tell) -> Outcome:
        """Run a trial in this process."""
        link = DirectLink(tell)
        self._running = attempt, link
        try:
            with _output_in(paths):
                return evaluate(self._program, attempt, paths.logdir, link)
        finally:
            for path in (paths.stdout, paths.stderr):
                bound(path)

    def stop(self, attempt: Attempt, reason: str) -> None:
        """Set the reason that the trial's next report raises."""
        running = self._running
        if running is not None and running[0] == attempt:
            running[1].reason = running[1].reason or reason

    def end(self, attempt: Attempt, reason: str) -> None:
        """Do nothing: a trial in this process cannot be ended."""

    def abandon(self) -> None:
        """Do nothing: a trial in this process cannot be ended."""


@contextlib.contextmanager
def _output_in(paths: AttemptPaths) -> Iterator[None]:
    """Redirect this process' stdout and stderr, native code's too, to the attempt's files."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    try:
        for path, descriptor in ((paths.stdout, 1), (paths.stderr, 2)):
            file = open_log(path)
            os.dup2(file, descriptor)
            os.close(file)
        with (
            _lines_to(1) as out,
            _lines_to(2) as err,
            contextlib.redirect_stdout(out),  # stdout may be a notebook's or a test's
            contextlib.redirect_stderr(err),
        ):
            yield
    finally:
        for descriptor, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)


def _lines_to(descriptor: int) -> IO[str]:
    return open(
        descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


class ProcessRunner:
    """Runs each trial in a process of its own, forked from a zygote or fresh ('spawn').

    A zygote comes from a keeper, which has it fork from a process that has imported, or is started
    here if no keeper has one. Then, until the runner is left, this process is a subreaper, so that
    it inherits the children of a killed zygote and can end them.

    Args:
        program: The settings of the search.
        environment: Environment variables of every trial: set, or removed if None.
        timeout: Time limit of a trial in seconds, or None.
        grace: Seconds between SIGTERM and SIGKILL at the time limit.
        warm: Where keepers are. Default: without.

    Raises:
        RunnerBroken: On entering, if no zygote starts.
    """

    def __init__(
        self,
        program: Program,
        environment: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        grace: float = 1.0,
        *,
        warm: Warm | None = None,
    ) -> None:
        self._program = program
        self._warm = warm
        self._timeout = timeout
        self._grace = grace
        # A zygote's also has this Python's libraries, which programs of another Python cannot use.
        self._environment = {"PYTHONPATH": os.environ.get("PYTHONPATH"), **(environment or {})}
        self._zygote: ZygoteLink | None = None
        self._abandoned = False
        # This process' children before it became a subreaper; None before that.
        self._before: set[psutil.Process] | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning if trials run with 'spawn' instead of 'fork'."""
        if self._zygote is None or not self._zygote.ready.reason:
            return ()
        return (f"isolation='spawn' instead of 'process': {self._zygote.ready.reason}",)

    def __enter__(self) -> Self:
        remove_left()  # of slots that were killed on this host
        try:
            self._zygote = self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None
        self._end_orphans()
        if self._before is not None:
            resign_as_subreaper()
            self._before = None

    def run(self, attempt: Attempt, paths: AttemptPaths, tell: Tell) -> Outcome:
        """Run a trial in a process of its own."""
        if self._zygote is not None and not self._zygote.process.is_guarded:
            self._zygote.close()
            self._zygote = None
        if self._zygote is None:
            self._zygote = self._start()
        if self._abandoned:
            raise Abandoned(f"trial {attempt.trial.id} was not started")
        trial, last = attempt.trial.id, None

        def note(report: Report) -> None:
            nonlocal last
            last = report if last is None else report.after(last)
            tell(report)

        started = time.monotonic()
        with _temporary_files() as variables:
            task = Task(
                attempt=attempt,
                folder=str(paths.folder),
                logdir=str(paths.logdir),
                environment=self._environment | variables | variables_of(attempt.gang),
                timeout=self._timeout,
                grace=self._grace,
            )
            ended = self._zygote.run(task, note)
        if isinstance(ended, Failure):
            self._zygote.close()
            self._zygote = None
            self._end_orphans()
            if self._abandoned:
                raise Abandoned(f"trial {trial} was ended")
            seconds = time.monotonic() - started
            return Outcome.failed(trial, ended.kind, ended.message, seconds=seconds)
        return _outcome_of(self._program, trial, ended, last, self._timeout)

    def stop(self, attempt: Attempt, reason: str) -> None:
        """Send a stop request to the attempt's process."""
        if (zygote := self._zygote) is not None:
            zygote.stop(attempt, reason)

    def end(self, attempt: Attempt, reason: str) -> None:
        """End the attempt's process, as at its time limit."""
        if (zygote := self._zygote) is not None:
            zygote.end(attempt, reason)

    def abandon(self) -> None:
        """End the trial's process."""
        self._abandoned = True
        if (zygote := self._zygote) is not None:
            zygote.abandon()

    def _start(self) -> ZygoteLink:
        """Return a new zygote, from a keeper as long as these have one."""
        if self._warm is not None:
            if link := self._ask_keepers(self._warm):
                return link
            self._warm = None
        if self._before is None:
            self._before = set(psutil.Process().children())
            become_subreaper()  # not before: this process would inherit a keeper that it starts
        return ZygoteLink(self._program)

    def _ask_keepers(self, warm: Warm) -> ZygoteLink | None:
        """Return a zygote from a keeper; None if there is none."""
        problem: Exception | None = None
        until = time.monotonic() + time_limits.WARM_ANSWER
        for _ in range(_KEEPERS):
            try:
                return ZygoteLink(self._program, warm, until)
            except KeeperEnded as error:
                problem = error
            except (Unavailable, RunnerBroken) as error:
                problem = error
                break
        print(f"no shared import: {problem}", file=sys.stderr)
        return None

    def _end_orphans(self) -> None:
        """End the processes of a killed zygote, but no earlier children of this process.

        Repeated until none is left: an orphan's children arrive here only when it has ended. None
        arrives before this process is a subreaper, and listing them takes a while.
        """
        if self._before is None:
            return
        give_up = time.monotonic() + time_limits.SWEEP
        while orphans := set(psutil.Process().children()) - self._before:
            for orphan in orphans:
                kill_all([*_children(orphan), orphan])
            psutil.wait_procs(orphans, timeout=1)
            if time.monotonic() > give_up:
                return


@contextlib.contextmanager
def _temporary_files() -> Iterator[dict[str, str | None]]:
    """Yield the environment variable for a folder of a trial's temporary files.

    The folder is removed after the block: a trial's process ends without atexit handlers, by which
    TensorFlow would remove a file for each `tf.function`.
    """
    with contextlib.ExitStack() as entered:
        variables: dict[str, str | None] = {}
        with contextlib.suppress(OSError):  # a full disk: the trial may need none
            variables["TMPDIR"] = str(entered.enter_context(temporary_folder()))
        yield variables


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        children: list[psutil.Process] = process.children(recursive=True)
        return children
    except psutil.NoSuchProcess:
        return []


def _outcome_of(
    program: Program, trial: int, ended: Ended, last: Report | None, timeout: float | None
) -> Outcome:
    """Return the outcome of a trial whose process has ended.

    Args:
        program: The settings of the search.
        trial: The trial's id.
        ended: How the process ended.
        last: The trial's last report.
        timeout: The time limit in seconds, or None.
    """
    # The failure of a trial that got SIGTERM means nothing.
    if ended.outcome is not None and not (ended.overdue and ended.outcome.error):
        return ended.outcome
    if ended.end_request and ended.overdue:
        return Outcome(trial, "cancelled", seconds=ended.seconds, reason=ended.end_request)
    if ended.stopped and ended.overdue:  # it did not reach its next report
        if program.repeats > 1:  # the last repeat is not the mean
            last = None
        return stopped(program.objective, trial, ended.stopped, last, ended.seconds)
    return _failed(trial, ended, timeout)


def _failed(trial: int, ended: Ended, timeout: float | None) -> Outcome:
    if ended.overdue:
        message = f"ended at the time limit of {timeout:g} s"
        return Outcome.failed(trial, "time", message, seconds=ended.seconds)
    if ended.exit < 0:
        message = f"signal {-ended.exit} ({signal_name(-ended.exit)})"
    else:
        message = f"exit {ended.exit}"
    message += " before it returned"
    if ended.memory:
        message += f", out of memory; {ended.memory}"
        return Outcome.failed(trial, "memory", message, seconds=ended.seconds)
    return Outcome.failed(trial, "exit", message, seconds=ended.seconds)
