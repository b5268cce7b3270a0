"""The Spark job in which slots run, in a thread of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from spark_jobs import time_limits

_LAST_MOMENT = 0.5  # seconds for the processes of a cancelled task to end, one after the other
_POLL = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTask:
    """A task that failed or was killed; Spark may have retried it since.

    Attributes:
        partition: Its number in the job, from 0.
        attempt: The number of Spark's attempt at it, from 0.
        host: Spark's name for its host.
        failed: Whether it failed; False if it was killed.
    """

    partition: int
    attempt: int
    host: str
    failed: bool


class LeavingTask(NamedTuple):
    """A task that runs on an executor that is being decommissioned.

    Attributes:
        partition: Its number in the job, from 0.
        attempt: The number of Spark's attempt at it, from 0.
    """

    partition: int
    attempt: int


class SlotJob:
    """A Spark job of slots. A context manager: leaving it cancels the job and waits for its end.

    A cancelled job ends before its tasks do, so leaving waits for the tasks as well: after the
    block no trial runs any more. It waits for some seconds only, since the tasks of a lost host may
    seem to run for long. To Spark a task has ended once it has ordered the end of its process, and
    the trial's process ends after that, so there is a short wait for these as well.

    A job on a server that does not answer (cancelling raises ConnectionError) is abandoned.

    Enter it before starting the job, so that no interrupt leaves a job running.

    Attributes:
        error: Spark's error; None unless the job has failed.
        result: Set if the job succeeded: an Arrow table of the rows that its slots yielded; for
            slots without rows the number of their items, or None in Spark Connect.
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
        self._run = run
        self._cancel = cancel
        self._find_lost_tasks = find_lost_tasks
        self._find_leaving_tasks = find_leaving_tasks
        self._count_running_tasks = count_running_tasks
        self._thread = threading.Thread(target=self._main, name="experiment-slots", daemon=True)
        # An event instead of Thread.join, in which an interrupt makes Python take a running thread
        # for an ended one.
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
        """Wait for the end of a started job; return whether it has ended."""
        return self._ended.wait(seconds)

    def lost_tasks(self) -> list[LostTask]:
        """Return its tasks that Spark has lost so far, in the order of their start."""
        with contextlib.suppress(Exception):  # a stopped session has no data
            return self._find_lost_tasks()
        return []

    def leaving_tasks(self) -> list[LeavingTask]:
        """Return its tasks on executors that are being decommissioned."""
        with contextlib.suppress(Exception):  # a stopped session has no data
            return self._find_leaving_tasks()
        return []

    def running_tasks(self) -> int:
        """Return the number of its running tasks."""
        with contextlib.suppress(Exception):  # a stopped session has none
            return self._count_running_tasks()
        return 0

    @property
    def failed_hosts(self) -> list[str]:
        """The hosts of its failed tasks, each once; Spark's error lacks them."""
        return list(dict.fromkeys(task.host for task in self.lost_tasks() if task.failed))

    @property
    def _runs(self) -> bool:
        return self._thread.ident is not None and not self._ended.is_set()

    def ask_to_end(self) -> None:
        """Cancel this job once, if it runs, without waiting for its end."""
        if self._runs:
            with contextlib.suppress(Exception):  # leaving it says more
                self._cancel()

    def cancel(self) -> None:
        """Cancel this job and no other, and wait for its end."""
        patience = time.monotonic() + time_limits.SERVER_CANCEL
        while self._runs:
            try:
                self._cancel()  # repeatedly: a job that is just being submitted is not found
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
