"""Files of the stores that fsspec supports."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any

from spark_jobs.storage.files import (
    CHUNK,
    FileStatus,
    Sink,
    StoreUnavailable,
    check_complete,
    entry_of,
)
from spark_jobs.storage.locations import Location, without_secrets

# Names of the base classes of errors of Python, fsspec, aiohttp, requests and botocore.
_NO_ANSWER = {"ClientConnectionError", "ConnectionError", "TimeoutError"}

# Details of a file by which its version is known, the best first. Others, such as the time of the
# last access, change without it.
_VERSIONS = ("ETag", "etag", "Last-Modified", "mtime")

_WEB = ("http", "https")
_PIECE = 16 << 20  # bytes; `spark_jobs.data.records` asks for 8 MiB at a time

_MISSING = (404, 410)
_DENIED = (401, 403)
_BUSY = 429

_OWN_KINDS = (PermissionError, NotADirectoryError, IsADirectoryError)
_LONGEST = 200  # characters of an error


class FsspecFiles:
    """Files of any store that fsspec supports: s3, gs, abfs, ..., each with a package of its own.

    Args:
        location: Any location of the store.

    Raises:
        OSError: fsspec does not support the scheme, its package is missing, or the store needs
            settings that the location does not have.
    """

    def __init__(self, location: Location) -> None:
        import fsspec.core

        top = location.at("/").url  # "::" in a path is a part of a name, not of fsspec's syntax
        try:
            self._system: Any = fsspec.core.url_to_fs(top)[0]
        except Exception as error:  # every package has its own errors
            text = f"{location}: {_masked(str(error), location)}"
            raise OSError(text) from _cause(error, location)

    def status(self, location: Location) -> FileStatus:
        """Return the file or folder at a location."""
        with _named(location):
            self._system.invalidate_cache()  # else many stores return their first listing for ever
            return self._status(location, self._system.info(location.url))

    def listdir(self, location: Location) -> list[FileStatus]:
        """Return the files and folders in a folder, sorted by name."""
        with _named(location):
            self._system.invalidate_cache()
            folder = self._system._strip_protocol(location.url).strip("/")
            found = [
                self._status(entry_of(location, _last_part(entry["name"])), entry)
                for entry in self._system.ls(location.url, detail=True)
                if entry["name"].strip("/") != folder  # an S3 folder may list itself
            ]
        return sorted(found, key=lambda status: status.location.path)

    def read(self, status: FileStatus, sink: Sink, offset: int = 0) -> None:
        """Pass a file's bytes to `sink`."""
        location, left = status.location, status.length - offset
        piece = CHUNK
        options: dict[str, Any] = {}
        if left <= _PIECE:
            piece, options = left, {"cache_type": "none"}  # else stores read up to 50 MB ahead
        reached = offset
        try:
            for data in self._pieces(status, offset, piece, options):
                sink(data)
                reached += len(data)
        except OSError as error:
            # Of a server of the web that knows no ranges; else of a store, or of the sink.
            is_without_ranges = isinstance(error.__cause__, ValueError)
            if offset or location.scheme not in _WEB or not is_without_ranges:
                raise
            position = 0
            for data in self._pieces(status, 0, CHUNK, {"block_size": 0}):  # a stream
                position += len(data)
                if position > reached:
                    sink(data[reached - position :])
                    reached = position
        check_complete(status, status.length - reached)

    def _pieces(
        self, status: FileStatus, offset: int, size: int, options: dict[str, Any]
    ) -> Iterator[bytes]:
        """Yield a file's bytes from an offset, in pieces of at most this size."""
        location, left = status.location, status.length - offset
        with _named(location):
            file = self._system.open(location.url, "rb", **options)
        with file:
            if offset:
                with _named(location):
                    file.seek(offset)
            while left > 0:
                with _named(location):
                    data = file.read(min(size, left))
                if not data:
                    return
                yield data
                left -= len(data)

    def close(self) -> None:
        """Do nothing: fsspec keeps its connections."""

    def _status(self, location: Location, info: dict[str, Any]) -> FileStatus:
        folder = info["type"] == "directory"
        if not folder and info["size"] is None:  # as of many pages on the web
            raise OSError(f"{location}: its server does not say how long it is")
        length = 0 if folder else int(info["size"])
        return FileStatus(
            location=location,
            length=length,
            version="" if folder else self._version(location, info),
            is_folder=folder,
        )

    def _version(self, location: Location, info: dict[str, Any]) -> str:
        # Object stores list a file with other details than they return for the file alone, and
        # Azure's lists its tag without quotes.
        tag = next((info[name] for name in _VERSIONS if info.get(name)), None)
        return str(tag or self._system.ukey(location.url)).strip('"')


@contextlib.contextmanager
def _named(location: Location) -> Iterator[None]:
    """Turn any error of a store into an OSError that names the location."""
    try:
        yield
    except FileNotFoundError as error:
        if (answer := _other_answer(error)) is not None:
            raise _error(answer, location) from _cause(answer, location)
        raise FileNotFoundError(errno.ENOENT, "no such file or folder", str(location)) from None
    except Exception as error:  # every package has its own errors
        cause = _cause(error, location)
        own = cause and isinstance(error, OSError) and not (error.errno and type(error) is OSError)
        if own and not _is_outage(error):
            raise
        raise _error(error, location) from cause


def _error(error: Exception, location: Location) -> OSError:
    # Masked before it becomes one line: a URL may have two spaces in a row.
    said = " ".join(_masked(f"{type(error).__name__}: {error}", location).split())
    text = f"{location}: {said[:_LONGEST]}"
    if _is_outage(error):
        return StoreUnavailable(text)
    if _status_code(error) in _DENIED:
        return PermissionError(text)
    # Without a number, which would pass for one of this host's disk: s3fs often gives EIO.
    return next((kind for kind in _OWN_KINDS if isinstance(error, kind)), OSError)(text)


def _other_answer(error: FileNotFoundError) -> Exception | None:
    """Return what fsspec's HTTP store, too, takes for a missing file: no answer, or another one."""
    cause = error.__cause__
    if not isinstance(cause, Exception):
        return None
    answered = _status_code(cause)
    return cause if _is_of_network(cause) or (answered and answered not in _MISSING) else None


def _status_code(error: BaseException) -> int:
    """Return the status of an answer that is one of aiohttp's errors, else 0."""
    status = getattr(error, "status", 0)
    return status if isinstance(status, int) else 0


def _masked(text: str, location: Location) -> str:
    """Return a text without the secrets of the location's URL and of others."""
    return without_secrets(text.replace(location.url, str(location)))


def _cause(error: Exception, location: Location) -> Exception | None:
    """Return an error, or None if its text, which a traceback prints, has a secret of a URL."""
    text = f"{error!r} {error}"
    return error if _masked(text, location) == text else None


def _is_outage(error: BaseException) -> bool:
    """Return whether a store does not answer, other than for a host name that does not exist."""
    status = _status_code(error)
    if status == _BUSY or status >= 500:
        return True
    if not _is_of_network(error):
        return False
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME:
            return False
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return True


def _is_of_network(error: BaseException) -> bool:
    return bool(_NO_ANSWER & {base.__name__ for base in type(error).__mro__})


def _last_part(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]
