"""Searches in the background."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, Literal

from experiment.control import Control, controlled_by
from experiment.result import Result, TrialResult
from search.errors import InvalidArgument, shown

State = Literal["running", "finished", "cancelled", "failed"]


class Handle:
    """A search that runs in the background, like a `concurrent.futures.Future`.

    Its trials end with this process.
    """

    def __init__(self, search: Callable[[], Result]) -> None:
        self._control = Control()
        self._future: Future[Result] = Future()

        def run() -> None:
            try:
                with controlled_by(self._control):
                    result = search()
            except BaseException as error:
                self._future.set_exception(error)
            else:
                self._future.set_result(result)

        Thread(target=run, name="experiment-search", daemon=True).start()

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the end of the search and return what the call returns, or raise its error.

        Args:
            timeout: Seconds; None waits as long as it takes.

        Raises:
            TimeoutError: It goes on.
        """
        return self._future.result(timeout)

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


def submit(search: Callable[..., Result], *args: Any, **kwargs: Any) -> Handle:
    """Start a search in the background and return at once.

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
