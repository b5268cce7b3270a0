"""Ctrl-C and SIGTERM during the call of a search."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

from experiment.driver.control import Control

_SEND_AGAIN_EVERY = 0.05  # seconds
_AGAIN, _END = b"a", b"e"


class Interrupts:
    """Lets Ctrl-C end only this search; PySpark's own handler cancels every job of the driver.

    The first Ctrl-C interrupts the caller; later ones are only noted, so that the search ends
    properly. During a call into Spark's JVM none is raised: py4j would print it, take it for an
    error of the network, or lose it, since it frees Java objects in callbacks of weak references,
    whose exceptions Python ignores. A thread sends the signal again until the call has ended.

    SIGTERM cancels the search once there are results to keep, and is raised again when they have
    been written. A context manager. It has no effect outside the main thread, to which Python
    delivers signals.

    Args:
        control: The search's control.

    Attributes:
        control: The search's control.
        noted: Whether there was a Ctrl-C that was not raised.
        terminated: Whether there was a SIGTERM.
    """

    def __init__(self, control: Control) -> None:
        self.control = control
        self.noted = False
        self.terminated = False
        self._interrupted = False
        self._deferred = False
        self._held = False
        self._due = False
        self._sent_again = False
        self._before: dict[int, Any] = {}
        self._active = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        if self._active:
            self._pipe = os.pipe()
            # Started here: a signal handler may have interrupted the lock that a start needs.
            self._sender = threading.Thread(
                target=self._send_again, name="experiment-interrupts", daemon=True
            )
            self._sender.start()
            self._handle(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            # None: a handler that was not installed from Python cannot be restored
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self._active:
            # Closing the pipe would not end the thread while a forked child holds it open.
            os.write(self._pipe[1], _END)
            self._sender.join()
            for end in self._pipe:
                os.close(end)
        if self.terminated:
            os.kill(os.getpid(), signal.SIGTERM)
        if self._due and not self._held and error[0] is None:
            raise KeyboardInterrupt

    def keep_results(self) -> None:
        """Let SIGTERM cancel the search from now on, so that its results are written."""
        if self._active:
            self._handle(signal.SIGTERM, self._terminate)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Let a Ctrl-C inside the block only cancel the search, which has not started yet."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def hold(self) -> None:
        """Raise no Ctrl-C from now on, while the results of the search are written."""
        self._held = True

    def _handle(self, number: int, handler: Any) -> None:
        self._before[number] = signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        sent_again, self._sent_again = self._sent_again, False
        if sent_again:
            if not self._due:
                return
        elif self._interrupted or self._held:
            self.noted = True
            return
        else:
            self._interrupted = True
            self.control.cancel("interrupted")
            self._due = not self._deferred
        if not self._due or self._held:
            self._due = False
        elif _is_called_by_py4j(frame):
            os.write(self._pipe[1], _AGAIN)
        else:
            self._due = False
            raise KeyboardInterrupt

    def _send_again(self) -> None:
        """Send each Ctrl-C again that came during a call into the JVM. Runs in a thread."""
        while os.read(self._pipe[0], 1) == _AGAIN:
            time.sleep(_SEND_AGAIN_EVERY)
            if self._due:
                self._sent_again = True
                os.kill(os.getpid(), signal.SIGINT)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True
        self.control.cancel("ended by SIGTERM")


def _is_called_by_py4j(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == "py4j":
            return True
        frame = frame.f_back
    return False
