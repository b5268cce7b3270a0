"""The Spark job in which slots run, in a thread of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from spark_jobs import time_limits

_LAST_MOMENT = 0.5  # seconds for the processes of a task that was cancelled, which die in turn
_POLL = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTask:
    """A task that failed or was killed; Spark may have run it again since.

    Attributes:
        partition: Its number in the job, from 0.
        attempt: Which attempt at it, from 0.
        host: Where it ran, as Spark calls it.
        failed: Did it fail, rather than be killed?
    """

    partition: int
    attempt: int
    host: str
    failed: bool


class LeavingTask(NamedTuple):
    """A task that runs on an executor that is being decommissioned.

    Attributes:
        partition: Its number in the job, from 0.
        attempt: Which attempt at it, from 0.
    """

    partition: int
    attempt: int


class SlotJob:
    """A Spark job of slots. A context manager: leaving it cancels the job and waits for its end.

    A job that Spark has cancelled is over before its tasks are, so these are waited for as well:
    whoever goes on after the block meets no trial any more. Some seconds only, since a task whose
    host is gone may hold out. Spark takes a task for ended when it has ordered the end of its
    process, on which that of the trial follows, so there is a moment for these as well.

    A job on a server that does not answer (cancelling it is a ConnectionError) is left behind.

    It is entered before the job is started, so that nothing that interrupts the caller leaves a job
    behind.

    Attributes:
        error: What Spark raised; None unless the job has failed.
        result: The Arrow table of what its slots yielded, set if the job succeeded; None of the
            slots of a search, which yield nothing.
    """

    def __init__(
        self,
        run: Callable[[], Any],
        cancel: Callable[[], None],
        find_lost_tasks: Callable[[], list[LostTask]],
        find_leaving_tasks: Callable[[], list[LeavingTask]],
        count_running_tasks: Callable[[], int],
    ) -> None:
        self.error: BaseException | None = None
        self.result: Any = None
        self._run, self._cancel = run, cancel
        self._find_lost_tasks = find_lost_tasks
        self._find_leaving_tasks = find_leaving_tasks
        self._count_running_tasks = count_running_tasks
        self._thread = threading.Thread(target=self._main, name="experiment-slots", daemon=True)
        # Not the thread itself is waited for: an interrupt inside of Thread.join makes Python take
        # a running thread for one that has ended.
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.cancel()
        patience = time.monotonic() + time_limits.TASKS_END
        with contextlib.suppress(Exception):  # a stopped session has no tasks
            if self._count_running_tasks():
                while self._count_running_tasks() and time.monotonic() < patience:
                    time.sleep(_POLL)
                time.sleep(_LAST_MOMENT)

    def start(self) -> None:
        """Start the job; it runs in a thread."""
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of a job that was started; return whether it is over."""
        return self._ended.wait(seconds)

    def lost_tasks(self) -> list[LostTask]:
        """Return which of its tasks Spark has lost so far, in the order of their start."""
        with contextlib.suppress(Exception):  # a stopped session has nothing to tell
            return self._find_lost_tasks()
        return []

    def leaving_tasks(self) -> list[LeavingTask]:
        """Return which of its tasks run on executors that are being decommissioned."""
        with contextlib.suppress(Exception):  # a stopped session has nothing to tell
            return self._find_leaving_tasks()
        return []

    def running_tasks(self) -> int:
        """Return how many of its tasks run now."""
        with contextlib.suppress(Exception):  # a stopped session has none
            return self._count_running_tasks()
        return 0

    @property
    def failed_hosts(self) -> list[str]:
        """On which hosts tasks of it failed, each once; Spark's error lacks them."""
        return list(dict.fromkeys(task.host for task in self.lost_tasks() if task.failed))

    def cancel(self) -> None:
        """Cancel this job and no other, and wait for its end."""
        patience = time.monotonic() + time_limits.SERVER_CANCEL
        while self._thread.ident is not None and not self._ended.is_set():
            try:
                self._cancel()  # again: a job that is just being submitted is not found
            except ConnectionError:
                if time.monotonic() > patience:
                    return
            except Exception:
                pass  # a stopped session: the job ends by itself
            self.wait(0.5)

    def _main(self) -> None:
        try:
            self.result = self._run()
        except BaseException as error:
            self.error = error
        finally:
            self._ended.set()
