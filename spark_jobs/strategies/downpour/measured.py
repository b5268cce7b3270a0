"""How stale a worker's changes are, and how long it waits for the shared weights."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from statistics import fmean

from spark_jobs.strategies.downpour.rules import Shared
from spark_jobs.strategies.settings import STALENESS, WAITING
from spark_jobs.strategies.weights import Vector


class Measured:
    """Shared weights that measure each exchange.

    Args:
        shared: The shared weights.
        clock: Returns the time in seconds.
    """

    def __init__(self, shared: Shared, clock: Callable[[], float] = time.monotonic) -> None:
        self._shared = shared
        self._clock = clock
        self._staleness: list[int] = [0]
        self._waited = 0.0
        self._begun = clock()

    def fetch(self) -> Vector:
        """See `Shared.fetch`."""
        with self._waiting():
            return self._shared.fetch()

    def push(self, change: Vector) -> int:
        """See `Shared.push`."""
        with self._waiting():
            staleness = self._shared.push(change)
        self._staleness.append(staleness)
        return staleness

    def begin(self) -> None:
        """Begin a new period."""
        del self._staleness[:-1]
        self._waited = 0.0
        self._begun = self._clock()

    def figures(self) -> dict[str, float]:
        """Return the curves' values for the period.

        Returns:
            `downpour/staleness`, the mean over the changes that were sent in the period, or that of
            the last change before it if there were none; and `downpour/waiting`, the share of the
            period's time for which the worker has waited for an exchange.
        """
        passed = self._clock() - self._begun
        return {
            STALENESS: fmean(self._staleness[1:] or self._staleness),
            WAITING: self._waited / passed if passed > 0 else 0.0,
        }

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        begun = self._clock()
        yield
        self._waited += self._clock() - begun
