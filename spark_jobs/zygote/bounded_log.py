"""Logs of a trial's output, with a maximum size."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from spark_jobs.storage.local_files import open_appending

KEPT = 1 << 20
"""Bytes that are kept of the start, and also of the end."""

_PIECE = 1 << 16  # bytes per read of the start


def open_log(path: Path) -> int:
    """Return a descriptor that appends to a log; that of /dev/null if the log cannot be opened."""
    try:
        return open_appending(path)
    except OSError:  # such as when another trial has just removed the folder
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


class BoundedLog:
    """Writes the start of a stream as it comes, and the end when it is closed.

    A line between them says how many bytes are left out. A full disk or a missing folder costs
    lines, but never fails the process that writes them.

    Args:
        path: The log file, which is created if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_log(path)
        self._room = KEPT
        self._end = memoryview(b"")  # a ring, once the start is full
        self._more = 0  # bytes after the start

    def read(self, descriptor: int) -> bool:
        """Read from a descriptor once; return whether more may come.

        Raises:
            BlockingIOError: There is nothing to read, on a non-blocking descriptor.
        """
        if self._room:
            data = os.read(descriptor, min(self._room, _PIECE))
            self._write(data)
            self._room -= len(data)
            return bool(data)
        if not self._end:
            self._end = memoryview(bytearray(KEPT))
        size = os.readv(descriptor, [self._end[self._more % KEPT :]])  # without a copy
        self._more += size
        return size > 0

    def close(self) -> None:
        """Write the end, and close the file."""
        if self._more > KEPT:
            self._write(_gap(self._more - KEPT))
            self._write(self._end[self._more % KEPT :])
            self._write(self._end[: self._more % KEPT])
        else:
            self._write(self._end[: self._more])
        os.close(self._file)

    def _write(self, data: bytes | memoryview) -> None:
        with contextlib.suppress(OSError):
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]


def bound(path: Path) -> None:
    """Cut the middle out of a log that was written without a bound, if possible."""
    with contextlib.suppress(OSError):
        if os.stat(path).st_size > 2 * KEPT:
            _cut(path)


def _cut(path: Path) -> None:
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(size - KEPT)
        end = file.read()
        file.seek(KEPT)
        file.write(_gap(size - 2 * KEPT) + end)
        file.truncate()


def _gap(size: int) -> bytes:
    return f"\n... {size} bytes left out ...\n".encode()
