"""The output and the files of trials, of a run on this host or of one that is read as a copy."""

from __future__ import annotations

import itertools
import os
import stat
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

from spark_jobs.storage.files import Files, FileStatus
from spark_jobs.storage.locations import Location

TAIL = 20_000
"""Bytes of the end of an output file that are read."""

_MOST_FILES = 500
_MOST_FOLDERS = 50  # each is a request to another store
_KEPT = 64  # ends of output files of another store that are kept in memory


class TrialFiles(Protocol):
    """The files of a run's trials."""

    def look(
        self, folder: str, outputs: Collection[str]
    ) -> tuple[dict[str, int], dict[str, bytes]]:
        """Return sizes of the files below a folder, and the ends of some of them.

        Links are neither followed nor returned.

        Args:
            folder: The path of an attempt's folder in the run's folder.
            outputs: Paths of files in that folder.

        Returns:
            Relative path to bytes, of at most 500 files in order; relative path to at most `TAIL`
            bytes, of those `outputs` that exist.

        Raises:
            OSError: A store does not answer, or refuses the request.
        """


class LocalTrialFiles:
    """The files of a run on this host; see `TrialFiles`.

    Args:
        root: The run's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def look(
        self, folder: str, outputs: Collection[str]
    ) -> tuple[dict[str, int], dict[str, bytes]]:
        """Return sizes of the files below a folder, and the ends of some of them."""
        if has_link(self._root, folder):
            return {}, {}
        place = self._root / folder
        sizes: dict[str, int] = {}
        for path, size in regular_files(place):
            sizes[path.relative_to(place).as_posix()] = size
            if len(sizes) == _MOST_FILES:
                break
        ends = {name: bytes_of(place / name, TAIL) for name in outputs if not has_link(place, name)}
        return sizes, {name: data for name, data in ends.items() if data}


class RemoteTrialFiles:
    """The files of a run in another store; see `TrialFiles`. Thread safe.

    They are read when a page asks for them, so that the copy of a run need not have the output of
    all its trials. Of output that has grown, only the new part is read.

    Args:
        files: The store.
        source: The run's folder there.
    """

    def __init__(self, files: Files, source: Location) -> None:
        self._files = files
        self._source = source
        self._ends: dict[Location, tuple[FileStatus, bytes]] = {}  # the last used one last
        self._lock = threading.Lock()

    def look(
        self, folder: str, outputs: Collection[str]
    ) -> tuple[dict[str, int], dict[str, bytes]]:
        """Return sizes of the files below a folder, and the ends of some of them."""
        with self._lock:
            found = self._found(self._source.below(folder), outputs)
            ends = {name: self._end_of(found[name]) for name in outputs if name in found}
        listed = itertools.islice(found.items(), _MOST_FILES)
        return {name: status.length for name, status in listed}, ends

    def _found(self, folder: Location, outputs: Collection[str]) -> Mapping[str, FileStatus]:
        """Return the files below a folder: 500, and beyond them the output."""
        found: dict[str, FileStatus] = {}
        # The folders of output first: a model of many files must not hide it.
        leading = {str(parent) for name in outputs for parent in PurePosixPath(name).parents}
        first, later = [("", folder)], list[tuple[str, Location]]()
        for _ in range(_MOST_FOLDERS):
            if not first and (not later or len(found) >= _MOST_FILES):
                break
            prefix, place = (first or later).pop(0)
            try:
                listed = self._files.listdir(place)
            except FileNotFoundError:  # not yet uploaded, or removed meanwhile
                continue
            for status in listed:
                name = prefix + status.location.name
                if status.is_link:
                    continue
                if status.is_folder:
                    (first if name in leading else later).append((f"{name}/", status.location))
                elif len(found) < _MOST_FILES or name in outputs:
                    found[name] = status
        return found

    def _end_of(self, status: FileStatus) -> bytes:
        before, known = self._ends.pop(status.location, (None, b""))
        grown = before is not None and before.length <= status.length <= before.length + TAIL
        if before is None or not grown:
            start, known = max(0, status.length - TAIL), b""
        else:
            start = before.length
        parts = [known]
        if before != status:
            try:
                self._files.read(status, parts.append, start)
            except FileNotFoundError:  # removed meanwhile
                return b""
        data = b"".join(parts)[-TAIL:]
        self._ends[status.location] = status, data
        while len(self._ends) > _KEPT:
            del self._ends[next(iter(self._ends))]
        return data


def has_link(folder: Path, relative: str) -> bool:
    """Return whether a path below a folder leads over a link, which may lead out of the folder."""
    path = PurePosixPath(relative)
    return any((folder / part).is_symlink() for part in (path, *path.parents[:-1]))


def regular_files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files below a folder in order, without links, which may lead out of it."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            try:
                status = path.lstat()
            except OSError:  # removed meanwhile
                continue
            if stat.S_ISREG(status.st_mode):
                yield path, status.st_size


def bytes_of(path: Path, most: int) -> bytes:
    """Return the last bytes of a file; all for `most` 0; empty if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):  # os.fdopen would raise for a folder, and leave it open
        os.close(descriptor)
        return b""
    with os.fdopen(descriptor, "rb") as file:
        if most and status.st_size > most:
            file.seek(status.st_size - most)
        return file.read()
