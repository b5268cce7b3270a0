"""A lock of the kernel, which a process holds until it ends."""

from __future__ import annotations

import fcntl
import functools
import os

from spark_jobs.retrying import call_again

_PAUSE = 0.02


class Lock:
    """A lock on an open file or folder, which children of this process do not hold.

    Args:
        descriptor: Descriptor of the file or folder, not inherited by programs; closed with the
            lock.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        _open.add(self)

    def acquire(self, patience: float = 0.0) -> bool:
        """Acquire the lock; return False where the file system has no locks.

        Args:
            patience: Seconds to wait while another process holds it.

        Raises:
            BlockingIOError: Another process holds it for longer.
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
        """Release the lock."""
        if self._descriptor is not None:
            _open.discard(self)
            os.close(self._descriptor)
            self._descriptor = None


def _is_held(error: BaseException) -> bool:
    return isinstance(error, BlockingIOError)


def _close_all() -> None:
    for lock in tuple(_open):
        lock.close()


# A forked child inherits the descriptors, and would keep the locks of a killed process. Python
# cannot unregister a function that runs at a fork, and a slot creates a lock per trial: so one
# function closes all locks that this process has open.
_open: set[Lock] = set()
os.register_at_fork(after_in_child=_close_all)
