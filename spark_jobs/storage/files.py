"""Files wherever they lie: how to read and write them, on this host and on all but HDFS."""

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
from spark_jobs.storage.local_files import make_folder, open_appending, open_new
from spark_jobs.storage.locations import Location

CHUNK = 1 << 20
CHANGED = "it was changed meanwhile"
Sink = Callable[[bytes], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """A file or a folder, as it is at a moment.

    Attributes:
        location: Where it is.
        length: Bytes; 0 for a folder.
        version: Changes with the content, such as the time of modification.
        is_folder: Is it a folder?
        is_link: Is it a symbolic link to that?
        modified: When it was changed last, in seconds since 1970; 0 where the place does not say.
    """

    location: Location
    length: int
    version: str
    is_folder: bool
    is_link: bool = field(default=False, compare=False)
    modified: float = field(default=0.0, compare=False)


class Files(Protocol):
    """A place that holds files. Not shared between processes: made in the one that uses it.

    Every method raises FileNotFoundError, PermissionError, or another OSError, each with one
    sentence that names the location.
    """

    def status(self, location: Location) -> FileStatus:
        """Return what is at a location."""

    def listdir(self, location: Location) -> list[FileStatus]:
        """Return what is in a folder, sorted by name."""

    def read(self, status: FileStatus, sink: Sink, offset: int = 0) -> None:
        """Hand a file's bytes to `sink`, in order, from `offset` to the length in `status`.

        Raises:
            OSError: Among others where the file is shorter than that by now.
        """

    def close(self) -> None:
        """Let go of connections."""


class WritableFiles(Files, Protocol):
    """A place that files can be written to. Folders get mode 0700, files 0600."""

    def names(self, location: Location) -> list[str]:
        """Return the names of what is in a folder, sorted, without looking at each."""

    def make_folder(self, location: Location) -> None:
        """Make a folder and its parents; fine where it is there already."""

    def write(self, location: Location, source: Path | bytes, length: int | None = None) -> None:
        """Put a file there, whole or not at all, in the place of a file that is there.

        Args:
            location: In a folder that is there.
            source: The content, or a file of this host with it.
            length: How many of its bytes, from its start; all when left out.
        """

    def append(self, location: Location, data: bytes, offset: int) -> None:
        """Add to the end of a file.

        Args:
            location: The file.
            data: To add.
            offset: The length that the file has before.

        Raises:
            OSError: Among others where it has another length; part of the data may be there then.
        """

    def rename(self, location: Location, new: Location, *, replace: bool = True) -> None:
        """Give a file another name, in the place of a file that bears it.

        Args:
            location: The file.
            new: Its new name.
            replace: May there be a file that bears it? Of several processes that may not replace
                one, a single one gets the name.

        Raises:
            FileExistsError: There is one, and it may not be replaced.
        """

    def touch(self, location: Location) -> None:
        """Make this moment, by the clock of this host, the time at which a file was changed last.

        It takes no room, on HDFS no DataNode, and the file has another version afterwards.
        """

    def remove(self, location: Location) -> None:
        """Remove a file, or a folder with all that it holds; fine where nothing is."""


class LocalFiles:
    """Files of this host. See `WritableFiles`."""

    def status(self, location: Location) -> FileStatus:
        """See `Files`."""
        try:
            found = os.stat(location.path)
        except NotADirectoryError:  # below a file there is nothing
            reason = os.strerror(errno.ENOENT)
            raise FileNotFoundError(errno.ENOENT, reason, location.path) from None
        return _status(location, found, is_link=os.path.islink(location.path))

    def listdir(self, location: Location) -> list[FileStatus]:
        """See `Files`."""
        found = []
        with os.scandir(location.path) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                with _unless_gone():
                    there = location.at(entry.path)
                    found.append(_status(there, entry.stat(), is_link=entry.is_symlink()))
        return found

    def names(self, location: Location) -> list[str]:
        """See `WritableFiles`."""
        return sorted(os.listdir(location.path))

    def read(self, status: FileStatus, sink: Sink, offset: int = 0) -> None:
        """See `Files`."""
        left = status.length - offset
        with open(status.location.path, "rb") as file:
            file.seek(offset)
            while left > 0 and (data := file.read(min(CHUNK, left))):
                sink(data)
                left -= len(data)
        check_complete(status, left)

    def make_folder(self, location: Location) -> None:
        """See `WritableFiles`."""
        make_folder(Path(location.path))

    def write(self, location: Location, source: Path | bytes, length: int | None = None) -> None:
        """See `WritableFiles`."""
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
        """See `WritableFiles`."""
        there = os.stat(location.path).st_size
        if there != offset:
            raise wrong_length(location, offset, there)
        with os.fdopen(open_appending(Path(location.path)), "ab") as file:
            file.write(data)

    def rename(self, location: Location, new: Location, *, replace: bool = True) -> None:
        """See `WritableFiles`. A name that is not replaced is an empty file's for a moment."""
        if replace:
            os.replace(location.path, new.path)
            return
        os.close(open_appending(Path(new.path), new=True))  # not every place has hard links
        try:
            os.replace(location.path, new.path)
        except BaseException:
            os.unlink(new.path)
            raise

    def touch(self, location: Location) -> None:
        """See `WritableFiles`."""
        now = time.time_ns()  # a file server's clock would be another
        try:
            os.utime(location.path, ns=(now, now))
        except OSError as error:
            error.filename = location.path  # which this one error of Python's does not name
            raise

    def remove(self, location: Location) -> None:
        """See `WritableFiles`."""
        path = Path(location.path)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """See `Files`."""


def check_writable(files: WritableFiles, folder: Location) -> None:
    """Make a folder where it is missing, and write, rename and remove a file in it.

    Raises:
        OSError: One of these cannot be done.
    """
    with contextlib.suppress(FileNotFoundError):
        files.status(folder)  # what is no WebHDFS says so to one who reads, not to one who writes
    files.make_folder(folder)
    probe = folder.below(f".probe-{secrets.token_hex(8)}")
    renamed = folder.below(f"{probe.name}-2")
    files.write(probe, b"1")  # quotas count only what has a byte
    try:
        files.rename(probe, renamed)
    except OSError:
        files.remove(probe)
        raise
    files.remove(renamed)


def entry_of(folder: Location, name: str) -> Location:
    """Return what is listed under a name in a folder.

    Raises:
        OSError: It is a path, which could lead out of the folder that a copy is made in.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise OSError(f"{folder}: {shown(name)} is listed there, which is no name of a file")
    return folder.below(name)


PART = ".part-"
"""How the names of files begin that are being written; nobody reads those."""


def beside(location: Location) -> Location:
    """Return where a file is written to before it gets its name."""
    return location.parent.below(PART + secrets.token_hex(8))


def pieces(source: Path | bytes, length: int | None = None) -> Iterator[bytes]:
    """Yield bytes, or a file of this host piece by piece.

    Raises:
        OSError: It has fewer than `length` bytes, or cannot be read.
    """
    if isinstance(source, bytes):
        yield source[:length]
        return
    with source.open("rb") as file:
        left = os.fstat(file.fileno()).st_size if length is None else length
        while left > 0:
            data = file.read(min(CHUNK, left))
            if not data:
                raise OSError(f"{source}: {left} bytes fewer than before; {CHANGED}")
            left -= len(data)
            yield data


def wrong_length(location: Location, expected: int, found: int) -> OSError:
    """Return the error of an append to a file that is not as long as it should be."""
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


@contextlib.contextmanager
def _unless_gone() -> Iterator[None]:
    """Pass over what is gone meanwhile, and links to nowhere or to themselves."""
    try:
        yield
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
