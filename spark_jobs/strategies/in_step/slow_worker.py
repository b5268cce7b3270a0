"""Finding a worker that the others wait for.

Workers in step take equally long for a step, since each waits for the gradients of the slowest one.
What differs is how long it waits: the slowest waits for the transfer alone. So a step without the
time from its gradients to the mean of all is the worker's own work: reading data, computing,
callbacks.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from spark_jobs.communicator.membership import host_and_port

Figures = npt.NDArray[np.float64]

_BLOCKS = 8
"""Parts of the measured steps. Most must show the same, or it was chance on a busy host."""

_MOST = 6  # of these
_SLOW = 2.0  # times the work of the others
_SHARE = 0.2  # of a step that the others wait, at least
_LEAST = 0.01  # seconds of it
_STEPS = 2 * _BLOCKS  # fewer are measured on, as is a time that is shorter than this:
_LONG = 3.0  # seconds


class Slow(NamedTuple):
    """A worker that the others wait for.

    Attributes:
        rank: Its rank.
        work: Mean seconds of its own work in a step.
        others: The median of the other workers' mean seconds.
    """

    rank: int
    work: float
    others: float


def slow_worker(work: Figures, steps: Figures) -> Slow | None:
    """Return the worker that makes the others wait much, in most of the measured time.

    Args:
        work: Mean seconds of the workers' own work in a step, by rank and part of the time.
        steps: Mean seconds of a whole step, alike.
    """
    rank = int(np.argmax(work.mean(axis=1)))
    others = np.median(np.delete(work, rank, axis=0), axis=0)
    lag = work[rank] - others
    lags = (work[rank] >= _SLOW * others) & (lag >= np.maximum(_LEAST, _SHARE * steps[rank]))
    if lags.sum() < _MOST * work.shape[1] / _BLOCKS:
        return None
    return Slow(rank, float(work[rank].mean()), float(others.mean()))


def warning_of(slow: Slow, members: Sequence[str]) -> str:
    """Return the sentence that names a slow worker.

    Args:
        slow: The worker.
        members: The addresses of all workers by rank, as "host:port".
    """
    host, _ = host_and_port(members[slow.rank])
    ratio = min(slow.work / max(slow.others, 1e-9), 1000.0)
    return (
        f"worker {slow.rank} on host {host} is {ratio:.1f} times slower than the other workers, "
        f"which wait for it in each step: for a step it reads data and computes for "
        f"{1e3 * slow.work:.0f} ms, they for {1e3 * slow.others:.0f} ms; look for other programs "
        "or slow storage on this host, or let nobody wait with strategy='downpour'"
    )


class Waited(Protocol):
    """How long this worker has waited."""

    def seconds(self) -> float:
        """Return the seconds so far."""


class Lags:
    """Measures the steps of `fit`, and warns of a worker that the others wait for.

    All workers make the same calls. Worker 0 warns, once of each worker.

    Args:
        rank: This worker's rank.
        members: The addresses of all workers by rank, as "host:port".
        waited: How long this worker has waited.
        clock: Returns seconds.
    """

    def __init__(
        self,
        rank: int,
        members: Sequence[str],
        waited: Waited,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._rank = rank
        self._members = members
        self._waited = waited
        self._clock = clock
        self._named: set[int] = set()
        self.begin()

    def begin(self) -> None:
        """Begin a `fit`, whose first step is not measured: it makes the graph."""
        self._skip = True
        self._steps: list[tuple[float, float]] = []

    def begin_epoch(self) -> None:
        """Begin to measure the first step of an epoch."""
        self._last = self._clock(), self._waited.seconds()

    def end_step(self) -> None:
        """Measure the time since the last step, or since the begin of an epoch."""
        last, self._last = self._last, (self._clock(), self._waited.seconds())
        if self._skip:
            self._skip = False
            return
        step, waited = self._last[0] - last[0], self._last[1] - last[1]
        self._steps.append((max(step - waited, 0.0), step))

    def figures(self) -> Figures:
        """Return this worker's figures in an array for all; the maximum over the workers has all.

        Returns:
            Mean seconds of own work and of a step, by rank and part of the measured time; zeros as
            long as there are too few steps.
        """
        found = np.zeros((len(self._members), 2, _BLOCKS))
        if len(self._steps) >= _STEPS:
            parts = np.array_split(np.array(self._steps), _BLOCKS)
            found[self._rank] = np.transpose([part.mean(axis=0) for part in parts])
        return found

    def judge(self, figures: Figures) -> None:
        """Warn of a slow worker, if there is one.

        Args:
            figures: The figures of all workers.
        """
        # Worker 0's time decides, so that all workers restart together.
        if figures[0, 1].mean() * len(self._steps) < _LONG or not figures[:, 1].all():
            return
        self._steps = []
        slow = slow_worker(figures[:, 0], figures[:, 1])
        if slow is not None and slow.rank not in self._named:
            self._named.add(slow.rank)
            if self._rank == 0:
                warnings.warn(warning_of(slow, self._members), stacklevel=2)
