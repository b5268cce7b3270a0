"""The control of a search from other threads: its end, or new trials."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator

from experiment.results.status import Status
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import files_at

_LOOK_EVERY = 1.0  # seconds between two checks for the file that `stop` writes


class Control:
    """Ends one search early, from any thread or signal handler.

    Args:
        outer: The control of a call that may run several searches, which ends this one, too; None
            without such a call.

    Attributes:
        status: Returns the status of the search, or of the newest one of the call; None before its
            start.
        wake: Lets its slots ask for trials again, if the searcher has new ones. Thread safe.
        overtaken: Whether another driver owns the run; then this one must not write to it.
    """

    def __init__(self, outer: Control | None = None) -> None:
        self._outer = outer
        self._reason: str | None = None
        self.overtaken = False
        self.status: Callable[[], Status] | None = None
        self.wake: Callable[[], None] = lambda: None

    @property
    def reason(self) -> str | None:
        """Why the search has to end, in one sentence; None while it may continue."""
        if self._reason is None and self._outer is not None:
            return self._outer.reason
        return self._reason

    def begin(self, status: Callable[[], Status]) -> None:
        """Note that the search has begun, and how to get its status."""
        self.status = status
        if self._outer is not None:
            self._outer.begin(status)

    def cancel(self, reason: str) -> None:
        """End the search within a second once its run is open; the first reason counts."""
        if self.reason is None:
            self._reason = reason

    def give_way(self, reason: str) -> None:
        """End the search since another driver has taken over the run."""
        self.overtaken = True
        self.cancel(reason)


def deadline_passed(seconds: float) -> str:
    """Return the reason of a search that its deadline has ended."""
    return f"the deadline of {seconds:g} s has passed"


_control: contextvars.ContextVar[Control | None] = contextvars.ContextVar(
    "experiment_control", default=None
)


def own_control() -> Control:
    """Return a control for a search that is called here; that of `submit` ends it, too."""
    return Control(_control.get())


@contextlib.contextmanager
def controlled_by(control: Control) -> Iterator[None]:
    """Let `control` end the searches that are called inside the block."""
    token = _control.set(control)
    try:
        yield
    finally:
        _control.reset(token)


@contextlib.contextmanager
def stopped_by_file(file: Location, hadoop: HadoopSettings, control: Control) -> Iterator[None]:
    """Cancel a search when a file appears: `python -m experiment stop`, from any host.

    Args:
        file: The location of the file.
        hadoop: The settings of HDFS.
        control: The search's control.
    """
    closing = threading.Event()

    def watch() -> None:
        with contextlib.closing(files_at(file, hadoop)) as files:
            while not closing.wait(_LOOK_EVERY):
                with contextlib.suppress(OSError):  # usually because it does not exist
                    files.status(file)
                    control.cancel("stopped by python -m experiment stop")
                    return

    # Not joined: HDFS may not respond.
    threading.Thread(target=watch, name="experiment-stop", daemon=True).start()
    try:
        yield
    finally:
        closing.set()
