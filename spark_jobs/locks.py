"""A lock of the kernel, which a process holds as long as it lives."""

from __future__ import annotations

import fcntl
import os
import time

_PAUSE = 0.02


class Lock:
    """A lock on an open file or folder, which no child of this process holds.

    Args:
        descriptor: Of the file or folder, not inherited by programs; closed with the lock.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        # A child that is forked has this open, too, and would keep the lock of a killed process.
        os.register_at_fork(after_in_child=self.close)

    def acquire(self, patience: float = 0.0) -> bool:
        """Return whether there are locks here at all.

        Args:
            patience: Seconds for which somebody else may hold it.

        Raises:
            BlockingIOError: Somebody else holds it for longer.
        """
        assert self._descriptor is not None
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)
            except OSError:
                return False
            else:
                return True

    def close(self) -> None:
        """Let the lock go."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
