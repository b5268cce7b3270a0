"""Detects that a silent driver is gone, so that its slots end.

A slot repeats its messages for ten minutes, since a network may recover. If the driver was killed,
however, its slots would occupy the cluster for as long, which the resumed search needs. So a slot
without an answer reads the marks of the run's drivers, if it can access the run's folder.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from search.errors import ExperimentError, InvalidArgument
from spark_jobs import time_limits
from spark_jobs.run_folder.marks import Silence, newest_mark, number_of, read_mark
from spark_jobs.storage.files import FileStatus, WritableFiles, beside
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at
from spark_jobs.threads import start_thread


class Verdict(NamedTuple):
    """The verdict that a driver is gone.

    Attributes:
        reason: The evidence.
        certain: Whether it is certain, so that no driver will miss the slot.
    """

    reason: str
    certain: bool


class Abandoned(ExperimentError):
    """A trial was ended because its search has no active driver."""


class DriverWatch:
    """Watches the marks of a run from the first message without an answer until the next answer.

    Args:
        mark: The mark of the slot's driver; None without one.
        hadoop: The Hadoop settings.
        leave: Called once, from another thread, when the driver is gone.
        beat: Seconds between two readings, and between two signs of life of a driver.
        silence: Seconds without a sign of life after which a driver is presumed dead.

    Attributes:
        verdict: The verdict that the driver is gone; None while it may run.
    """

    def __init__(
        self,
        mark: Location | None,
        hadoop: HadoopSettings,
        leave: Callable[[], None],
        *,
        beat: float = time_limits.DRIVER_BEAT,
        silence: float = time_limits.DRIVER_SILENCE,
    ) -> None:
        self.verdict: Verdict | None = None
        self._mark = mark
        self._hadoop = hadoop
        self._beat = beat
        self._silence = silence
        self._leaving = [leave]
        self._lock = threading.Lock()
        self._answered: threading.Event | None = None  # set to end the watching thread

    def heard(self, answered: bool) -> None:
        """Take in whether a message was answered. From any thread."""
        with self._lock:
            if answered:
                self._end()
            elif self._mark is not None and self._answered is None and self.verdict is None:
                ended = threading.Event()
                watching = threading.Thread(
                    target=self._look_on,
                    args=(self._mark, ended),
                    name="experiment-watch",
                    daemon=True,
                )
                with contextlib.suppress(BlockingIOError):  # the next message tries again
                    start_thread(watching)
                    self._answered = ended

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            self._end()

    @contextlib.contextmanager
    def leaving_by(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` as well if the driver is found to be gone during the block."""
        with self._lock:
            gone = self.verdict is not None
            self._leaving.append(end)
        try:
            if gone:
                end()
            yield
        finally:
            with self._lock:
                self._leaving.remove(end)

    def _end(self) -> None:
        if self._answered is not None:
            self._answered.set()
            self._answered = None

    def _look_on(self, mark: Location, answered: threading.Event) -> None:
        part = beside(mark)
        # Without access to the folder, nothing is known about the driver.
        with (
            contextlib.suppress(OSError, InvalidArgument),
            contextlib.closing(writable_files_at(mark, self._hadoop)) as files,
        ):
            look = _Look(files, mark, part, Silence(self._silence, 2 * self._beat, 0.0))
            try:
                while not answered.is_set():
                    with contextlib.suppress(OSError):
                        verdict = look.verdict()
                        if verdict is not None:
                            self._leave(verdict, answered)
                    answered.wait(self._beat)
            finally:
                files.remove(part)

    def _leave(self, verdict: Verdict, answered: threading.Event) -> None:
        with self._lock:
            if answered.is_set():
                return
            self.verdict = verdict
            self._end()
            leaving = list(self._leaving)
        for end in leaving:
            end()


class _Look:
    def __init__(
        self, files: WritableFiles, mark: Location, part: Location, silence: Silence
    ) -> None:
        self._files = files
        self._mark = mark
        self._part = part
        self._silence = silence
        self._last: FileStatus | None = None

    def verdict(self) -> Verdict | None:
        """Read the marks once; return the verdict that the driver is gone, or None.

        Raises:
            OSError: The marks cannot be read, or the folder cannot be written to, not even by the
                driver.
        """
        last = newest_mark(self._files, self._mark.parent)
        if last is None or number_of(last.location) < number_of(self._mark):
            return None
        if last.location.name != self._mark.name:
            return Verdict("the run has another driver", certain=True)
        mark = read_mark(self._files, last)
        if mark is not None and mark.released:
            return Verdict("the driver has released the run", certain=True)
        if mark is not None and mark.runs() is False:
            return Verdict("the driver's process has ended", certain=True)
        self._show_that_it_can_be_written()
        if last != self._last:
            self._last = last
            self._silence.restart(time.monotonic())
        elif self._silence.is_over(time.monotonic()):
            return Verdict("the driver has given no sign of life", certain=False)
        return None

    def _show_that_it_can_be_written(self) -> None:
        try:
            self._files.touch(self._part)
        except FileNotFoundError:
            self._files.write(self._part, b"1")
