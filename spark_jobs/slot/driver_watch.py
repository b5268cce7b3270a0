"""How a slot finds out that a driver which does not answer is gone, and leaves.

A slot asks again for ten minutes, since a network comes back. Where the driver was killed, however,
each slot would keep its place on the cluster for as long, from the resumed search too. So a slot
without an answer looks at the marks of the run's drivers, where it sees the run's folder.
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


class Verdict(NamedTuple):
    """That a driver is gone.

    Attributes:
        reason: How that is known.
        certain: Is it, so that nobody will miss the slot?
    """

    reason: str
    certain: bool


class Abandoned(ExperimentError):
    """A trial was ended since its search has no driver any more."""


class DriverWatch:
    """Looks at the marks of a run from the first message without an answer on, to the next answer.

    Args:
        mark: That of the slot's driver; None where it has none.
        hadoop: Where HDFS is.
        leave: Called once, from another thread, when the driver is gone.
        beat: Seconds between two looks, and between two signs of life of a driver.
        silence: Seconds without one after which a driver is taken for dead.

    Attributes:
        verdict: That the driver is gone; None while it may be there.
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
        self._answered: threading.Event | None = None  # of the thread that looks

    def heard(self, answered: bool) -> None:
        """Take in whether a message was answered. From any thread."""
        with self._lock:
            if answered:
                self._end()
            elif self._mark is not None and self._answered is None and self.verdict is None:
                self._answered = threading.Event()
                arguments = (self._mark, self._answered)
                threading.Thread(
                    target=self._look_on, args=arguments, name="experiment-watch", daemon=True
                ).start()

    def close(self) -> None:
        """Look no more."""
        with self._lock:
            self._end()

    @contextlib.contextmanager
    def leaving_by(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end`, too, when the driver is gone, as long as the block lasts."""
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
        # Where the folder is not seen, nothing is known of the driver.
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
        """Look once; return that the driver is gone, or None where nobody can say so.

        Raises:
            OSError: The marks cannot be read, or nobody can write there now, the driver neither.
        """
        last = newest_mark(self._files, self._mark.parent)
        if last is None or number_of(last.location) < number_of(self._mark):
            return None
        if last.location.name != self._mark.name:
            return Verdict("another driver runs the run", certain=True)
        mark = read_mark(self._files, last)
        if mark is not None and mark.released:
            return Verdict("the driver has handed the run back", certain=True)
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
