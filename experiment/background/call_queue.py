"""The calls of an executor as what a search runs: its trials."""

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
    """A call that somebody waits for.

    Attributes:
        function: What it is called.
        future: Of what it comes to.
        params: Of its trial; None as long as the files that it needs are not there.
    """

    function: str
    future: Future[Any] = field(default_factory=Future)
    params: dict[str, Any] | None = None


class CallQueue:
    """The calls of an executor as a `Searcher`: trials in the order in which they were submitted.

    From any thread.

    Args:
        broken: Makes what is raised where the executor has failed, of the reason.
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
        """How many were submitted so far and not cancelled."""
        return self._asked + len(self._waiting)

    @property
    def finished(self) -> bool:
        """See `Searcher`."""
        with self._lock:
            return self._closed and all(call.future.cancelled() for call in self._waiting)

    def ask(self) -> Trial | None:
        """See `Searcher`."""
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
        """See `Searcher`. The future hears of it once the attempt's folder is known."""

    def add(self, call: Call) -> None:
        """Take a call, to be run once it has its parameters; raise where no more are taken."""
        with self._lock:
            if self._problem:
                raise self._broken(self._problem)
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append(call)

    def let_run(self, call: Call, params: dict[str, Any]) -> None:
        """Give a call what its trial has to know."""
        with self._lock:
            call.params = params

    def fail(self, call: Call, error: Exception) -> None:
        """Take a call back that cannot be run."""
        with self._lock:
            if call not in self._waiting:  # it was cancelled
                return
            self._waiting.remove(call)
        if call.future.set_running_or_notify_cancel():
            call.future.set_exception(error)

    def pop(self, trial: int) -> Future[Any]:
        """Return the future of a call that has ended; the caller sees to it from now on."""
        with self._lock:
            return self._running.pop(trial)

    def close(self, problem: str = "", *, cancel: bool = False) -> None:
        """Take no more calls.

        Args:
            problem: Why those that are not done will not be.
            cancel: Cancel those that wait.
        """
        with self._lock:
            self._closed, self._problem = True, self._problem or problem
            waiting = list(self._waiting) if cancel else []
        for call in waiting:
            call.future.cancel()

    def fail_rest(self) -> None:
        """Tell the futures of calls that are not done that these will not be."""
        with self._lock:
            left = list(self._running.values())
            left += [c.future for c in self._waiting if c.future.set_running_or_notify_cancel()]
            self._running.clear()
            self._waiting.clear()
        for future in left:
            future.set_exception(self._broken(self._problem or "the executor has ended"))
