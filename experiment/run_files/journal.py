"""The journal of a run: what was planned and what became of it. All else derives from it.

One line per record: eight hexadecimal digits of the CRC32 of the JSON, a space, the JSON. A line
is written (handed to the operating system) before anyone hears of it; one fsync serves all lines of
the last 100 ms. So a killed driver loses nothing, and a host that loses power 100 ms at the most.

Each application that runs a part of the search writes a segment of its own, numbered from 1. Each
begins with a record `begun` that says its format, and how many records the ones before it have.
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
from types import TracebackType
from typing import Any, Self

import msgspec

from experiment.results.text import command
from experiment.run_files.format import check_format
from search.errors import ExperimentError
from spark_jobs.messages import encode
from spark_jobs.storage.local_files import make_folder, open_appending

_SYNC_EVERY = 0.1  # seconds


class JournalDamaged(ExperimentError):
    """A journal is not what was written; the message names file and line.

    Args:
        what: What is wrong, and where.
        hint: What to do about it.
        segment: Number of the segment that the damage is in; 0 where every line is as it was
            written, and it is only what one says that cannot be.
        whole: Bytes of that segment before the damage.
    """

    def __init__(self, what: str, hint: str = "", *, segment: int = 0, whole: int = 0) -> None:
        super().__init__(f"{what}; {hint}" if hint else what)
        self.what = what
        self.segment = segment
        self.whole = whole


class Journal:
    """Appends to a new segment of a journal. Thread safe.

    Args:
        folder: Of the segments; made where it is missing. No older segment is ever written to.
        number: Of the new segment; one after the newest in the folder when left out.

    Raises:
        FileExistsError: There is a segment of that number.
        OSError: It cannot be made.
    """

    def __init__(self, folder: Path, number: int | None = None) -> None:
        make_folder(folder)
        if number is None:
            number = 1 + max(segment_numbers(folder), default=0)
        self.path = folder / segment_name(number)
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
            OSError: It could not be written, or what was written before could not be synced. From
                then on no record is taken: none may follow what may be lost, or half of a line.
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
        """Bring everything to the disk and close the segment.

        Raises:
            OSError: Not all of it is there.
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

    def discard(self) -> None:
        """Remove the segment, in which nothing is. It is closed as any other."""
        self.path.unlink()

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
        except OSError as error:  # a second one would not try again what the first has lost
            self._error = error


def encode_line(record: Any) -> bytes:
    """Return a record as a line of a journal."""
    data = encode(record)
    return b"%08x %s\n" % (zlib.crc32(data), data)


class JournalRewritten(Exception):
    """Records that a `JournalReader` has yielded count no more: a new one has to begin anew."""


class JournalReader:
    """Reads a journal from where its last look ended.

    The torn last line of a segment, as a killed driver leaves it, was never acknowledged and is
    passed over; so are zeros at its end, as a file system may leave them when the power fails. A
    line that lacks nothing but its line end counts. What a driver wrote after another one had taken
    the run over, and had begun a segment, does not.

    Args:
        folder: Of the segments.
        run: What users call the run's folder; the one above `folder` when left out.
    """

    def __init__(self, folder: Path, run: str = "") -> None:
        self._folder, self._run = folder, run or str(folder.parent)
        self._segments: list[_Segment] = []

    def new(self) -> Iterator[dict[str, Any]]:
        """Yield the records that were not there at the last look, in order; at the first one, all.

        Raises:
            JournalRewritten: Records of an earlier look count no more, since they were written too
                late, or the journal was cut.
            JournalDamaged: A whole line does not match its checksum, a segment is missing, or one
                has fewer records before it than it was begun after.
            InvalidArgument: A segment is of a newer format.
            OSError: It cannot be read.
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
                raise segment.damaged("there are later segments, and it is missing")
            later = begun[segment.number :]
            taken = next((record for record in later if record is not None), None)
            try:
                yield from segment.new(before, taken)
            except JournalDamaged:
                if self._begun() == begun:
                    raise
                return  # a driver has begun meanwhile: the next look knows what counts
            before += segment.count

    def _begun(self) -> list[dict[str, Any] | None]:
        """Return what begins each segment; None of one that has no whole line yet."""
        return [segment.begun() for segment in self._segments]


def read_journal(folder: Path, run: str = "") -> Iterator[dict[str, Any]]:
    """Yield the records of a journal, in order; see `JournalReader`."""
    return JournalReader(folder, run).new()


def segment_name(number: int) -> str:
    """Return the name of a segment's file."""
    return f"{number:06d}.jsonl"


def segment_numbers(folder: Path) -> list[int]:
    """Return the numbers of the segments in a folder, from the oldest; none where there is none."""
    try:  # not glob, which takes a folder that may not be read for an empty one
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    numbers = [int(match[1]) for name in names if (match := _SEGMENT.fullmatch(name))]
    return sorted(number for number in numbers if segment_name(number) in names)


_SEGMENT = re.compile(r"(\d{6,})\.jsonl", re.ASCII)


@dataclass(slots=True, kw_only=True)
class _Segment:
    """A segment, and how far it was read.

    Attributes:
        path: Its file.
        run: What users call the run's folder.
        number: From 1.
        count: How many of its records have counted.
        whole: Bytes of the lines that were read with their line ends.
        lines: How many these are.
        unended: The line after them, if it lacked nothing but its line end and has counted.
    """

    path: Path
    run: str
    number: int
    count: int = 0
    whole: int = 0
    lines: int = 0
    unended: bytes = b""

    def begun(self) -> dict[str, Any] | None:
        """Return the record that begins it; None where it has none."""
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            record = _decode_line(file.readline().rstrip(b"\0").removesuffix(b"\n"))
            if record is not None and _begins(record):
                return record
        return None

    def new(self, before: int, taken: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
        """Yield the records since the last look that count.

        Args:
            before: How many there are in the segments before it.
            taken: What begins the segment of the driver that took the run over; None without one.
        """
        most = math.inf if taken is None else taken["records"] - before
        if self.count:
            if self.count > most:
                raise JournalRewritten
            if self.count == most:
                return
        for record in self._read(before):
            # The same segment twice is damage, and not one that nobody took over.
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
                    return  # torn
            if not unended:
                self._check(record, number, before, self.whole)
            has_counted, unended = bool(unended), b""
            if line.endswith(b"\n"):
                self.whole, self.lines = self.whole + end, number
            else:
                self.unended = line[:end]
            if not has_counted:
                yield record
            if end < len(line):
                raise self.damaged("its end was changed", number, self.whole + end)

    def _rest(self, unended: bytes) -> bytes:
        """Return what follows the whole lines that were read."""
        with self.path.open("rb") as file:
            cut = os.fstat(file.fileno()).st_size < self.whole
            file.seek(self.whole)
            rest = file.read().rstrip(b"\0")
        if cut or not rest.startswith(unended):
            raise JournalRewritten
        return rest

    def _check(self, record: dict[str, Any], line: int, before: int, whole: int) -> None:
        if not _begins(record):
            if line == 1:
                raise self.damaged("not what a segment begins with", line, whole)
            return
        check_format(record["format"], self.run)
        if line > 1:
            raise self.damaged("another segment begins", line, whole)
        if record["records"] != before:
            reason = f"begun after {record['records']} records, and there are {before}"
            raise self.damaged(reason, line, whole)

    def damaged(self, reason: str, line: int | None = None, whole: int = 0) -> JournalDamaged:
        where = f"{self.run}/{self.path.parent.name}/{self.path.name}"
        where += "" if line is None else f", line {line}"
        hint = f"to go on without the rest: {command('repair', self.run)}"
        return JournalDamaged(f"{where}: {reason}", hint, segment=self.number, whole=whole)


def _begins(record: dict[str, Any]) -> bool:
    """Is it the record that begins a segment, of any format?"""
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
