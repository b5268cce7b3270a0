"""Monitors a slot's GPUs: their use while a trial runs, and their memory after it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

from search.trial import Outcome
from spark_jobs.messages import Attempt
from spark_jobs.run_folder.paths import AttemptPaths
from spark_jobs.slot.gpus.nvml import GIB, Gpus
from spark_jobs.slot.runners import TrialRunner
from spark_jobs.slot.trial_events import gpu_tag
from spark_jobs.threads import start_thread
from spark_jobs.trial.events.event_file import EventFile
from spark_jobs.zygote.link import Tell

_TOLERANCE = 128 << 20  # bytes, less than a context of CUDA takes
_LOOK = 0.1  # seconds between two checks whether memory was freed
_FIRST = 1.0  # seconds until the first point of a trial's curves
_PAUSE = 5.0  # seconds between two points of a short trial
_POINTS = 500  # points of a trial that are `_PAUSE` apart; later ones are further and further apart

Keeps = Callable[[str, int, int], None]


class WatchedRunner:
    """A trial runner that monitors the slot's GPUs; without any it only runs trials.

    While a trial runs, its event file gets points of `gpu/<n>/memory_GiB` and
    `gpu/<n>/utilization`, for the whole GPU with all its users. The step is the seconds since the
    trial's start, and n the framework's number of the GPU. After a trial the memory of its GPUs
    must be freed: memory without an owner that NVML lists must not exceed its lowest value, before
    the slot's first trial or at any later time. Other trials on the same GPU and other users'
    processes are listed, so they do not count.

    Args:
        runner: The runner of the trials; its creator enters and leaves it.
        gpus: The slot's GPUs, entered.
        keeps: Called for a GPU that keeps memory, with its address, the bytes and the trial.
        shared: Whether other trials, or this process, may have memory on the same GPUs when a trial
            has ended. Then a GPU is judged only if NVML ever lists an owner.
        patience: Seconds in which memory must be freed.
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
        self._idle: dict[str, int] = {}  # lowest bytes without an owner so far
        self._listed: set[str] = set()  # GPUs for which NVML has ever listed an owner

    @property
    def warnings(self) -> tuple[str, ...]:
        """The runner's warnings."""
        return self._runner.warnings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: nothing was started."""

    def stop(self, attempt: Attempt, reason: str) -> None:
        """Stop the runner's trial."""
        self._runner.stop(attempt, reason)

    def end(self, attempt: Attempt, reason: str) -> None:
        """End the process of the runner's trial."""
        self._runner.end(attempt, reason)

    def abandon(self) -> None:
        """End the runner's trial."""
        self._runner.abandon()

    def run(self, attempt: Attempt, paths: AttemptPaths, tell: Tell) -> Outcome:
        """Run a trial, record the use of its GPUs, and check their memory after it."""
        if not self._gpus.known:
            return self._runner.run(attempt, paths, tell)
        self._kept()
        with self._recorded(paths):
            outcome = self._runner.run(attempt, paths, tell)
        for address, memory in self._kept_for_good().items():
            self._keeps(address, memory, attempt.trial.id)
        return outcome

    def _kept_for_good(self) -> dict[str, int]:
        """Wait for the memory to be freed; return the bytes that were not, by GPU."""
        give_up = time.monotonic() + self._patience
        while (kept := self._kept()) and time.monotonic() < give_up:
            time.sleep(_LOOK)
        return kept

    def _kept(self) -> dict[str, int]:
        """Return the increase of bytes without an owner, of GPUs where it is large."""
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
        start_thread(thread)
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _record(self, paths: AttemptPaths, ended: threading.Event) -> None:
        started, pause = time.monotonic(), _FIRST
        events = EventFile(paths.logdir, lag=self._lag)
        with events, contextlib.suppress(OSError):  # such as a full disk
            while not ended.wait(pause):
                seconds = time.monotonic() - started
                if points := self._points():
                    events.scalars(points, int(seconds))
                pause = max(_PAUSE, seconds / _POINTS)

    def _points(self) -> dict[str, float]:
        points = {}
        for address, use in self._gpus.use().items():
            gpu = self._gpus.position(address)
            points[gpu_tag(gpu, "memory_GiB")] = use.memory / GIB
            if use.utilization is not None:
                points[gpu_tag(gpu, "utilization")] = use.utilization
        return points
