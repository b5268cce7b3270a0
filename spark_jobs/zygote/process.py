"""The two ways to start a zygote's process: by the slot itself, or by a keeper."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import IO, Protocol

from spark_jobs import time_limits
from spark_jobs.warm.asking import Imports, Warm, ask
from spark_jobs.warm.processes import signal_pidfd
from spark_jobs.zygote import zygote
from spark_jobs.zygote.shared_import import zygote_environment


class ZygoteProcess(Protocol):
    """A zygote's process.

    Attributes:
        pid: Its process id.
    """

    pid: int

    @property
    def is_guarded(self) -> bool:
        """Whether someone would end the processes that it leaves when it is killed."""

    def kill(self, group: int = 0) -> None:
        """Kill it and the process group of its trial, unless they have ended.

        Args:
            group: The process group; 0 for none.
        """

    def end(self) -> None:
        """Wait for its end, after its lifeline was closed; kill it if it does not end."""

    def last_words(self) -> str:
        """Return how it ended, once it has closed its control socket."""


class OwnProcess:
    """A zygote that the slot starts, as its child. Only a slot that is a subreaper may use it.

    Args:
        control: The socket to the slot, of which the zygote gets a copy.
        lifeline: The pipe that shows whether the slot lives; a copy, too.
        log: The file for its output.
    """

    is_guarded = True

    def __init__(self, control: int, lifeline: int, log: IO[bytes]) -> None:
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, "-m", zygote.__name__, str(control), str(lifeline)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(control, lifeline),
            start_new_session=True,
            env=zygote_environment(),
        )
        self.pid = self._process.pid

    def kill(self, group: int = 0) -> None:
        """Send it and its trial SIGKILL, unless they have ended."""
        self._process.kill()
        _kill_group(group)  # which this slot, a subreaper, reaps later

    def end(self) -> None:
        """Wait for its end; kill it if it does not end."""
        self._process.send_signal(signal.SIGCONT)  # a trial may have stopped it
        try:
            self._process.wait(timeout=time_limits.ZYGOTE_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        """Return its exit code and the end of its log."""
        code = self._process.wait()
        self._log.seek(0)
        text = self._log.read()[-2_000:].decode("utf-8", "replace").strip()
        return f"the zygote ended with {code}: {text}"


class KeptProcess:
    """A zygote that the importer of a keeper forks, with its imports done.

    Args:
        warm: Where keepers are.
        imports: What it has imported.
        control: The socket to the slot, of which the zygote gets a copy.
        lifeline: The pipe that shows whether the slot lives; a copy, too.
        log: The file for its output.
        until: When to give up, by `time.monotonic`.

    Raises:
        Unavailable: There is no such zygote.
    """

    def __init__(
        self,
        warm: Warm,
        imports: Imports,
        control: int,
        lifeline: int,
        log: IO[bytes],
        *,
        until: float,
    ) -> None:
        forked = ask(warm, imports, (control, lifeline, log.fileno()), until)
        self.pid = forked.pid
        self._pidfd = forked.pidfd
        self._keeper = forked.connection

    @property
    def is_guarded(self) -> bool:
        """Whether its keeper lives and watches it."""
        return not _is_readable(self._keeper.fileno(), 0)

    def kill(self, group: int = 0) -> None:
        """Kill it, unless it has ended, and its trial if the keeper has died."""
        signal_pidfd(self._pidfd, signal.SIGKILL)
        if self._keeper_has_died():
            _kill_group(group)  # a living keeper does, after which others may get its number

    def end(self) -> None:
        """Wait until it has ended and its keeper has ended what it left; kill it if needed.

        This takes at most `time_limits.RUNNER_END` seconds.
        """
        until = time.monotonic() + time_limits.RUNNER_END
        with contextlib.suppress(OSError):  # the keeper is gone
            self._keeper.shutdown(socket.SHUT_WR)
        signal_pidfd(self._pidfd, signal.SIGCONT)  # a trial may have stopped it
        if not _is_readable(self._pidfd, time_limits.ZYGOTE_END):
            self.kill()
        _is_readable(self._keeper.fileno(), until - time.monotonic())
        self._keeper.close()
        os.close(self._pidfd)

    def last_words(self) -> str:
        """Return that it ended: its exit code is unknown here."""
        return f"the zygote ended, or was not ready within {time_limits.WARM_READY:g} s"

    def _keeper_has_died(self) -> bool:
        """Return whether the keeper has closed the connection without its last packet."""
        if self.is_guarded:
            return False
        try:
            return not self._keeper.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            return True


def _is_readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds * 1000)))


def _kill_group(group: int) -> None:
    """Kill a process group; 0 for none."""
    with contextlib.suppress(ProcessLookupError):
        if group:
            os.killpg(group, signal.SIGKILL)
