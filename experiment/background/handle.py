"""Searches in the background."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from concurrent.futures import Future
from threading import TIMEOUT_MAX, Thread, current_thread, main_thread
from types import FrameType
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from experiment.driver.control import Control, controlled_by
from experiment.results.result import Result, Results
from experiment.results.text import count
from experiment.results.trial_result import TrialResult
from experiment.results.warned import started_at, users_line
from search.checks import check_number, plain
from search.errors import InvalidArgument, shown

P = ParamSpec("P")
R = TypeVar("R", bound=Result | Results | TrialResult)

State = Literal["running", "finished", "cancelled", "failed"]


class Handle(Generic[R]):
    """A search in the background, similar to a `concurrent.futures.Future`.

    The search and its trials end with this process.
    """

    def __init__(self, search: Callable[[], R]) -> None:
        self._control = Control()
        self._future: Future[R] = Future()
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

    def result(self, timeout: float | None = None) -> R:
        """Wait for the end of the search; return its result or raise its error.

        Args:
            timeout: Maximum seconds to wait; None for no limit.

        Raises:
            TimeoutError: The search still runs.
            InvalidArgument: `timeout` is not a number of seconds.
        """
        timeout = plain(timeout)
        if timeout is not None:
            check_number("timeout", timeout, "seconds, or None", _is_no_nan)
        try:
            return self._future.result(None if timeout is None else min(timeout, TIMEOUT_MAX))
        except TimeoutError:
            if self._future.done():  # an error of the search itself
                raise
            raise TimeoutError(f"the search still runs after {timeout:g} s: {self!r}") from None

    def status(self) -> State:
        """Return 'running', 'finished', 'cancelled' or 'failed'.

        'cancelled' is a search that ended early without an error: on request, or at its deadline.
        """
        if not self._future.done():
            return "running"
        if self._future.exception() is not None:
            return "failed"
        result = self._future.result()
        if isinstance(result, TrialResult):
            return "cancelled" if result.status == "cancelled" else "finished"
        # Other calls, such as `plan_training`, return neither.
        ended_early = isinstance(result, Result | Results) and result.problem is not None
        return "cancelled" if ended_early else "finished"

    def trials(self) -> list[TrialResult]:
        """Return the trials that have ended so far."""
        if self._control.status is None:
            return []
        status = self._control.status()
        return list(status.results[: status.ended])

    def cancel(self) -> None:
        """Ask the search to end, without waiting; `result` then returns the trials so far."""
        self._control.cancel("cancelled")

    def __repr__(self) -> str:
        return f"<experiment.Handle: {self.status()}, {count(len(self.trials()), 'trial')} ended>"


def _is_no_nan(number: float) -> bool:
    return isinstance(number, int) or not math.isnan(number)  # isnan fails for huge integers


class _CtrlC:
    """Handles SIGINT while searches run in the background.

    PySpark's own handler cancels every job of the driver, including those of the searches, which
    would start again. Ctrl-C interrupts only the main thread, such as waiting for a result;
    `Handle.cancel` ends a search.
    """

    def __init__(self, before: Any) -> None:
        self._before = before
        self.handles: list[Handle[Any]] = []

    def running(self) -> list[Handle[Any]]:
        """Return the handles of searches that have not ended."""
        return [handle for handle in self.handles if handle.status() == "running"]

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        self.handles = self.running()
        if self.handles or not callable(self._before):
            raise KeyboardInterrupt
        return self._before(number, frame)


def _keep_ctrl_c_from(handle: Handle[Any]) -> None:
    if current_thread() is not main_thread():  # signals are handled in the main thread only
        return
    handler = signal.getsignal(signal.SIGINT)
    if not isinstance(handler, _CtrlC):
        handler = _CtrlC(handler)
        signal.signal(signal.SIGINT, handler)
    # Without those that have ended: their results may be large.
    handler.handles = [*handler.running(), handle]


def submit(search: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
    """Start a search in the background and return its handle at once.

    Ctrl-C does not end the search, only waiting for it. The search ends with this process, without
    a summary. It reads its arguments, and the global variables that the train function uses, in the
    background: a change after this call may change the trials.

    Args:
        search: `experiment.launch` or another search.
        *args: Arguments of the search.
        **kwargs: Keyword arguments of the search.

    Raises:
        InvalidArgument: `search` is not callable.
    """
    if not callable(search):
        raise InvalidArgument("search", "a function such as experiment.launch", shown(search))
    return Handle(lambda: search(*args, **kwargs))
