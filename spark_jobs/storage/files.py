"""The interface to files of any store, and its implementation for this host."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from search.errors import shown
from spark_jobs.storage.local_files import (
    look_of,
    make_folder,
    open_appending,
    open_new,
    open_regular,
)
from spark_jobs.storage.locations import Location

CHUNK = 1 << 20
CHANGED = "it was changed meanwhile"
Sink = Callable[[bytes], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """The status of a file or a folder at one moment.

    Attributes:
        location: The location.
        length: Bytes; 0 for a folder.
        version: A value that changes with the content, such as the time of modification.
        is_folder: Whether it is a folder.
        is_link: Whether it is a symbolic link to a file or a folder.
        modified: Time of modification in seconds since 1970; 0 if the store has none.
    """

    location: Location
    length: int
    version: str
    is_folder: bool
    is_link: bool = field(default=False, compare=False)
    modified: float = field(default=0.0, compare=False)


class StoreUnavailable(ConnectionError):
    """A store that does not answer, which is no error of the train function that reads from it."""


class Files(Protocol):
    """A store of files. Create one in each process that uses it.

    Every method raises FileNotFoundError, PermissionError, StoreUnavailable or another OSError,
    each with one sentence that names the location.
    """

    def status(self, location: Location) -> FileStatus:
        """Return the file or folder at a location."""

    def listdir(self, location: Location) -> list[FileStatus]:
        """Return the files and folders in a folder, sorted by name."""

    def read(self, status: FileStatus, sink: Sink, offset: int = 0) -> None:
        """Pass a file's bytes to `sink`, in order, from `offset` to the length in `status`.

        Raises:
            OSError: Also if the file has become shorter.
        """

    def close(self) -> None:
        """Close the connections."""


class WritableFiles(Files, Protocol):
    """A store that can be written to. Folders get mode 0700, files 0600."""

    def names(self, location: Location) -> list[str]:
        """Return the names in a folder, sorted, without the status of each.

        Raises:
            NotADirectoryError: The location is a file; `listdir` raises it, too.
        """

    def make_folder(self, location: Location) -> None:
        """Create a folder and its parents, unless it exists."""

    def write(self, location: Location, source: Path | bytes, length: int | None = None) -> None:
        """Write a file, completely or not at all, replacing an existing one.

        Args:
            location: The file, in an existing folder.
            source: The content, or a file of this host with it.
            length: The number of bytes to take from the start of a source that may grow meanwhile.
                Default: all.

        Raises:
            OSError: Also if the source has become shorter, or changes without a `length`.
        """

    def append(self, location: Location, data: bytes, offset: int) -> None:
        """Add to the end of a file.

        Args:
            location: The file.
            data: The bytes to add.
            offset: The file's length before.

        Raises:
            OSError: Also if the file has another length; then it may have a part of the data.
        """

    def rename(self, location: Location, new: Location, *, replace: bool = True) -> None:
        """Rename a file.

        Args:
            location: The file.
            new: Its new location.
            replace: Whether to replace a file at the new location. Of several processes that do
                not, only one succeeds.

        Raises:
            FileExistsError: There is a file, and `replace` is False.
        """

    def touch(self, location: Location) -> None:
        """Set a file's modification time to now, by the clock of this host.

        This needs no space, and on HDFS no DataNode. It changes the file's version.
        """

    def remove(self, location: Location) -> None:
        """Remove a file, or a folder with its content, if it exists."""


class LocalFiles:
    """Files of this host, as `WritableFiles`."""

    def status(self, location: Location) -> FileStatus:
        """Return the file or folder at a location."""
        try:
            found = os.stat(location.path)
        except NotADirectoryError:  # the parent is a file
            reason = os.strerror(errno.ENOENT)
            raise FileNotFoundError(errno.ENOENT, reason, location.path) from None
        return _status(location, found, is_link=os.path.islink(location.path))

    def listdir(self, location: Location) -> list[FileStatus]:
        """Return the files and folders in a folder, sorted by name."""
        found = []
        with os.scandir(location.path) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                with _unless_gone():
                    there = location.at(entry.path)
                    found.append(_status(there, _stat(entry), is_link=entry.is_symlink()))
        return found

    def names(self, location: Location) -> list[str]:
        """Return the names in a folder, sorted."""
        return sorted(os.listdir(location.path))

    def read(self, status: FileStatus, sink: Sink, offset: int = 0) -> None:
        """Pass a file's bytes to `sink`."""
        left = status.length - offset
        with open_regular(status.location.path) as file:
            file.seek(offset)
            while left > 0 and (data := file.read(min(CHUNK, left))):
                sink(data)
                left -= len(data)
        check_complete(status, left)

    def make_folder(self, location: Location) -> None:
        """Create a folder and its parents."""
        make_folder(Path(location.path))

    def write(self, location: Location, source: Path | bytes, length: int | None = None) -> None:
        """Write a file beside its place, and rename it."""
        part = Path(beside(location).path)
        try:
            with open_new(part) as file:
                for data in pieces(source, length):
                    file.write(data)
            part.replace(location.path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def append(self, location: Location, data: bytes, offset: int) -> None:
        """Append to a file of the expected length."""
        there = os.stat(location.path).st_size
        if there != offset:
            raise wrong_length(location, offset, there)
        with os.fdopen(open_appending(Path(location.path)), "ab") as file:
            file.write(data)

    def rename(self, location: Location, new: Location, *, replace: bool = True) -> None:
        """Rename a file; without `replace`, the new name is an empty file's for a moment."""
        if replace:
            os.replace(location.path, new.path)
            return
        os.close(open_appending(Path(new.path), new=True))  # not every file system has hard links
        try:
            os.replace(location.path, new.path)
        except BaseException:
            os.unlink(new.path)
            raise

    def touch(self, location: Location) -> None:
        """Set a file's modification time to now."""
        now = time.time_ns()  # not a file server's clock, which may differ
        try:
            os.utime(location.path, ns=(now, now))
        except OSError as error:
            error.filename = location.path  # Python's error does not name it here
            raise

    def remove(self, location: Location) -> None:
        """Remove a file, or a folder with its content."""
        path = Path(location.path)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Do nothing: there are no connections."""


def content_of(files: Files, status: FileStatus) -> bytearray:
    """Return a file's bytes, up to the length in `status`."""
    data = bytearray()
    files.read(status, data.extend)
    return data


def check_writable(files: WritableFiles, folder: Location) -> None:
    """Create a folder if it is missing, and write, replace and remove a file in it.

    Raises:
        OSError: One of these failed.
    """
    with contextlib.suppress(FileNotFoundError):
        files.status(folder)  # reading shows a clear error if this is no WebHDFS, writing does not
    files.make_folder(folder)
    probe = folder.below(f".probe-{secrets.token_hex(8)}")
    files.write(probe, b"1")  # an empty file does not count for quotas
    try:
        files.write(probe, b"2")  # by a rename, by which not every gateway to HDFS replaces a file
    finally:
        files.remove(probe)


def entry_of(folder: Location, name: str) -> Location:
    """Return the location of a name that is listed in a folder.

    Raises:
        OSError: The name is a path, which could lead out of the folder of a copy.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise OSError(f"{folder}: {shown(name)} is listed there, which is no name of a file")
    return folder.below(name)


PART = ".part-"
"""Prefix of the names of files that are being written, which readers skip."""


def beside(location: Location) -> Location:
    """Return the temporary location of a file that is being written."""
    return location.parent.below(PART + secrets.token_hex(8))


def pieces(source: Path | bytes, length: int | None = None) -> Iterator[bytes]:
    """Yield bytes, or the content of a file of this host, in pieces.

    Raises:
        OSError: The file has fewer than `length` bytes, changes without a `length`, or cannot be
            read.
    """
    if isinstance(source, bytes):
        yield source[:length]
        return
    with open_regular(source) as file:
        before = look_of(os.fstat(file.fileno()))
        left = before.size if length is None else length
        while left > 0:
            data = file.read(min(CHUNK, left))
            if not data:
                raise OSError(f"{source}: {left} bytes fewer than before; {CHANGED}")
            # Without a length, it would be a mixture of two versions.
            if length is None and look_of(os.fstat(file.fileno())) != before:
                raise OSError(f"{source}: {CHANGED}")
            left -= len(data)
            yield data


def wrong_length(location: Location, expected: int, found: int) -> OSError:
    """Return the error of an append to a file of an unexpected length."""
    return OSError(f"{location}: {found} bytes where {expected} should be; {CHANGED}")


def check_complete(status: FileStatus, left: int) -> None:
    """Raise an OSError where bytes are missing."""
    if left > 0:
        raise OSError(f"{status.location}: {left} bytes fewer than before; {CHANGED}")


def _status(location: Location, found: os.stat_result, *, is_link: bool) -> FileStatus:
    folder = stat.S_ISDIR(found.st_mode)
    length, version = 0 if folder else found.st_size, str(found.st_mtime_ns)
    return FileStatus(
        location=location,
        length=length,
        version=version,
        is_folder=folder,
        is_link=is_link,
        modified=found.st_mtime,
    )


def _stat(entry: os.DirEntry[str]) -> os.stat_result:
    """Return the status of what an entry leads to; its own where we may not know the other.

    So a link into a folder of another user does not hide the other entries.
    """
    try:
        return entry.stat()
    except PermissionError:
        return entry.stat(follow_symlinks=False)


@contextlib.contextmanager
def _unless_gone() -> Iterator[None]:
    """Skip entries that were removed meanwhile, and broken or circular links."""
    try:
        yield
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
