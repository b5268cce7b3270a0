"""The calls of an executor as the trials of a search."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from search.trial import Outcome, Trial


@dataclass(eq=False, slots=True)
class Call:
    """A submitted call.

    Attributes:
        function: The function's name.
        future: The future of its result.
        params: The parameters of its trial; None until the files that it needs are written.
    """

    function: str
    future: Future[Any] = field(default_factory=Future)
    params: dict[str, Any] | None = None


class CallQueue:
    """The calls of an executor as a `Searcher`: its trials, in the order of submission.

    Thread-safe.

    Args:
        broken: Creates the error to raise after the executor has failed, from the reason.
    """

    def __init__(self, broken: Callable[[str], Exception]) -> None:
        self._broken = broken
        self._lock = threading.Lock()
        self._waiting: deque[Call] = deque()
        self._running: dict[int, Future[Any]] = {}
        self._asked = 0
        self._closed = False
        self._problem = ""

    @property
    def total(self) -> int:
        """Number of calls submitted so far, without cancelled ones."""
        return self._asked + len(self._waiting)

    @property
    def finished(self) -> bool:
        """Whether no more calls are accepted and none waits."""
        with self._lock:
            return self._closed and all(call.future.cancelled() for call in self._waiting)

    def ask(self) -> Trial | None:
        """Return the next call as a trial; None while its files are not written."""
        with self._lock:
            while self._waiting:
                call = self._waiting[0]
                if call.params is None and not call.future.cancelled():
                    return None
                self._waiting.popleft()
                if call.future.set_running_or_notify_cancel():
                    trial = Trial(self._asked, {"function": call.function, **(call.params or {})})
                    self._asked += 1
                    self._running[trial.id] = call.future
                    return trial
            return None

    def tell(self, outcome: Outcome) -> None:
        """Do nothing: the future is set once the attempt's folder is known."""

    def add(self, call: Call) -> None:
        """Add a call, to run once it has its parameters; raise if no more are accepted."""
        with self._lock:
            if self._problem:
                raise self._broken(self._problem)
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append(call)

    def let_run(self, call: Call, params: dict[str, Any]) -> None:
        """Set the parameters of a call's trial, so that it can run."""
        with self._lock:
            call.params = params

    def fail(self, call: Call, error: Exception) -> None:
        """Remove a call that cannot run, and set its future's error."""
        with self._lock:
            if call not in self._waiting:  # cancelled
                return
            self._waiting.remove(call)
        if call.future.set_running_or_notify_cancel():
            call.future.set_exception(error)

    def pop(self, trial: int) -> Future[Any]:
        """Remove and return the future of a call that has ended, for the caller to set."""
        with self._lock:
            return self._running.pop(trial)

    def close(self, problem: str = "", *, cancel: bool = False) -> None:
        """Accept no more calls.

        Args:
            problem: Why the remaining calls will not run.
            cancel: Whether to cancel the calls that wait.
        """
        with self._lock:
            self._closed = True
            self._problem = self._problem or problem
            waiting = list(self._waiting) if cancel else []
        for call in waiting:
            call.future.cancel()

    def fail_rest(self) -> None:
        """Set an error in the futures of all calls that have not ended."""
        with self._lock:
            left = list(self._running.values())
            left += [c.future for c in self._waiting if c.future.set_running_or_notify_cancel()]
            self._running.clear()
            self._waiting.clear()
        for future in left:
            future.set_exception(self._broken(self._problem or "the executor has ended"))
