"""Ctrl-C while a search runs."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self


class Interrupts:
    """Lets Ctrl-C end this search only; PySpark's own handler cancels every job of the driver.

    A context manager. In another thread than the main one it does nothing: Python delivers signals
    to the main thread only.

    Attributes:
        noted: Did one come after `hold`?
    """

    def __init__(self) -> None:
        self.noted = False
        self._before: Any = None
        self._active = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        if self._active:
            self._before = signal.signal(signal.SIGINT, signal.default_int_handler)
        return self

    def __exit__(self, *error: object) -> None:
        if self._active:
            signal.signal(signal.SIGINT, self._before)

    def hold(self) -> None:
        """From now on only note them: what a search leaves behind is being written."""
        if self._active:
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.noted = True
