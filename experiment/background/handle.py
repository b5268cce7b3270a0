"""Searches in the background."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import Any, Literal

from experiment.driver.control import Control, controlled_by
from experiment.results.result import Result, Results
from experiment.results.trial_result import TrialResult
from experiment.results.warned import started_at, users_line
from search.errors import InvalidArgument, shown

State = Literal["running", "finished", "cancelled", "failed"]


class Handle:
    """A search that runs in the background, like a `concurrent.futures.Future`.

    Its trials end with this process.
    """

    def __init__(self, search: Callable[[], Result | Results]) -> None:
        self._control = Control()
        self._future: Future[Result | Results] = Future()
        line = users_line()

        def run() -> None:
            try:
                with controlled_by(self._control), started_at(line):
                    result = search()
            except BaseException as error:
                self._future.set_exception(error)
            else:
                self._future.set_result(result)

        _keep_ctrl_c_from(self)
        Thread(target=run, name="experiment-search", daemon=True).start()

    def result(self, timeout: float | None = None) -> Result | Results:
        """Wait for the end of the search and return what the call returns, or raise its error.

        Args:
            timeout: Seconds; None waits as long as it takes.

        Raises:
            TimeoutError: It goes on.
        """
        try:
            return self._future.result(timeout)
        except TimeoutError:
            if self._future.done():  # the search's own
                raise
            raise TimeoutError(f"the search goes on after {timeout:g} s: {self!r}") from None

    def status(self) -> State:
        """Return 'running', 'finished', 'cancelled' (it ended early as asked) or 'failed'."""
        if not self._future.done():
            return "running"
        if self._future.exception() is not None:
            return "failed"
        return "finished" if self._future.result().problem is None else "cancelled"

    def trials(self) -> list[TrialResult]:
        """Return the trials that have come to an end so far."""
        if self._control.status is None:
            return []
        status = self._control.status()
        return list(status.results[: status.ended])

    def cancel(self) -> None:
        """End the search; `result` then returns what there is. Does not wait."""
        self._control.cancel("cancelled")

    def __repr__(self) -> str:
        return f"<experiment.Handle: {self.status()}, {len(self.trials())} trials ended>"


class _CtrlC:
    """Handles SIGINT while there are searches in the background.

    PySpark's own handler cancels every job of the driver, theirs too, and they would start again.
    A Ctrl-C ends what the main thread does, such as waiting for a result; `Handle.cancel` ends a
    search.
    """

    def __init__(self, before: Any) -> None:
        self._before = before
        self.handles: list[Handle] = []

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        self.handles = [handle for handle in self.handles if handle.status() == "running"]
        if self.handles or not callable(self._before):
            raise KeyboardInterrupt
        return self._before(number, frame)


def _keep_ctrl_c_from(handle: Handle) -> None:
    if current_thread() is not main_thread():  # only there signals are handled
        return
    handler = signal.getsignal(signal.SIGINT)
    if not isinstance(handler, _CtrlC):
        handler = _CtrlC(handler)
        signal.signal(signal.SIGINT, handler)
    handler.handles.append(handle)


def submit(search: Callable[..., Result | Results], *args: Any, **kwargs: Any) -> Handle:
    """Start a search in the background and return at once.

    Ctrl-C ends only what waits for it. The search ends with this process, without a summary.

    Args:
        search: `experiment.launch` or another call of a search.
        *args: Its arguments.
        **kwargs: Its keyword arguments.

    Raises:
        InvalidArgument: `search` cannot be called.
    """
    if not callable(search):
        raise InvalidArgument("search", "a function such as experiment.launch", shown(search))
    return Handle(lambda: search(*args, **kwargs))
