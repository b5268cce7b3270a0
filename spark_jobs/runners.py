"""How a slot runs a trial: in its own process, or in one per trial.

`TrialRunner` is the seam; its contract is tests/spark_jobs_tests/test_runners.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import IO, Protocol, Self

import msgspec
import psutil

from search.errors import ExperimentError
from search.trial import Outcome
from spark_jobs import zygote
from spark_jobs.frames import FrameReader, write_frame
from spark_jobs.paths import AttemptPaths
from spark_jobs.protocol import (
    Attempt,
    ProtocolError,
    decode,
    encode,
    outcome_of_json,
    work_of,
)
from spark_jobs.trial_process import Program, Task, evaluate, redirect_output

_SWEEP = 5.0  # seconds for killed processes to disappear


class RunnerBroken(ExperimentError):
    """Trials cannot be run here at all; the message says why."""


class TrialRunner(Protocol):
    """Runs one trial at a time. A context manager: leaving it ends what it started."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know about how trials run."""

    def run(self, attempt: Attempt, paths: AttemptPaths) -> Outcome:
        """Run a trial whose folder is there; whatever happens to it becomes an outcome."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class InProcessRunner:
    """Runs trials in this process: for debuggers, and where a process per trial costs too much.

    A trial that ends its process ends the slot, and what it changes stays changed.
    """

    warnings: tuple[str, ...] = ()

    def __init__(self, program: Program) -> None:
        self._program = program

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing was started."""

    def run(self, attempt: Attempt, paths: AttemptPaths) -> Outcome:
        """See `TrialRunner`."""
        with _output_in(paths):
            return evaluate(self._program, attempt, paths.folder)


@contextlib.contextmanager
def _output_in(paths: AttemptPaths) -> Iterator[None]:
    """Send this process' stdout and stderr, native code's too, to the attempt's files."""
    _flush_output()
    saved = os.dup(1), os.dup(2)
    try:
        redirect_output(paths)
        with (
            _lines_to(1) as out,
            _lines_to(2) as err,
            contextlib.redirect_stdout(out),  # which may be a notebook's or a test's
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

    The calling process becomes a subreaper as long as the runner lives, so that it inherits what a
    killed zygote leaves behind and can end it.

    Args:
        program: What all trials have in common.
        environment: Variables of every trial: set, or removed where None.
        timeout: Seconds until a trial is ended, or None.

    Raises:
        RunnerBroken: On entering, where no zygote starts.
    """

    def __init__(
        self,
        program: Program,
        environment: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
    ) -> None:
        self._program, self._timeout = program, timeout
        self._environment = dict(environment or {})
        self._zygote: _ZygoteProcess | None = None
        self._before: set[psutil.Process] = set()

    @property
    def warnings(self) -> tuple[str, ...]:
        """See `TrialRunner`."""
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

    def run(self, attempt: Attempt, paths: AttemptPaths) -> Outcome:
        """See `TrialRunner`."""
        if self._zygote is None:
            self._zygote = _ZygoteProcess(self._program)
        task = Task(work_of(attempt), str(paths.folder), self._environment, self._timeout)
        trial = attempt.trial.id
        ended = self._zygote.run(task)
        if ended is None:
            self._zygote.close()
            self._zygote = None
            self._end_orphans()
            message = "the process that supervises the trial was ended from outside"
            return Outcome.failed(trial, "machine", message)
        return _outcome(trial, ended, self._timeout)

    def _end_orphans(self) -> None:
        """End what a killed zygote left to this process, and nothing that was here before.

        Again until nothing is left: the children of an orphan come here only when it has ended.
        """
        give_up = time.monotonic() + _SWEEP
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


def _outcome(trial: int, ended: zygote.Ended, timeout: float | None) -> Outcome:
    if ended.outcome:
        try:
            outcome = outcome_of_json(msgspec.json.decode(ended.outcome))
        except (msgspec.DecodeError, ProtocolError):
            message = "the trial's process wrote something that is no outcome"
            return Outcome.failed(trial, "invalid value", message, seconds=ended.seconds)
        if outcome.trial == trial:
            return outcome
    if ended.timed_out:
        message = f"ended at the time limit of {timeout:g} s"
        return Outcome.failed(trial, "time", message, seconds=ended.seconds)
    if ended.exit < 0:
        message = f"signal {-ended.exit} ({_signal_name(-ended.exit)})"
    else:
        message = f"exit {ended.exit}"
    return Outcome.failed(trial, "exit", f"{message} before it returned", seconds=ended.seconds)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


class _ZygoteProcess:
    """A zygote seen from its slot."""

    def __init__(self, program: Program) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()
        ours, theirs = socket.socketpair()
        lifeline_read, lifeline = os.pipe()
        self._socket, self._lifeline = ours, lifeline
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
        with contextlib.suppress(BrokenPipeError):  # it has ended: its last words tell more
            write_frame(ours.fileno(), encode(program))
        first = self._receive()
        if not isinstance(first, zygote.Ready):
            reason = first.reason if isinstance(first, zygote.Broken) else self._last_words()
            self.close()
            raise RunnerBroken(reason)
        self.ready = first

    def run(self, task: Task) -> zygote.Ended | None:
        """Run a trial; None where the zygote died, and the trial's process group is ended then."""
        group = 0
        try:
            write_frame(self._socket.fileno(), encode(task))
        except OSError:
            return None
        while True:
            match self._receive():
                case zygote.Started(pid=group):
                    pass
                case zygote.Ended() as ended:
                    return ended
                case _:
                    if group:
                        _kill_group(group)
                    return None

    def close(self) -> None:
        """Let the zygote end, with the trial that it may be running."""
        self._socket.close()
        os.close(self._lifeline)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _receive(self) -> zygote.FromZygote | None:
        message = self._reader.receive()
        if message is None:
            return None
        decoded: zygote.FromZygote = decode(message, zygote.FromZygote)  # type: ignore[arg-type]  # a union is not a type to mypy
        return decoded

    def _last_words(self) -> str:
        code = self._process.wait()
        self._log.seek(0)
        text = self._log.read()[-2_000:].decode("utf-8", "replace").strip()
        return f"the zygote ended with {code}: {text}"


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _zygote_environment() -> dict[str, str]:
    environment = dict(os.environ)
    # A fresh import of TensorFlow is several times slower without its compiled files.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # Spark's secret for its own workers is no business of the user's code.
    environment.pop("PYTHON_WORKER_FACTORY_SECRET", None)
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return environment
