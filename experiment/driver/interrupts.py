"""Ctrl-C and SIGTERM during the call of a search."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Self

from experiment.driver.control import Control

INTERRUPTED = "interrupted"
"""The reason of a search that Ctrl-C has ended."""

_SEND_AGAIN_EVERY = 0.05  # seconds
_AGAIN, _END = b"a", b"e"
_IMPATIENT = 3  # times that Ctrl-C is pressed to leave a call into the JVM


class Interrupts:
    """Lets Ctrl-C end only this search; PySpark's own handler cancels every job of the driver.

    The first Ctrl-C interrupts the caller; later ones are only noted, so that the search ends
    properly. During a call into Spark's JVM none is raised: py4j would print it, take it for an
    error of the network, or lose it, since it frees Java objects in callbacks of weak references,
    whose exceptions Python ignores. A thread sends the signal again until the call has ended. The
    third Ctrl-C is raised there, too: the JVM may not answer.

    SIGTERM cancels the search once there are results to keep, and is raised again when they have
    been written. A context manager. It has no effect outside the main thread, to which Python
    delivers signals.

    Args:
        control: The search's control.

    Attributes:
        control: The search's control.
        noted: Whether there was a Ctrl-C beside the one that ended the search.
        terminated: Whether there was a SIGTERM.
    """

    def __init__(self, control: Control) -> None:
        self.control = control
        self.noted = False
        self.terminated = False
        self._pressed = 0
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
        if self._active:
            # Closing the pipe would not end the thread while a forked child holds it open.
            os.write(self._pipe[1], _END)
            self._sender.join()  # before its signals would reach the previous handler
        try:
            for number in reversed(self._before):  # SIGINT last: its previous handler may raise
                before = self._before[number]
                # None: a handler that was not installed from Python cannot be restored
                signal.signal(number, signal.SIG_DFL if before is None else before)
        finally:
            if self._active:  # not before: our handler writes to the pipe
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

    def defer(self) -> None:
        """Let a Ctrl-C only cancel the search from now on, which has not started yet."""
        self._deferred = True

    def allow(self) -> None:
        """Let a Ctrl-C interrupt the caller again."""
        self._deferred = False

    def hold(self) -> None:
        """Raise no Ctrl-C from now on, while the results of the search are written."""
        self._held = True

    def _handle(self, number: int, handler: Any) -> None:
        self._before[number] = signal.getsignal(number)
        signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        sent_again, self._sent_again = self._sent_again, False
        if not sent_again:
            self._press()
        if not self._due:
            return
        if self._held or self._deferred:
            self._due = False
        elif _must_wait(frame, self._pressed):
            os.write(self._pipe[1], _AGAIN)
        else:
            self._due = False
            raise KeyboardInterrupt

    def _press(self) -> None:
        """Count a Ctrl-C; the first one cancels the search and is due to be raised."""
        self._pressed += 1
        if self._pressed > 1 or self._held:
            self.noted = True
        else:
            self.control.cancel(INTERRUPTED)
            self._due = True

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


def _must_wait(frame: FrameType | None, pressed: int) -> bool:
    """Return whether a Ctrl-C must not be raised in a frame: below py4j, or in this module.

    Here it would leave a handler installed.

    Args:
        frame: The frame that it has interrupted.
        pressed: How often it was pressed.
    """
    patient = pressed < _IMPATIENT
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module == __name__ or (patient and module.partition(".")[0] == "py4j"):
            return True
        frame = frame.f_back
    return False
