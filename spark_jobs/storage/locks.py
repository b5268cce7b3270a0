"""A lock of the kernel, which a process holds as long as it lives."""

from __future__ import annotations

import fcntl
import functools
import os

from spark_jobs.retrying import call_again

_PAUSE = 0.02


class Lock:
    """A lock on an open file or folder, which no child of this process holds.

    Args:
        descriptor: Of the file or folder, not inherited by programs; closed with the lock.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        _open.add(self)

    def acquire(self, patience: float = 0.0) -> bool:
        """Return whether there are locks here at all.

        Args:
            patience: Seconds for which somebody else may hold it.

        Raises:
            BlockingIOError: Somebody else holds it for longer.
        """
        assert self._descriptor is not None
        lock = functools.partial(fcntl.flock, self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            call_again(lock, after=_is_held, outage=patience, pause=_PAUSE)
        except BlockingIOError:
            raise
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Let the lock go."""
        if self._descriptor is not None:
            _open.discard(self)
            os.close(self._descriptor)
            self._descriptor = None


def _is_held(error: BaseException) -> bool:
    return isinstance(error, BlockingIOError)


def _close_all() -> None:
    for lock in tuple(_open):
        lock.close()


# A child that is forked has them open, too, and would keep the locks of a killed process. Python
# never forgets a function that is to run at a fork, and a slot makes a lock per trial: so there is
# one function, which has to know what this process has open.
_open: set[Lock] = set()
os.register_at_fork(after_in_child=_close_all)
