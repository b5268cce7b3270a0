"""The journal of a run: its planned trials and their outcomes. All other state derives from it.

One line per record: eight hexadecimal digits of the CRC32 of the JSON, a space, the JSON. A line is
written to the operating system before it takes effect; one fsync serves all lines of the last
100 ms. So a killed driver loses nothing, and a host that loses power at most 100 ms.

Each application that runs a part of the search writes a segment of its own, numbered from 1. A
segment starts with a record `begun`, with its format and the number of records before it.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from experiment.results.text import command
from experiment.run_files.format import check_format
from search.errors import ExperimentError
from spark_jobs.messages import encode
from spark_jobs.storage.local_files import make_folder, open_appending, open_regular

_SYNC_EVERY = 0.1  # seconds


class JournalDamaged(ExperimentError):
    """A journal was changed after it was written; the message names file and line.

    Args:
        what: The damage and its place.
        hint: Advice to the user.
        segment: Number of the damaged segment; 0 if all lines are intact and a record is invalid.
        whole: Bytes of that segment before the damage.
    """

    def __init__(self, what: str, hint: str = "", *, segment: int = 0, whole: int = 0) -> None:
        super().__init__(f"{what}; {hint}" if hint else what)
        self.what = what
        self.segment = segment
        self.whole = whole


class Journal:
    """Appends to a new segment of a journal, from one thread at a time.

    Args:
        folder: The folder of the segments, created if missing. Older segments are never changed.
        number: The new segment's number; by default the one after the newest.

    Raises:
        FileExistsError: There is a segment of that number.
        OSError: The segment cannot be created.
    """

    def __init__(self, folder: Path, number: int | None = None) -> None:
        make_folder(folder)
        if number is None:
            number = 1 + max(segment_numbers(folder), default=0)
        self.path = folder / segment_name(number)
        self._descriptor = open_appending(self.path, new=True)
        self._dirty = threading.Event()
        self._closing = threading.Event()
        self._error: OSError | None = None
        self._syncer = threading.Thread(
            target=self._sync_regularly, name="experiment-journal", daemon=True
        )
        self._syncer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def append(self, record: Any) -> None:
        """Write a record to the operating system.

        Raises:
            OSError: The record could not be written, or earlier ones could not be synced. All later
                calls raise it too: no record may follow a lost one, or half a line.
        """
        self._check()
        data = memoryview(encode_line(record))
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            self._error = error
            self._check()
        self._dirty.set()

    def close(self) -> None:
        """Sync all records to disk and close the segment.

        Raises:
            OSError: Some records could not be written or synced.
        """
        self._closing.set()
        self._dirty.set()
        self._syncer.join()
        try:
            if self._error is None:
                self._sync()  # the thread may have ended before the last line came
            self._check()
        finally:
            os.close(self._descriptor)

    def _check(self) -> None:
        if self._error is not None:
            error = self._error
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def _sync_regularly(self) -> None:
        while not self._closing.is_set() and self._error is None:
            self._dirty.wait()
            self._closing.wait(_SYNC_EVERY)
            self._dirty.clear()
            self._sync()

    def _sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:  # a second fsync would not retry what the first one lost
            self._error = error


def encode_line(record: Any) -> bytes:
    """Return a record as a line of a journal."""
    data = encode(record)
    return b"%08x %s\n" % (zlib.crc32(data), data)


class JournalRewritten(Exception):
    """Records that a `JournalReader` has yielded no longer count: read again with a new reader."""


class JournalReader:
    """Reads a journal; each call continues after the last one.

    An incomplete last line of a segment, as a killed driver leaves it, never took effect and is
    skipped; so are zeros at the end, as a file system may leave them after a power failure. A line
    that lacks only its newline counts. Lines that a driver wrote after another one had taken over
    the run, and had started a segment, do not count.

    Args:
        folder: The folder of the segments.
        run: The run folder's name for users; by default the parent of `folder`.
    """

    def __init__(self, folder: Path, run: str = "") -> None:
        self._folder = folder
        self._run = run or str(folder.parent)
        self._segments: list[_Segment] = []

    def new(self) -> Iterator[dict[str, Any]]:
        """Yield the records written since the last call, in order; at the first call, all.

        Raises:
            JournalRewritten: Records of an earlier call no longer count, since they were written
                too late, or the journal was cut.
            JournalDamaged: A whole line does not match its checksum, a segment is missing, or the
                number of records before a segment is not the recorded one.
            InvalidArgument: A segment has a newer format.
            OSError: The journal cannot be read.
        """
        numbers, before = segment_numbers(self._folder), 0
        if any(segment.count for segment in self._segments[len(numbers) :]):
            raise JournalRewritten
        self._segments = self._segments[: len(numbers)] + [
            _Segment(path=self._folder / segment_name(number), run=self._run, number=number)
            for number in range(len(self._segments) + 1, len(numbers) + 1)
        ]
        begun = self._begun()
        for segment, found in zip(self._segments, numbers, strict=True):
            if segment.number != found:
                raise segment.damaged("missing, though there are later segments")
            later = begun[segment.number :]
            taken = next((record for record in later if record is not None), None)
            try:
                yield from segment.new(before, taken)
            except JournalDamaged:
                if self._begun() == begun:
                    raise
                return  # a driver has started a segment meanwhile: see the next call
            before += segment.count

    def _begun(self) -> list[dict[str, Any] | None]:
        """Return the first record of each segment; None for one without a whole line."""
        return [segment.begun() for segment in self._segments]


def read_journal(folder: Path, run: str = "") -> Iterator[dict[str, Any]]:
    """Yield the records of a journal, in order; see `JournalReader`."""
    return JournalReader(folder, run).new()


def segment_name(number: int) -> str:
    """Return the name of a segment's file."""
    return f"{number:06d}.jsonl"


def segment_numbers(folder: Path) -> list[int]:
    """Return the numbers of the segments in a folder, from the oldest; [] if it is missing."""
    try:  # not glob, which returns nothing for a folder without read permission
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    numbers = [int(match[1]) for name in names if (match := _SEGMENT.fullmatch(name))]
    return sorted(number for number in numbers if segment_name(number) in names)


_SEGMENT = re.compile(r"(\d{6,})\.jsonl", re.ASCII)


@dataclass(slots=True, kw_only=True)
class _Segment:
    """A segment, and the position up to which it was read.

    Attributes:
        path: The segment's file.
        run: The run folder's name for users.
        number: The segment's number, from 1.
        count: Number of records yielded.
        whole: Bytes of the lines that were read with their newlines.
        lines: Number of these lines.
        unended: The line after them, if it lacked only its newline and was yielded.
    """

    path: Path
    run: str
    number: int
    count: int = 0
    whole: int = 0
    lines: int = 0
    unended: bytes = b""

    def begun(self) -> dict[str, Any] | None:
        """Return the segment's first record, `begun`; None if it has none."""
        with contextlib.suppress(FileNotFoundError), open_regular(self.path) as file:
            record = _decode_line(file.readline().rstrip(b"\0").removesuffix(b"\n"))
            if record is not None and _begins(record):
                return record
        return None

    def new(self, before: int, taken: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
        """Yield the records since the last call that count.

        Args:
            before: Number of records in earlier segments.
            taken: The first record of the next driver that took over the run; None without one.
        """
        most = math.inf if taken is None else taken["records"] - before
        if self.count:
            if self.count > most:
                raise JournalRewritten
            if self.count == most:
                return
        for record in self._read(before):
            # A copy of the same segment is damage, not a second driver.
            if self.count == most and record != taken:
                break
            self.count += 1
            yield record

    def _read(self, before: int) -> Iterator[dict[str, Any]]:
        unended, self.unended = self.unended, b""
        for line in io.BytesIO(self._rest(unended)):
            number = self.lines + 1
            end = len(line)
            record = _decode_line(line.removesuffix(b"\n"))
            if record is None:
                if line.endswith(b"\n"):
                    raise self.damaged("the checksum does not match", number, self.whole)
                end -= 1
                record = _decode_line(line[:end])
                if record is None:
                    return  # incomplete
            if not unended:
                self._check(record, number, before, self.whole)
            has_counted, unended = bool(unended), b""
            if line.endswith(b"\n"):
                self.whole += end
                self.lines = number
            else:
                self.unended = line[:end]
            if not has_counted:
                yield record
            if end < len(line):
                raise self.damaged("its newline was changed", number, self.whole + end)

    def _rest(self, unended: bytes) -> bytes:
        """Return the bytes after the whole lines that were read."""
        with open_regular(self.path) as file:
            cut = os.fstat(file.fileno()).st_size < self.whole
            file.seek(self.whole)
            rest = file.read().rstrip(b"\0")
        if cut or not rest.startswith(unended):
            raise JournalRewritten
        return rest

    def _check(self, record: dict[str, Any], line: int, before: int, whole: int) -> None:
        if not _begins(record):
            if line == 1:
                raise self.damaged("a segment has to start with the record 'begun'", line, whole)
            return
        check_format(record["format"], self.run)
        if line > 1:
            raise self.damaged("a second record 'begun'", line, whole)
        if record["records"] != before:
            reason = f"expected {record['records']} records in earlier segments, got {before}"
            raise self.damaged(reason, line, whole)

    def damaged(self, reason: str, line: int | None = None, whole: int = 0) -> JournalDamaged:
        where = f"{self.run}/{self.path.parent.name}/{self.path.name}"
        where += "" if line is None else f", line {line}"
        hint = f"to keep only the records before it: {command('repair', self.run)}"
        return JournalDamaged(f"{where}: {reason}", hint, segment=self.number, whole=whole)


def _begins(record: dict[str, Any]) -> bool:
    """Return whether it is the first record of a segment, of any format."""
    if record.get("event") != "begun":
        return False
    return isinstance(record.get("records"), int) and isinstance(record.get("format"), int)


def _decode_line(line: bytes) -> dict[str, Any] | None:
    data = line[9:]
    if line[:9] != b"%08x " % zlib.crc32(data):
        return None
    try:
        record = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
