"""A trial's process, as the zygote sees it."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from spark_jobs import time_limits
from spark_jobs.messages import ProtocolError, Report, decode, encode
from spark_jobs.trial.pipe.frames import FrameReader, frame
from spark_jobs.trial.pipe.link import HEARD, LARGEST_REPORT, OUTCOME, REPORT, StopTrial
from spark_jobs.zygote.bounded_log import BoundedLog

_GAPS = 3  # and as many times as long as it ever was between two reports


@dataclass(slots=True, kw_only=True)
class Child:
    """A trial's process, seen from the zygote: its messages, its output, its time limits.

    Attributes:
        pid: The number of the process, and of its process group.
        pidfd: A descriptor that can be read once the process has ended.
        results: The pipe from which its messages are read.
        commands: The pipe to which requests to it are written.
        reader: The reader of `results`.
        logs: The logs of its output, by the pipes from which it is read.
        started: Monotonic time of the fork, in seconds.
        outcome: The outcome that it wrote, as JSON; empty without one.
        stopped: The reason of its stop request; '' without one.
        stopped_at: Monotonic time of that request.
        end_request: The reason of its request to end; '' without one.
        heard: Whether it has reacted to the stop request.
        reported: Monotonic time of its last report; 0 before the first.
        longest_gap: Most seconds between two reports.
    """

    pid: int
    pidfd: int
    results: int
    commands: int
    reader: FrameReader
    logs: dict[int, BoundedLog]
    started: float
    outcome: bytes = b""
    stopped: str = ""
    stopped_at: float = 0.0
    end_request: str = ""
    heard: bool = False
    reported: float = 0.0
    longest_gap: float = 0.0

    def read(self, tell: Callable[[Report], None]) -> bool:
        """Read the child's messages once; return whether more may come."""
        try:
            more = self.reader.fill()
        except BlockingIOError:
            return True
        for message in self.reader.take_all():
            self._take(message, tell)
        return more

    def _take(self, message: bytes, tell: Callable[[Report], None]) -> None:
        kind, rest = message[:1], message[1:]
        if kind == OUTCOME:
            self.outcome = rest
        elif kind == HEARD:
            self.heard = True
        elif kind == REPORT and len(message) <= LARGEST_REPORT:
            now = time.monotonic()
            self.longest_gap = max(self.longest_gap, now - (self.reported or self.started))
            self.reported = now
            with contextlib.suppress(ProtocolError):  # user code may write to any descriptor
                tell(decode(rest, Report))

    def read_log(self, descriptor: int) -> bool:
        """Read the child's output once; return whether more may come."""
        try:
            return self.logs[descriptor].read(descriptor)
        except BlockingIOError:
            return True

    def close(self) -> None:
        """Read the rest of its output, and close everything."""
        for descriptor, log in self.logs.items():
            with contextlib.suppress(BlockingIOError):  # an escaped process still has it open
                while log.read(descriptor):
                    pass
            log.close()
        for descriptor in (self.results, self.commands, self.pidfd, *self.logs):
            os.close(descriptor)

    def deadline(self, timeout: float | None) -> float:
        """Return when to end it: at its time limit, or if it does not react to a stop request."""
        if self.end_request:
            return 0.0
        limit = math.inf if timeout is None else self.started + timeout
        if self.stopped and not self.heard:
            patience = max(time_limits.STOP_HEARD, _GAPS * self.longest_gap)
            return min(limit, self.stopped_at + patience)
        return limit

    def stop(self, reason: str) -> None:
        """Send the child a stop request."""
        self.stopped = reason
        self.stopped_at = time.monotonic()
        with contextlib.suppress(OSError):  # it has ended, or reads nothing
            os.write(self.commands, frame(encode(StopTrial(reason))))

    def signal(self, number: int) -> None:
        """Send a signal to all processes of its group."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:  # it has not called setsid yet
            os.kill(self.pid, number)
