"""The end of a training to which each worker comes in its own time."""

from __future__ import annotations

import time

import numpy as np

from spark_jobs.communicator.arrays import Array
from spark_jobs.communicator.communicator import Communicator
from spark_jobs.strategies.downpour.rules import add

_PAUSE = 0.05  # seconds between two looks at who has finished


class Finish:
    """What the workers know of each other's end. Made by all of them in step.

    A collective call would not do, since it takes a worker for lost that is ten minutes late; a
    worker answers the questions of the others in a thread, however long its steps take.

    Args:
        communicator: The connections of this worker.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._rank = communicator.rank
        self._size = communicator.size
        self._last = communicator.share(np.full(self._size, np.inf), _lower)
        self._finished = communicator.share(np.zeros(self._size), add)

    def end_after(self, epoch: int) -> None:
        """Ask all workers to end after an epoch."""
        self._last.push(np.full(self._size, float(epoch)))

    def is_last(self, epoch: int) -> bool:
        """Return whether a worker has asked to end after this epoch, or after an earlier one."""
        return bool(epoch >= self._last.fetch().min())

    def wait(self) -> None:
        """Wait until all workers have made this call; raises GangBroken if one is lost.

        A worker that has left `fit` by an error hears of this one where it next meets the others.
        """
        self._communicator.begin_step()
        own = np.zeros(self._size)
        own[self._rank] = 1
        self._finished.push(own)
        while not self._finished.fetch().all():
            time.sleep(_PAUSE)

    def close(self) -> None:
        """Free what this worker keeps for the others; all have returned from `wait`."""
        self._last.close()
        self._finished.close()


def _lower(values: Array, change: Array) -> None:
    np.minimum(values, change, out=values)
