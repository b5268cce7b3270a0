"""Files of the stores that fsspec knows."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Any

from search.errors import shown
from spark_jobs.storage.files import CHUNK, FileStatus, Sink, check_complete, entry_of
from spark_jobs.storage.locations import Location


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
                self._status(entry_of(location, _last_part(entry["name"])), entry)
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
        return FileStatus(
            location=location,
            length=length,
            version="" if folder else self._version(location),
            is_folder=folder,
        )

    def _version(self, location: Location) -> str:
        return str(self._system.ukey(_key(location)))


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


def _last_part(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]
