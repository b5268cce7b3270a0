"""The journal of a run: what was planned and what became of it. All else derives from it.

One line per record: eight hexadecimal digits of the CRC32 of the JSON, a space, the JSON. A line
is written (handed to the operating system) before anyone hears of it; one fsync serves all lines of
the last 100 ms. So a killed driver loses nothing, and a host that loses power 100 ms at the most.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from search.errors import ExperimentError
from spark_jobs.storage import make_folder, open_appending

_SYNC_EVERY = 0.1  # seconds


class JournalDamaged(ExperimentError):
    """A line inside a journal is not what was written; the message names file and line."""


class Journal:
    """Appends to a new segment of a journal. Thread safe.

    Args:
        folder: Of the segments; made where it is missing. No older segment is ever written to.
        number: Of the new segment; one after the newest of the folder when left out.
    """

    def __init__(self, folder: Path, number: int | None = None) -> None:
        make_folder(folder)
        if number is None:
            number = 1 + max((int(path.stem) for path in _segments(folder)), default=0)
        self.path = folder / f"{number:06d}.jsonl"
        self._descriptor = open_appending(self.path, new=True)
        self._dirty, self._closing = threading.Event(), threading.Event()
        self._error: OSError | None = None
        self._syncer = threading.Thread(
            target=self._sync_regularly, name="experiment-journal", daemon=True
        )
        self._syncer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def append(self, record: Any) -> None:
        """Hand a record to the operating system.

        Raises:
            OSError: It could not be written, or what was written before could not be synced.
        """
        if self._error is not None:
            raise self._error
        data = memoryview(encode_line(record))
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            self._error = error  # half a line may be there: nothing may follow it
            raise
        self._dirty.set()

    def close(self) -> None:
        """Bring everything to the disk and close the segment."""
        self._closing.set()
        self._dirty.set()
        self._syncer.join()
        try:
            if self._error is not None:
                raise self._error
            os.fsync(self._descriptor)  # the thread may have ended before the last line came
        finally:
            os.close(self._descriptor)

    def _sync_regularly(self) -> None:
        while not self._closing.is_set():
            self._dirty.wait()
            self._closing.wait(_SYNC_EVERY)
            self._dirty.clear()
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                self._error = error
                return


def encode_line(record: Any) -> bytes:
    """Return a record as a line of a journal."""
    data = msgspec.json.encode(record)
    return b"%08x %s\n" % (zlib.crc32(data), data)


def read_journal(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a journal, in order.

    A torn last line, as a killed driver leaves it, was never acknowledged and is passed over.

    Raises:
        JournalDamaged: A whole line does not match its checksum.
    """
    for path in _segments(folder):
        *lines, _ = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, start=1):
            record = _decode_line(line)
            if record is None:
                raise JournalDamaged(f"{path}, line {number}: the checksum does not match")
            yield record


def _segments(folder: Path) -> list[Path]:
    try:  # not glob, which takes a folder that may not be read for an empty one
        files = list(folder.iterdir())
    except FileNotFoundError:
        return []
    ours = (path for path in files if path.suffix == ".jsonl" and path.stem.isdecimal())
    return sorted(ours, key=lambda path: int(path.stem))


def _decode_line(line: bytes) -> dict[str, Any] | None:
    checksum, _, data = line.partition(b" ")
    if len(checksum) != 8 or b"%08x" % zlib.crc32(data) != checksum:
        return None
    try:
        record = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
