"""What a trial printed, with a bound whatever it prints."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from spark_jobs.storage import open_appending

KEPT = 1 << 20
"""Bytes that are kept of the start, and as many of the end."""


def open_log(path: Path) -> int:
    """Return a descriptor that appends to a log, or keeps nothing where there can be none."""
    try:
        return open_appending(path)
    except OSError:  # as where another trial has just removed the folder
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


class BoundedLog:
    """Writes the start of a stream as it comes, and the end when it is closed.

    Between the two stands a line that says how much is left out. A disk that is full, or a folder
    that is gone, costs lines, never the process that writes them.

    Args:
        path: Of the file; made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_log(path)
        self._room = KEPT
        self._end = bytearray()
        self._left_out = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes in."""
        start, rest = data[: self._room], data[self._room :]
        if start:
            self._write(start)
            self._room -= len(start)
        self._end += rest
        if len(self._end) > 2 * KEPT:  # not with each byte: what is kept would be moved each time
            self._forget()

    def close(self) -> None:
        """Write the end, and close the file."""
        self._forget()
        if self._left_out:
            self._write(_gap(self._left_out))
        self._write(bytes(self._end))
        os.close(self._file)

    def _forget(self) -> None:
        more = max(0, len(self._end) - KEPT)
        del self._end[:more]
        self._left_out += more

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]


def bound(path: Path) -> None:
    """Cut the middle out of a log that was written without a bound, if that can be done."""
    with contextlib.suppress(OSError), path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        if size <= 2 * KEPT:
            return
        file.seek(size - KEPT)
        end = file.read()
        file.seek(KEPT)
        file.write(_gap(size - 2 * KEPT) + end)
        file.truncate()


def _gap(size: int) -> bytes:
    return f"\n... {size} bytes left out ...\n".encode()
