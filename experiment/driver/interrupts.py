"""Ctrl-C and SIGTERM while a search runs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

from experiment.driver.control import Control


class Interrupts:
    """Lets Ctrl-C end this search only; PySpark's own handler cancels every job of the driver.

    The first Ctrl-C interrupts the caller; further ones are only noted, so that none keeps the
    search from being ended properly. In the middle of a call into Spark's JVM none is raised, since
    py4j would print it with its tracebacks: the search ends by its control then. SIGTERM cancels
    the search, and comes back when what there is of it has been kept. A context manager. In another
    thread than the main one it does nothing: Python delivers signals to the main thread only.

    Args:
        control: Of the search.

    Attributes:
        noted: Did a Ctrl-C come that was not raised?
        terminated: Did SIGTERM come?
    """

    def __init__(self, control: Control) -> None:
        self.noted = False
        self._deferred = False
        self._due = False
        self._control = control
        self.terminated = False
        self._before: dict[int, Any] = {}
        self._active = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        if self._active:
            handlers = {signal.SIGINT: self._interrupt, signal.SIGTERM: self._terminate}
            self._before = {
                number: signal.signal(number, handler) for number, handler in handlers.items()
            }
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            # None: a handler that was not installed from Python cannot be put back
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self.terminated:
            os.kill(os.getpid(), signal.SIGTERM)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Let a Ctrl-C inside the block only cancel the search, which has yet to begin."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def check(self) -> None:
        """Raise a Ctrl-C that came in the middle of a call into Spark's JVM."""
        if self._due:
            self._due = False
            raise KeyboardInterrupt

    def hold(self) -> None:
        """From now on only note them: what a search leaves behind is being written."""
        if self._active:
            signal.signal(signal.SIGINT, self._note)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.hold()
        self._control.cancel("interrupted")
        if not self._deferred:
            self._due = True
            if not _is_called_by_py4j(frame):
                self.check()

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True
        self._control.cancel("ended by SIGTERM")

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.noted = True


def _is_called_by_py4j(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == "py4j":
            return True
        frame = frame.f_back
    return False
