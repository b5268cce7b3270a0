"""Forwards a trial's reports and output to the driver, and stop requests to the trial."""

from __future__ import annotations

import codecs
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from spark_jobs import time_limits
from spark_jobs.channel.exchange import ChannelClosed, ChannelLost, ChannelRefused
from spark_jobs.messages import Attempt, Heard, Report
from spark_jobs.storage.local_files import open_regular
from spark_jobs.threads import start_thread

_MOST_WAITING = 10_000
_MOST_AT_ONCE = 100  # reports per message: so many of the largest size fit
_EVERY = 0.1  # seconds between two messages, so that reports share one
_PAUSE = 1.0  # seconds between two tries while the driver does not answer

_MOST_OUTPUT = 1 << 15  # maximum bytes of each log per message
_DECODER = codecs.getincrementaldecoder("utf-8")

Send = Callable[[Attempt, tuple[Report, ...], str], Heard]


class Tail:
    """Reads the new text of logs, as `tail -f` does.

    Args:
        paths: The logs.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._read = dict.fromkeys(paths, 0)
        self._decoders = {path: _DECODER("replace") for path in paths}  # each may split characters

    def read(self) -> str:
        """Return some of the new text; '' without any."""
        text = ""
        for path, start in self._read.items():
            with contextlib.suppress(OSError), open_regular(path) as file:
                file.seek(start)
                data = file.read(_MOST_OUTPUT)
                self._read[path] += len(data)
                text += self._decoders[path].decode(data)
        return text


class Reporter:
    """Sends reports from a thread of its own, so that no trial waits for the driver.

    A context manager. While the driver does not answer, reports wait, and the oldest are dropped
    when there are too many. A trial that has reported nothing for a while gets a heartbeat, an
    empty message: the driver notices lost slots by it, and the answer tells a slot that its trial
    was given up, or that its gang is broken.

    The driver of many slots answers that it wants few messages: then reports wait to share one, and
    those of which it wants only the last values are merged, and dropped when their trial has ended.

    Args:
        send: Sends reports of one attempt; returns the driver's answer. Raises ChannelLost if the
            driver does not answer; after a ChannelClosed nothing more is sent.
        stop: Called with an attempt to stop, and the reason.
        end: Called with an attempt whose process is to be ended, and the reason.
        heard: The driver's answer to a message that was sent just before.
        gang_beat: Seconds without a report until a heartbeat of a trial on several slots.
    """

    def __init__(
        self,
        send: Send,
        stop: Callable[[Attempt, str], None],
        end: Callable[[Attempt, str], None],
        heard: Heard | None = None,
        *,
        gang_beat: float = time_limits.GANG_BEAT,
    ) -> None:
        self._send = send
        self._stop = stop
        self._end = end
        self._gang_beat = gang_beat
        self._waiting: deque[tuple[Attempt, Report]] = deque(maxlen=_MOST_WAITING)
        self._followed: tuple[Attempt, Tail] | None = None
        self._unsent = ""  # output of the followed attempt that was not delivered
        self._running: Attempt | None = None
        self._heard = heard or Heard()  # the driver's last answer
        self._said = time.monotonic()  # when something was sent last
        self._changed = threading.Condition()
        self._sending = False
        self._urgent = False
        self._closing = False
        self._thread = threading.Thread(target=self._main, name="experiment-reports", daemon=True)

    def __enter__(self) -> Self:
        start_thread(self._thread)
        return self

    def __exit__(self, *error: object) -> None:
        """Drop waiting reports; does not wait for a message that is being sent."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def add(self, attempt: Attempt, report: Report) -> None:
        """Queue a report."""
        with self._changed:
            if self._heard.last_only and self._waiting and self._waiting[-1][0] == attempt:
                report = report.after(self._waiting.pop()[1])
            self._waiting.append((attempt, report))
            self._changed.notify_all()

    @contextlib.contextmanager
    def running(self, attempt: Attempt) -> Iterator[None]:
        """Send a heartbeat of an attempt now and then during the block."""
        with self._changed:
            self._running = attempt
            self._said = time.monotonic()
            if attempt.gang is not None:
                self._changed.notify_all()  # its first heartbeat is due sooner
        try:
            yield
        finally:
            with self._changed:
                self._running = None

    def follow(self, attempt: Attempt, logs: Sequence[Path]) -> None:
        """Send the text that is added to an attempt's logs, until the next `flush`."""
        with self._changed:
            self._followed = attempt, Tail(logs)
            self._unsent = ""
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until everything is sent, for at most this many seconds; return whether it is.

        Drops reports that the driver does not need after the end of their trial.
        """
        with self._changed:
            if self._heard.last_only:
                self._waiting.clear()
            if self._all_sent:  # without waking the thread, which costs more than a short trial
                return True
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closing or self._all_sent, seconds)
            sent = self._all_sent
            self._urgent = False
            self._followed = None
            return sent

    @property
    def _all_sent(self) -> bool:
        return not (self._waiting or self._sending or self._followed)

    def _main(self) -> None:
        self._rest(self._heard.pause)
        while (taken := self._take()) is not None:
            answered = self._pass_on(*taken) if taken else True
            with self._changed:
                self._sending = False
                self._changed.notify_all()
            if not answered:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, _PAUSE)
            else:  # the driver's pause is one between messages
                self._rest(max(_EVERY, self._heard.pause) if taken else _EVERY)

    def _rest(self, seconds: float) -> None:
        """Wait, unless something has to be sent at once."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._in_a_hurry, seconds)

    def _pass_on(self, attempt: Attempt, reports: tuple[Report, ...], output: str) -> bool:
        self._said = time.monotonic()
        try:
            self._heard = self._send(attempt, reports, output)
        except ChannelRefused:  # it would be refused again
            return False
        except ChannelLost as error:
            self._put_back(attempt, reports, output)
            if isinstance(error, ChannelClosed):
                self._closing = True
            return False
        if self._heard.end:
            self._end(attempt, self._heard.end)
        elif self._heard.stop:
            self._stop(attempt, self._heard.stop)
        return True

    def _until_beat(self, now: float) -> float:
        """Return the seconds until a trial may need a heartbeat."""
        silent_for = now - self._said if self._running else 0.0
        in_gang = self._running is not None and self._running.gang is not None
        beat = self._gang_beat if in_gang else time_limits.SLOT_BEAT
        return max(0.0, beat - silent_for)

    @property
    def _in_a_hurry(self) -> bool:
        return self._urgent or len(self._waiting) >= _MOST_AT_ONCE

    def _take(self) -> tuple[Attempt, tuple[Report, ...], str] | tuple[()] | None:
        """Wait for news of an attempt and return some; None when closed.

        The news are empty if there is no new output of the followed attempt.
        """
        with self._changed:
            while not (self._closing or self._waiting or self._followed):
                left = self._until_beat(time.monotonic())
                if not left:
                    break
                self._changed.wait(left)
            if self._closing:
                return None
            attempt = self._waiting[0][0] if self._waiting else None
            reports: list[Report] = []
            while self._waiting and self._waiting[0][0] == attempt and len(reports) < _MOST_AT_ONCE:
                reports.append(self._waiting.popleft()[1])
            output = ""
            if self._followed is not None and attempt in (None, self._followed[0]):
                attempt, output = self._followed[0], self._unsent or self._followed[1].read()
                self._unsent = ""
                if self._urgent and not output:  # nothing is left
                    self._followed = None
            self._sending = bool(reports or output)
            if attempt is None or not self._sending:
                silent = self._until_beat(time.monotonic()) == 0
                return (self._running, (), "") if self._running and silent else ()
            return attempt, tuple(reports), output

    def _put_back(self, attempt: Attempt, reports: tuple[Report, ...], output: str) -> None:
        with self._changed:
            if self._followed is not None and self._followed[0] == attempt:
                self._unsent = output
            room = _MOST_WAITING - len(self._waiting)
            kept = reports[max(0, len(reports) - room) :]
            self._waiting.extendleft((attempt, report) for report in reversed(kept))
