"""What reaches a search from outside of the thread that runs it: an end, or new trials."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator

from experiment.results.status import Status
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import files_at

_LOOK_EVERY = 1.0  # seconds between two looks for the file that `stop` leaves


class Control:
    """Ends one search early, from any thread or signal handler.

    Attributes:
        reason: Why the search is to end, in one sentence; None while it may go on.
        status: Says how far it is; None before it has begun.
        wake: Lets its slots ask again for trials, where its searcher has new ones. From any thread.
        overtaken: Does another driver run the run by now? Then nothing of it is ours to write.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.overtaken = False
        self.status: Callable[[], Status] | None = None
        self.wake: Callable[[], None] = lambda: None

    def cancel(self, reason: str) -> None:
        """End the search within a second; the first reason counts."""
        if self.reason is None:
            self.reason = reason

    def give_way(self, reason: str) -> None:
        """End the search since another driver has taken the run over."""
        self.overtaken = True
        self.cancel(reason)


def deadline_passed(seconds: float) -> str:
    """Return the reason of a search that its deadline has ended."""
    return f"the deadline of {seconds:g} s has passed"


_control: contextvars.ContextVar[Control | None] = contextvars.ContextVar(
    "experiment_control", default=None
)


def own_control() -> Control:
    """Return what controls a search that is called here: that of `submit`, or a new one."""
    return _control.get() or Control()


@contextlib.contextmanager
def controlled_by(control: Control) -> Iterator[None]:
    """Let a search that is called inside the block be controlled by `control`."""
    token = _control.set(control)
    try:
        yield
    finally:
        _control.reset(token)


@contextlib.contextmanager
def stopped_by_file(file: Location, hadoop: HadoopSettings, control: Control) -> Iterator[None]:
    """Cancel a search when a file appears: `python -m experiment stop`, from any host.

    Args:
        file: Where it appears.
        hadoop: Where HDFS is.
        control: Of the search.
    """
    closing = threading.Event()

    def watch() -> None:
        with contextlib.closing(files_at(file, hadoop)) as files:
            while not closing.wait(_LOOK_EVERY):
                with contextlib.suppress(OSError):  # mostly since it is not there
                    files.status(file)
                    control.cancel("stopped by python -m experiment stop")
                    return

    # Not waited for: it may be asking an HDFS that does not answer.
    threading.Thread(target=watch, name="experiment-stop", daemon=True).start()
    try:
        yield
    finally:
        closing.set()
