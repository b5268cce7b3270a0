"""The runners of a slot's trials: in the slot's process, or in a process per trial.

`TrialRunner` is their interface; its contract is tests/spark_jobs/slot/test_runners.py.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import IO, Protocol, Self

import psutil

from search.errors import ExperimentError
from search.trial import Failure, Outcome
from spark_jobs import time_limits
from spark_jobs.messages import (
    Attempt,
    Report,
    decode,
    encode,
)
from spark_jobs.run_folder.paths import AttemptPaths
from spark_jobs.slot import zygote
from spark_jobs.slot.bounded_log import bound, open_log
from spark_jobs.slot.driver_watch import Abandoned
from spark_jobs.trial.frames import FrameReader, write_frame
from spark_jobs.trial.link import DirectLink, StopTrial
from spark_jobs.trial.trial_process import Program, Task, evaluate, set_environment, stopped

_SLICES = 12  # of the silence that is allowed; while this process is stopped at most one passes

Tell = Callable[[Report], None]


_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
_DIED = Failure("machine", "the process that supervises the trial was ended from outside")
# Such signals come from the trial or from people, never from a failing host.
_WAS_STOPPED = Failure("exit", "the process that supervises the trial was stopped (SIGSTOP)")


class RunnerBroken(ExperimentError):
    """No trial can run here; the message says why."""


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

    def stop(self, trial: int, reason: str) -> None:
        """Request a trial to stop, if it runs. From any thread; the first reason counts."""

    def abandon(self) -> None:
        """End the running trial, if it has a process of its own. From any thread.

        `run` raises `Abandoned` then, and in every later call.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


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
        self._running: tuple[int, DirectLink] | None = None

    def __enter__(self) -> Self:
        self._before = {name: os.environ.get(name) for name in self._environment}
        set_environment(self._environment)
        return self

    def __exit__(self, *error: object) -> None:
        set_environment(self._before)

    def run(self, attempt: Attempt, paths: AttemptPaths, tell: Tell) -> Outcome:
        """Run a trial in this process."""
        link = DirectLink(tell)
        self._running = attempt.trial.id, link
        try:
            with _output_in(paths):
                return evaluate(self._program, attempt, paths.folder, link)
        finally:
            for path in (paths.stdout, paths.stderr):
                bound(path)

    def stop(self, trial: int, reason: str) -> None:
        """Set the reason that the trial's next report raises."""
        running = self._running
        if running is not None and running[0] == trial:
            running[1].reason = running[1].reason or reason

    def abandon(self) -> None:
        """Do nothing: a trial in this process cannot be ended."""


@contextlib.contextmanager
def _output_in(paths: AttemptPaths) -> Iterator[None]:
    """Redirect this process' stdout and stderr, native code's too, to the attempt's files."""
    _flush_output()
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


def _flush_output() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


class ProcessRunner:
    """Runs each trial in a process of its own, forked from a zygote or fresh ('spawn').

    While the runner is entered, this process is a subreaper, so that it inherits the children of a
    killed zygote and can end them.

    Args:
        program: The settings of the search.
        environment: Environment variables of every trial: set, or removed if None.
        timeout: Time limit of a trial in seconds, or None.
        grace: Seconds between SIGTERM and SIGKILL at the time limit.

    Raises:
        RunnerBroken: On entering, if no zygote starts.
    """

    def __init__(
        self,
        program: Program,
        environment: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        grace: float = 1.0,
    ) -> None:
        self._program = program
        self._timeout = timeout
        self._grace = grace
        self._environment = dict(environment or {})
        self._zygote: _ZygoteProcess | None = None
        self._abandoned = False
        self._before: set[psutil.Process] = set()

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning if trials run with 'spawn' instead of 'fork'."""
        if self._zygote is None or not self._zygote.ready.reason:
            return ()
        return (f"isolation='spawn' instead of 'process': {self._zygote.ready.reason}",)

    def __enter__(self) -> Self:
        self._before = set(psutil.Process().children())
        zygote.become_subreaper()
        try:
            self._zygote = _ZygoteProcess(self._program)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None
        self._end_orphans()
        zygote.resign_as_subreaper()

    def run(self, attempt: Attempt, paths: AttemptPaths, tell: Tell) -> Outcome:
        """Run a trial in a process of its own."""
        if self._zygote is None:
            self._zygote = _ZygoteProcess(self._program)
        if self._abandoned:
            raise Abandoned(f"trial {attempt.trial.id} was not started")
        folder = str(paths.folder)
        task = Task(
            attempt=attempt,
            folder=folder,
            environment=self._environment,
            timeout=self._timeout,
            grace=self._grace,
        )
        trial, last = attempt.trial.id, None

        def note(report: Report) -> None:
            nonlocal last
            last = report if last is None else report.after(last)
            tell(report)

        started = time.monotonic()
        ended = self._zygote.run(task, note)
        if isinstance(ended, Failure):
            self._zygote.close()
            self._zygote = None
            self._end_orphans()
            if self._abandoned:
                raise Abandoned(f"trial {trial} was ended")
            seconds = time.monotonic() - started
            return Outcome.failed(trial, ended.kind, ended.message, seconds=seconds)
        outcome = ended.outcome
        # The failure of a trial that got SIGTERM means nothing.
        if outcome is not None and not (ended.overdue and outcome.error):
            return outcome
        if ended.stopped and ended.overdue:  # it did not reach its next report
            objective = self._program.objective
            return stopped(objective, trial, ended.stopped, last, ended.seconds)
        return _failed(trial, ended, self._timeout)

    def stop(self, trial: int, reason: str) -> None:
        """Send a stop request to the trial's process."""
        running = self._zygote
        if running is not None:
            running.stop(trial, reason)

    def abandon(self) -> None:
        """End the trial's process."""
        self._abandoned = True
        running = self._zygote
        if running is not None:
            running.abandon()

    def _end_orphans(self) -> None:
        """End the processes of a killed zygote, but no earlier children of this process.

        Repeated until none is left: an orphan's children arrive here only when it has ended.
        """
        give_up = time.monotonic() + time_limits.SWEEP
        while orphans := set(psutil.Process().children()) - self._before:
            for orphan in orphans:
                zygote.kill_all([*_children(orphan), orphan])
            psutil.wait_procs(orphans, timeout=1)
            if time.monotonic() > give_up:
                return


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        children: list[psutil.Process] = process.children(recursive=True)
        return children
    except psutil.NoSuchProcess:
        return []


def _failed(trial: int, ended: zygote.Ended, timeout: float | None) -> Outcome:
    if ended.overdue:
        message = f"ended at the time limit of {timeout:g} s"
        return Outcome.failed(trial, "time", message, seconds=ended.seconds)
    if ended.exit < 0:
        message = f"signal {-ended.exit} ({_signal_name(-ended.exit)})"
    else:
        message = f"exit {ended.exit}"
    message += " before it returned"
    if ended.memory:
        message += f", out of memory; {ended.memory}"
        return Outcome.failed(trial, "memory", message, seconds=ended.seconds)
    return Outcome.failed(trial, "exit", message, seconds=ended.seconds)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


class _ZygoteProcess:
    """The slot's side of a zygote."""

    def __init__(self, program: Program) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()
        ours, theirs = socket.socketpair()
        lifeline_read, lifeline = os.pipe()
        self._socket = ours
        self._lifeline = lifeline
        self._writing = threading.Lock()
        self._trial: int | None = None  # the running trial, unless it has a stop request
        self._reader = FrameReader(ours.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-m", zygote.__name__, str(theirs.fileno()), str(lifeline_read)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(theirs.fileno(), lifeline_read),
            start_new_session=True,
            env=_zygote_environment(),
        )
        theirs.close()
        os.close(lifeline_read)
        with contextlib.suppress(BrokenPipeError):  # it has ended: its log tells more
            write_frame(ours.fileno(), encode(program))
        first = self._receive()
        if not isinstance(first, zygote.Ready):
            reason = first.reason if isinstance(first, zygote.Broken) else self._last_words()
            self.close()
            raise RunnerBroken(reason)
        self.ready = first

    def run(self, task: Task, tell: Tell) -> zygote.Ended | Failure:
        """Run a trial; return a failure if the zygote died or was stopped.

        In that case the zygote and the trial's process group are ended.
        """
        group = 0
        try:
            with self._writing:
                self._trial = task.attempt.trial.id
                write_frame(self._socket.fileno(), encode(task))
        except OSError:
            return _DIED
        try:
            while True:
                match self._hear():
                    case zygote.Started(pid=group):
                        pass
                    case zygote.Alive():
                        pass
                    case zygote.Reported(report=report):
                        tell(report)
                    case zygote.Ended() as ended:
                        return ended
                    case other:
                        self._process.kill()
                        _kill_group(group)
                        return other if isinstance(other, Failure) else _DIED
        finally:
            with self._writing:
                self._trial = None

    def stop(self, trial: int, reason: str) -> None:
        """Send a trial one stop request, if it runs.

        Only one: the zygote does not read while it writes reports, so too many requests would fill
        the pipe until both sides wait for each other.
        """
        with self._writing, contextlib.suppress(OSError):  # the zygote has died
            if self._trial == trial:
                self._trial = None
                write_frame(self._socket.fileno(), encode(StopTrial(reason)))

    def abandon(self) -> None:
        """Let `run` end the trial and return a failure. From any thread."""
        with contextlib.suppress(OSError):  # closed, or the zygote has died
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the zygote, with the trial that it may be running."""
        self._socket.close()
        os.close(self._lifeline)
        self._process.send_signal(signal.SIGCONT)  # a trial may have stopped it
        try:
            self._process.wait(timeout=time_limits.ZYGOTE_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _hear(self) -> zygote.FromZygote | Failure | None:
        """Wait for the next message while a trial runs; a failure if none comes for long."""
        while (message := self._reader.take()) is None:
            if failure := self._silent():
                return failure
            if not self._reader.fill():
                return None
        return _read(message)

    def _silent(self) -> Failure | None:
        """Wait for something to read; return a failure, or None, if nothing comes for long."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while True:
            for _ in range(_SLICES):
                if poll.poll(time_limits.ZYGOTE_SILENCE * 1000 / _SLICES):
                    return None
            if failure := failure_of_silence(status_of(self._process.pid)):
                return failure

    def _receive(self) -> zygote.FromZygote | None:
        message = self._reader.receive()
        return None if message is None else _read(message)

    def _last_words(self) -> str:
        code = self._process.wait()
        self._log.seek(0)
        text = self._log.read()[-2_000:].decode("utf-8", "replace").strip()
        return f"the zygote ended with {code}: {text}"


def failure_of_silence(status: str) -> Failure | None:
    """Return the failure of a trial whose supervisor is silent; None if it may continue.

    It writes the trial's output to the run's folder, so it waits for a file system that hangs.

    Args:
        status: The supervisor's status by psutil's names.
    """
    if status in _STOPPED:
        return _WAS_STOPPED
    if status == psutil.STATUS_DISK_SLEEP:
        return None
    return Failure(
        "machine",
        f"the process that supervises the trial was silent for {time_limits.ZYGOTE_SILENCE:g} s",
    )


def status_of(pid: int) -> str:
    """Return a process' status by psutil's names."""
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_DEAD)


def _read(message: bytes) -> zygote.FromZygote:
    # Of any length: an outcome alone may be as long as a message.
    heard: zygote.FromZygote = decode(message, zygote.FromZygote, largest=None)  # type: ignore[arg-type]
    return heard


def _kill_group(group: int) -> None:
    """End a trial's process group; 0 for none."""
    with contextlib.suppress(ProcessLookupError):
        if group:
            os.killpg(group, signal.SIGKILL)


def _zygote_environment() -> dict[str, str]:
    environment = dict(os.environ)
    # Without compiled files an import of TensorFlow is several times slower.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # User code must not get Spark's secret for its own workers.
    environment.pop("PYTHON_WORKER_FACTORY_SECRET", None)
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return environment
