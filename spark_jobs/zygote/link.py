"""The slot's side of a zygote: the messages to and from it."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from typing import IO

import psutil

from search.errors import ExperimentError
from search.trial import Failure
from spark_jobs import time_limits
from spark_jobs.messages import Attempt, Report, decode, encode
from spark_jobs.trial.pipe.frames import FrameReader, write_frame
from spark_jobs.trial.pipe.link import EndTrial, StopTrial
from spark_jobs.trial.trial_process import Program, Task
from spark_jobs.warm.asking import Warm
from spark_jobs.zygote.messages import Alive, Broken, Ended, FromZygote, Ready, Reported, Started
from spark_jobs.zygote.process import KeptProcess, OwnProcess, ZygoteProcess
from spark_jobs.zygote.shared_import import OURS, SELECTS_JAX, imports_of

_SLICES = 12  # of the silence that is allowed; while this process is stopped at most one passes
_TAIL = 10_000  # bytes of its log in which its error is looked for
_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
_DIED = Failure(
    kind="machine", message="the process that supervises the trial was ended from outside"
)
# Such signals come from the trial or from people, never from a failing host.
_WAS_STOPPED = Failure(
    kind="exit", message="the process that supervises the trial was stopped (SIGSTOP)"
)

Tell = Callable[[Report], None]


class RunnerBroken(ExperimentError):
    """No trial can run here; the message says why."""


class ZygoteLink:
    """The slot's side of a zygote.

    Args:
        program: The settings of the search.
        warm: Where keepers are; None for a zygote that this process starts.
        until: When to do without a keeper's, by `time.monotonic`.

    Attributes:
        process: The zygote's process.
        ready: The zygote's first message.

    Raises:
        RunnerBroken: The zygote does not start.
        Unavailable: No keeper has one.
    """

    def __init__(self, program: Program, warm: Warm | None = None, until: float = math.inf) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()
        ours, theirs = socket.socketpair()
        lifeline_read, lifeline = os.pipe()
        self._socket = ours
        self._lifeline = lifeline
        self._logged = 0  # bytes of the log before the trial
        self._writing = threading.Lock()
        self._stoppable: Attempt | None = None  # what runs, unless it has a stop request
        self._endable: Attempt | None = None  # what runs, unless it has a request to end
        self._reader = FrameReader(ours.fileno())
        try:
            self.process: ZygoteProcess
            if warm is None:
                self.process = OwnProcess(theirs.fileno(), lifeline_read, self._log)
            else:
                imports = imports_of(program.preload, program.guessed)
                self.process = KeptProcess(
                    warm, imports, theirs.fileno(), lifeline_read, self._log, until=until
                )
        except BaseException:
            self._close_files()
            raise
        finally:
            theirs.close()
            os.close(lifeline_read)
        # A forked one hangs if another thread of the importer held a lock at the fork, one of this
        # process if a module waits for something.
        limit = time_limits.OWN_IMPORT if warm is None else time_limits.WARM_READY
        begun = time.monotonic()  # before the timer begins to count
        overdue = threading.Timer(limit, self._give_up)
        try:
            overdue.start()
        except RuntimeError as error:  # the limit of processes, which counts threads
            self.close()
            raise RunnerBroken(str(error)) from None
        try:
            with contextlib.suppress(ConnectionError):  # it has ended: its log tells more
                write_frame(ours.fileno(), encode(program))
            first = self._receive()
        finally:
            overdue.cancel()
            overdue.join()  # it may be killing
        if not isinstance(first, Ready):
            reason = first.reason if isinstance(first, Broken) else self.process.last_words()
            if warm is None and time.monotonic() - begun >= limit:
                named = (*program.preload, *program.guessed)
                modules = ", ".join(name for name in named if name not in (SELECTS_JAX, *OURS))
                reason = f"the import of {modules} took longer than {limit:g} s; see preload="
            self.close()
            raise RunnerBroken(reason)
        self.ready = first

    def _give_up(self) -> None:
        self.process.kill()
        # A process that an import has forked may have the other end of the socket, too.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def run(self, task: Task, tell: Tell) -> Ended | Failure:
        """Run a trial; return a failure if the zygote died or was stopped.

        In that case the zygote and the trial's process group are ended.
        """
        group = 0
        self._logged = os.fstat(self._log.fileno()).st_size
        try:
            with self._writing:
                self._stoppable = task.attempt
                self._endable = task.attempt
                write_frame(self._socket.fileno(), encode(task))
        except OSError:
            return self._died()
        try:
            while True:
                match self._hear():
                    case Started(pid=group):
                        pass
                    case Alive():
                        pass
                    case Reported(report=report):
                        tell(report)
                    case Ended() as ended:
                        return ended
                    case other:
                        self.process.kill(group)
                        return other if isinstance(other, Failure) else self._died()
        finally:
            with self._writing:
                self._stoppable = None
                self._endable = None

    def stop(self, attempt: Attempt, reason: str) -> None:
        """Send an attempt one stop request, if it runs.

        Only one: the zygote does not read while it writes reports, so too many requests would fill
        the pipe until both sides wait for each other.
        """
        with self._writing, contextlib.suppress(OSError):  # the zygote has died
            if self._stoppable == attempt:
                self._stoppable = None
                write_frame(self._socket.fileno(), encode(StopTrial(reason)))

    def end(self, attempt: Attempt, reason: str) -> None:
        """Send an attempt's process one request to end, if it runs; for why one, see `stop`."""
        with self._writing, contextlib.suppress(OSError):  # the zygote has died
            if self._endable == attempt:
                self._endable = None
                write_frame(self._socket.fileno(), encode(EndTrial(reason)))

    def abandon(self) -> None:
        """Let `run` end the trial and return a failure. From any thread."""
        with contextlib.suppress(OSError):  # closed, or the zygote has died
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the zygote, with the trial that it may be running."""
        self._socket.close()
        os.close(self._lifeline)
        self.process.end()
        self._log.close()

    def _died(self) -> Failure:
        """Return the failure of a trial whose zygote has ended; its error, if it printed one."""
        size = os.fstat(self._log.fileno()).st_size
        self._log.seek(max(self._logged, size - _TAIL))  # earlier errors ended no zygote
        text = self._log.read().decode("utf-8", "replace").strip()
        if "Traceback (most recent call last)" not in text:
            return _DIED
        last = text.rpartition("\n")[2]
        return Failure(
            kind="machine", message=f"the process that supervises the trial failed: {last}"
        )

    def _close_files(self) -> None:
        self._socket.close()
        os.close(self._lifeline)
        self._log.close()

    def _hear(self) -> FromZygote | Failure | None:
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
            if failure := failure_of_silence(status_of(self.process.pid)):
                return failure

    def _receive(self) -> FromZygote | None:
        """Wait for the next message and return it; None if the process ends without one.

        A process that an import has forked has the other end of the socket, too, and may live on.
        """
        poll, own = select.poll(), self._socket.fileno()
        poll.register(own, select.POLLIN)
        with contextlib.ExitStack() as opened:
            # An old kernel has none, nor has a Python that was built on one; or it has just ended.
            with contextlib.suppress(OSError, AttributeError):
                ended = os.pidfd_open(self.process.pid)
                opened.callback(os.close, ended)
                poll.register(ended, select.POLLIN)
            while (message := self._reader.take()) is None:
                if own not in (found for found, _ in poll.poll()) or not self._reader.fill():
                    return None
            return _read(message)


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
        kind="machine",
        message="the process that supervises the trial was silent for "
        f"{time_limits.ZYGOTE_SILENCE:g} s",
    )


def status_of(pid: int) -> str:
    """Return a process' status by psutil's names."""
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_DEAD)


def _read(message: bytes) -> FromZygote:
    # Of any length: an outcome alone may be as long as a message.
    heard: FromZygote = decode(message, FromZygote, largest=None)  # type: ignore[arg-type]
    return heard
