"""Reading files wherever they lie: one protocol, and its implementations but for HDFS."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from search.errors import shown
from spark_jobs.locations import Location

CHUNK = 1 << 20
CHANGED = "it was changed meanwhile"
Sink = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file or a folder, as it is at a moment.

    Attributes:
        location: Where it is.
        length: Bytes; 0 for a folder.
        version: Changes with the content, such as the time of modification.
        is_folder: Is it a folder?
    """

    location: Location
    length: int
    version: str
    is_folder: bool


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


class LocalFiles:
    """Files of this host."""

    def status(self, location: Location) -> FileStatus:
        """See `Files`."""
        try:
            found = os.stat(location.path)
        except NotADirectoryError:  # below a file there is nothing
            reason = os.strerror(errno.ENOENT)
            raise FileNotFoundError(errno.ENOENT, reason, location.path) from None
        folder = Path(location.path).is_dir()
        length = 0 if folder else found.st_size
        return FileStatus(location, length, str(found.st_mtime_ns), folder)

    def listdir(self, location: Location) -> list[FileStatus]:
        """See `Files`."""
        found = []
        for name in sorted(os.listdir(location.path)):
            with contextlib.suppress(FileNotFoundError):  # gone meanwhile, or a link to nowhere
                found.append(self.status(location.at(os.path.join(location.path, name))))
        return found

    def read(self, status: FileStatus, sink: Sink, offset: int = 0) -> None:
        """See `Files`."""
        left = status.length - offset
        with open(status.location.path, "rb") as file:
            file.seek(offset)
            while left > 0 and (data := file.read(min(CHUNK, left))):
                sink(data)
                left -= len(data)
        check_complete(status, left)

    def close(self) -> None:
        """See `Files`."""


class FsspecFiles:
    """Files of any store that fsspec knows: s3, gs, abfs, ... with the package that each takes.

    Args:
        location: Any location of that store.

    Raises:
        OSError: fsspec does not know the scheme, or lacks the package for it.
    """

    def __init__(self, location: Location) -> None:
        import fsspec

        try:
            self._system: Any = fsspec.filesystem(location.scheme)
        except (ImportError, ValueError) as error:
            raise OSError(f"{location}: {error}") from None

    def status(self, location: Location) -> FileStatus:
        """See `Files`."""
        with _named(location):
            return self._status(location, self._system.info(_key(location)))

    def listdir(self, location: Location) -> list[FileStatus]:
        """See `Files`."""
        with _named(location):
            found = [
                self._status(location.at(_path_below(location, entry["name"])), entry)
                for entry in self._system.ls(_key(location), detail=True)
            ]
        return sorted(found, key=lambda status: status.location.path)

    def read(self, status: FileStatus, sink: Sink, offset: int = 0) -> None:
        """See `Files`."""
        location, left = status.location, status.length - offset
        with _named(location):
            file = self._system.open(_key(location), "rb")
        with file:
            with _named(location):
                file.seek(offset)
            while left > 0:
                with _named(location):
                    data = file.read(min(CHUNK, left))
                if not data:
                    break
                sink(data)
                left -= len(data)
        check_complete(status, left)

    def close(self) -> None:
        """See `Files`."""

    def _status(self, location: Location, info: dict[str, Any]) -> FileStatus:
        folder = info["type"] == "directory"
        length = 0 if folder else int(info["size"] or 0)
        return FileStatus(location, length, "" if folder else self._version(location), folder)

    def _version(self, location: Location) -> str:
        return str(self._system.ukey(_key(location)))


def check_complete(status: FileStatus, left: int) -> None:
    """Raise an OSError where bytes are missing."""
    if left > 0:
        raise OSError(f"{status.location}: {left} bytes fewer than before; {CHANGED}")


@contextlib.contextmanager
def _named(location: Location) -> Iterator[None]:
    """Make what a store raises an OSError that names the location."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "no such file or folder", str(location)) from None
    except OSError:
        raise
    except Exception as error:  # each package has errors of its own
        raise OSError(f"{location}: {shown(error)}") from error


def _key(location: Location) -> str:
    """Return what fsspec calls a location."""
    return f"{location.authority}{location.path}"


def _path_below(folder: Location, name: str) -> str:
    return f"{folder.path.rstrip('/')}/{name.rstrip('/').rpartition('/')[2]}"
