"""The link between a running trial and its supervisor, where neither waits for the other.

`Link` is the interface, with two implementations: a pipe each way for a trial in a process of its
own, plain calls for one in the slot's process. Its contract is in
tests/spark_jobs/trial/pipe/test_link.py.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from spark_jobs.messages import Report, decode, encode
from spark_jobs.trial.pipe.frames import FrameReader, frame

_MOST_WAITING = 1_000

LARGEST_REPORT = 4_000
"""Maximum bytes of a report: a pipe takes it whole or not at all, and 100 fit into a message."""

REPORT, HEARD, OUTCOME = b"R", b"H", b"O"
"""The first byte of a message from a trial's process, which gives its type."""


class StopTrial(msgspec.Struct, frozen=True, tag="stop"):
    """A request to stop the trial.

    Attributes:
        reason: The reason, for people.
    """

    reason: str


class EndTrial(msgspec.Struct, frozen=True, tag="end"):
    """A request to end the trial's process, since its gang has broken or is done.

    Attributes:
        reason: The reason, for people.
    """

    reason: str


def parts_of(report: Report) -> list[Report]:
    """Return reports of the same step that have the metrics of a report, each small enough to send.

    A single metric whose name makes it too large remains so.
    """
    items = list(report.metrics.items())
    if len(items) < 2 or len(encode(report)) < LARGEST_REPORT:
        return [report]
    middle = len(items) // 2
    halves = (items[:middle], items[middle:])
    return [part for half in halves for part in parts_of(Report(report.step, dict(half)))]


class Link(Protocol):
    """A trial's side."""

    def send(self, report: Report) -> None:
        """Send a report, now or later; when too many wait, the oldest is dropped.

        A report that is too large is dropped, see `parts_of`; the trial's event file has it all the
        same.
        """

    def stop(self) -> str:
        """Return why the trial is to stop, or ''."""


class PipeLink:
    """The link of a trial in a process of its own, for its threads and its signal handlers.

    A handler interrupts any call, also one of its own thread that holds the lock. It then changes
    nothing that this call uses, but leaves its message for it to send.

    Args:
        results: Pipe to the supervisor.
        commands: Pipe from the supervisor.
    """

    def __init__(self, results: int, commands: int) -> None:
        self._results = results
        self._commands = FrameReader(commands)
        self._lock = threading.RLock()
        self._busy = False  # whether a call of the thread that holds the lock uses the pipes
        self._waiting: deque[bytes] = deque(maxlen=_MOST_WAITING)
        self._rest = memoryview(b"")  # the rest of a partly written message
        self._reason = ""
        os.set_blocking(results, False)
        os.set_blocking(commands, False)

    def send(self, report: Report) -> None:
        """Write a report to the pipe, without waiting."""
        message = REPORT + encode(report)
        if len(message) > LARGEST_REPORT:
            return
        self._waiting.append(frame(message))
        self._flush()

    def stop(self) -> str:
        """Return the reason in the supervisor's stop request, or ''."""
        with self._lock:
            if not self._busy:
                self._busy = True
                try:
                    self._read()
                except BlockingIOError:  # nothing to read
                    pass
                finally:
                    self._busy = False
        self._flush()
        return self._reason

    def close(self, outcome: bytes) -> None:
        """Send the waiting reports and the outcome, as JSON; blocks until all are written."""
        os.set_blocking(self._results, True)
        self._waiting.append(frame(OUTCOME + outcome))
        self._flush()

    def _read(self) -> None:
        while not self._reason and self._commands.fill():
            for message in self._commands.take_all():
                self._reason = decode(message, StopTrial).reason
                self._waiting.append(frame(HEARD))

    def _flush(self) -> None:
        with self._lock:
            while self._waiting and not self._busy:
                self._busy = True
                try:
                    self._write()
                except (BlockingIOError, BrokenPipeError):  # a busy supervisor, or none
                    return
                finally:
                    self._busy = False

    def _write(self) -> None:
        while self._rest or self._waiting:
            if not self._rest:
                self._rest = memoryview(self._waiting.popleft())
            self._rest = self._rest[os.write(self._results, self._rest) :]


class DirectLink:
    """The link of a trial in the slot's own process.

    Args:
        tell: Called with each report.
    """

    def __init__(self, tell: Callable[[Report], None]) -> None:
        self._tell = tell
        self.reason = ""

    def send(self, report: Report) -> None:
        """Call `tell` with a report, unless it is too large."""
        if len(encode(report)) < LARGEST_REPORT:
            self._tell(report)

    def stop(self) -> str:
        """Return the reason to stop, or ''."""
        return self.reason


class NoLink:
    """The link of a trial without a supervisor."""

    def send(self, report: Report) -> None:
        """Drop the report."""

    def stop(self) -> str:
        """Return ''."""
        return ""
