"""What is watched of a slot's GPUs: their use while a trial runs, and their memory after it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from search.trial import Outcome
from spark_jobs.messages import Attempt
from spark_jobs.run_folder.paths import AttemptPaths
from spark_jobs.slot.nvml import GIB, Gpus
from spark_jobs.slot.runners import Tell, TrialRunner
from spark_jobs.trial.event_file import EventFile

_TOLERANCE = 128 << 20  # bytes: less than a context of CUDA takes
_LOOK = 0.1  # seconds between two looks at memory that has not come back
_FIRST = 1.0  # seconds until the first point of a trial's curves
_PAUSE = 5.0  # seconds between two points of a short trial
_POINTS = 500  # of a trial as long as it has one each `_PAUSE`; then ever fewer

Keeps = Callable[[str, int, int], None]


class WatchedRunner:
    """A trial runner that watches the slot's GPUs; without any it only runs trials.

    While a trial runs, its event file gets points of `gpu/<n>/memory_GiB` and
    `gpu/<n>/utilization`: of the whole GPU, whoever uses it. The step is the seconds since the
    trial's start, and n what the trial's framework calls the GPU. After a trial the memory of its
    GPUs has to come back: what belongs to no process that NVML lists must be no more than it was
    before the slot's first trial, or at any later time. Other trials on the same GPU and other
    users' processes are listed, so they do not count.

    Args:
        runner: Runs the trials; entered and left by who made it.
        gpus: Of the slot, entered.
        keeps: Told of a GPU that keeps memory: its address, the bytes, after which trial.
        shared: May other trials, or this very process, have memory on the same GPUs when a trial
            has ended? Where NVML never lists an owner there, nothing can be said then.
        patience: Seconds that memory has to come back.
        lag: Seconds by which this host's clock lags the driver's.
    """

    def __init__(
        self,
        runner: TrialRunner,
        gpus: Gpus,
        keeps: Keeps,
        *,
        shared: bool = False,
        patience: float = 10.0,
        lag: float = 0.0,
    ) -> None:
        self._runner = runner
        self._gpus = gpus
        self._keeps = keeps
        self._shared = shared
        self._patience = patience
        self._lag = lag
        self._idle: dict[str, int] = {}  # bytes that are nobody's, the least that was seen
        self._listed: set[str] = set()  # GPUs for which NVML has ever listed an owner

    @property
    def warnings(self) -> tuple[str, ...]:
        """See `TrialRunner`."""
        return self._runner.warnings

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing was started."""

    def stop(self, trial: int, reason: str) -> None:
        """See `TrialRunner`."""
        self._runner.stop(trial, reason)

    def abandon(self) -> None:
        """See `TrialRunner`."""
        self._runner.abandon()

    def run(self, attempt: Attempt, paths: AttemptPaths, tell: Tell) -> Outcome:
        """See `TrialRunner`."""
        if not self._gpus.known:
            return self._runner.run(attempt, paths, tell)
        self._kept()
        with self._recorded(paths):
            outcome = self._runner.run(attempt, paths, tell)
        for address, memory in self._kept_for_good().items():
            self._keeps(address, memory, attempt.trial.id)
        return outcome

    def _kept_for_good(self) -> dict[str, int]:
        """Wait for the memory to come back; return what did not."""
        give_up = time.monotonic() + self._patience
        while (kept := self._kept()) and time.monotonic() < give_up:
            time.sleep(_LOOK)
        return kept

    def _kept(self) -> dict[str, int]:
        """Return how many bytes more than before are nobody's, of GPUs where these are many."""
        kept = {}
        for address, unowned in self._gpus.unowned().items():
            idle = min(unowned.memory, self._idle.get(address, unowned.memory))
            self._idle[address] = idle
            if unowned.lists_owners:
                self._listed.add(address)
            is_judged = address in self._listed or not self._shared
            if is_judged and unowned.memory > idle + _TOLERANCE:
                kept[address] = unowned.memory - idle
        return kept

    @contextlib.contextmanager
    def _recorded(self, paths: AttemptPaths) -> Iterator[None]:
        """Record the use of the GPUs in an attempt's event file, from a thread."""
        ended = threading.Event()
        arguments = (paths, ended)
        thread = threading.Thread(target=self._record, args=arguments, name="gpus", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _record(self, paths: AttemptPaths, ended: threading.Event) -> None:
        started, pause = time.monotonic(), _FIRST
        events = EventFile(paths.folder, lag=self._lag)
        with events, contextlib.suppress(OSError):  # as of a full disk
            while not ended.wait(pause):
                seconds = time.monotonic() - started
                if points := self._points():
                    events.scalars(points, int(seconds))
                pause = max(_PAUSE, seconds / _POINTS)

    def _points(self) -> dict[str, float]:
        points = {}
        for address, use in self._gpus.use().items():
            name = f"gpu/{self._gpus.position(address)}"
            points[f"{name}/memory_GiB"] = use.memory / GIB
            if use.utilization is not None:
                points[f"{name}/utilization"] = use.utilization
        return points
