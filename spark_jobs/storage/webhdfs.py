"""Files on HDFS over WebHDFS, which survives dead DataNodes and a NameNode that restarts.

The package `hdfs` speaks the protocol. By default it has no time-outs, does not retry, and takes a
broken connection for the end of the file; this module adds what is missing.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import hdfs
import requests
import urllib3

from spark_jobs import time_limits
from spark_jobs.retrying import call_again
from spark_jobs.storage.authentication import authenticate, why_denied, without_token
from spark_jobs.storage.files import (
    CHANGED,
    CHUNK,
    FileStatus,
    Sink,
    StoreUnavailable,
    beside,
    check_complete,
    entry_of,
    pieces,
    wrong_length,
)
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.hdfs_errors import (
    is_transient,
    is_unknown_name,
    root_cause,
    server_of,
    untrusted,
)
from spark_jobs.storage.locations import Location

T = TypeVar("T")

_TIMEOUT = time_limits.HDFS_CONNECT, time_limits.HDFS_PIECE
_SENDING = time_limits.HDFS_PIECE, time_limits.HDFS_WRITTEN
_LONGEST_PAUSE = 3.0  # seconds between two tries
_SAY = 5.0  # seconds without an answer after which the user is warned

_BELOW_FILE = "(is not a directory)"
_LOGGER = logging.getLogger("experiment")


class WebHdfs:
    """Files of one HDFS, as `WritableFiles`.

    Args:
        location: Any location of the HDFS.
        settings: Addresses, user and tokens.
        patience: Seconds for which failed requests are repeated.

    Raises:
        InvalidArgument: The settings lack the HDFS's address.
    """

    def __init__(
        self,
        location: Location,
        settings: HadoopSettings,
        patience: float = time_limits.HDFS_OUTAGE,
    ) -> None:
        urls = settings.namenodes(location)
        self._where = " or ".join(urls)
        self._namenodes = {urlsplit(url).netloc.lower() for url in urls}
        self._user = settings.user
        self._patience = patience
        self._silent = True  # until the warning that HDFS does not answer
        session = requests.Session()
        session.trust_env = False  # no proxy between us and the cluster
        session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or True
        session.hooks["response"].append(_with_name_as_asked)
        authenticate(session, location, settings)
        self._session = session
        self._client = _Client(";".join(urls), timeout=_TIMEOUT, session=session)

    def status(self, location: Location) -> FileStatus:
        """Return the file or folder at a location."""
        return self._ask(location, lambda: _status(location, self._client.status(location.path)))

    def listdir(self, location: Location) -> list[FileStatus]:
        """Return the files and folders in a folder, sorted by name."""

        def ask() -> list[FileStatus]:
            try:
                entries = self._client.list(location.path, status=True)
            except hdfs.HdfsError as error:
                # The package's own error: HDFS answers with the file.
                if error.exception is None and str(error).endswith(" is not a directory."):
                    reason = os.strerror(errno.ENOTDIR)
                    raise NotADirectoryError(errno.ENOTDIR, reason, str(location)) from None
                raise
            return [_status(entry_of(location, name), entry) for name, entry in sorted(entries)]

        return self._ask(location, ask)

    def names(self, location: Location) -> list[str]:
        """Return the names in a folder, sorted."""
        return [status.location.name for status in self.listdir(location)]

    def read(self, status: FileStatus, sink: Sink, offset: int = 0) -> None:
        """Pass a file's bytes to `sink`; resumes after a broken connection."""
        location, reached = status.location, offset

        def read_on() -> None:
            nonlocal reached
            length = status.length - reached
            if length <= 0:
                return
            with self._client.read(
                location.path, offset=reached, length=length, chunk_size=CHUNK
            ) as pieces:
                for data in pieces:
                    sink(data)
                    reached += len(data)

        before = -1
        while before != reached < status.length:  # while each try makes progress
            before = reached
            try:
                self._ask(location, read_on)
            except ConnectionError:
                if reached == before:
                    raise
        check_complete(status, status.length - reached)

    def make_folder(self, location: Location) -> None:
        """Create a folder and its parents."""
        self._ask(location, lambda: self._client.makedirs(location.path, permission="700"))

    def write(self, location: Location, source: Path | bytes, length: int | None = None) -> None:
        """Write a file; readers see it once it is complete."""
        parts: list[Location] = []

        def send() -> None:
            parts.append(beside(location))  # one per try: an earlier try may still be writing
            problems: list[OSError] = []
            data = _upto_problem(pieces(source, length), problems)
            self._client.write(parts[-1].path, data=data, permission="600")
            if problems:
                raise problems[0]

        try:
            self._ask(location, send)
            self.rename(parts[-1], location)
            parts.pop()
        finally:
            for part in parts:
                with contextlib.suppress(Exception):  # the first error counts
                    self._client.delete(part.path)

    def append(self, location: Location, data: bytes, offset: int) -> None:
        """Append to a file, also where an earlier try has written a part."""
        upto, tries = offset + len(data), 0

        def send() -> None:
            nonlocal tries
            tries += 1
            there = self._client.status(location.path)["length"]  # perhaps a part of it
            if not offset <= there <= upto:
                raise wrong_length(location, offset, there)
            if there < upto:
                self._client.write(location.path, data=data[there - offset :], append=True)
                if tries > 1:  # an earlier try may have written meanwhile
                    found = self._client.status(location.path)["length"]
                    if found != upto:
                        raise wrong_length(location, upto, found)

        self._ask(location, send)

    def rename(self, location: Location, new: Location, *, replace: bool = True) -> None:
        """Rename a file in one step."""
        # The options that rename in one step.
        options = "OVERWRITE" if replace else "NONE"
        sent = self._client.sent
        before = sent.number

        def send() -> None:
            try:
                answer = self._client._rename(
                    location.path, destination=new.path, renameoptions=options
                )
                if not answer.content or answer.json()["boolean"]:  # a NameNode's is empty
                    return
                if sent.number > before + 1:
                    self._client.status(location.path)  # missing if an earlier request succeeded
            except hdfs.HdfsError as error:
                if error.exception == "FileAlreadyExistsException" and not replace:
                    reason = os.strerror(errno.EEXIST)
                    raise FileExistsError(errno.EEXIST, reason, str(new)) from None
                if error.exception != "FileNotFoundException" or sent.number == before + 1:
                    raise
                # An earlier request succeeded, perhaps at another NameNode; its answer was lost.
                self._client.status(new.path)
            else:
                raise OSError(
                    f"{new}: {self._where} has renamed no file to it; HttpFS does not replace "
                    "files, so give the address of a NameNode"
                )

        self._ask(location, send)

    def touch(self, location: Location) -> None:
        """Set a file's modification time to now."""

        def send() -> None:
            self._client.set_times(location.path, modification_time=time.time_ns() // 1_000_000)

        self._ask(location, send)

    def remove(self, location: Location) -> None:
        """Remove a file, or a folder with its content."""
        self._ask(location, lambda: self._client.delete(location.path, recursive=True))

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _ask(self, location: Location, call: Callable[[], T]) -> T:
        """Call until success or a permanent error; errors become OSErrors of one sentence."""
        try:
            answer = call_again(
                call,
                after=self._is_transient,
                outage=self._patience,
                pause=0.1,
                longest_pause=_LONGEST_PAUSE,
                tell=self._say,
            )
            self._silent = True
            return answer
        except hdfs.HdfsError as error:
            raise self._refused(location, error) from None
        except requests.exceptions.InvalidURL as error:
            raise self._unreachable(location, error) from None
        except UnicodeEncodeError:
            raise OSError(f"{str(location)!a}: a name that UTF-8 cannot hold") from None
        except (ValueError, LookupError, TypeError):  # for unexpected answers
            raise OSError(
                f"{location}: the server at {self._where} is no WebHDFS; is the address right?"
            ) from None
        except requests.exceptions.SSLError as error:
            if "CERTIFICATE" in root_cause(error).upper():
                raise untrusted(location, error) from None
            raise self._unreachable(location, error) from None
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise self._unreachable(location, error) from None

    def _say(self, error: BaseException, seconds: float) -> None:
        if self._silent and seconds >= _SAY:
            self._silent = False
            _LOGGER.warning(
                "%s does not answer (%s); retrying for %g s",
                self._datanode(error) or self._where,
                root_cause(error),
                self._patience,
            )

    def _refused(self, location: Location, error: hdfs.HdfsError) -> OSError:
        text = without_token(str(error).split("\n")[0][:300])  # a Java stack trace may follow
        if self._is_transient(error):
            return StoreUnavailable(f"{location}: HDFS failed for {self._patience:g} s: {text}")
        who = f"as user {self._user or 'nobody'} at {self._where}"
        # Users other than the superuser may not go through a file as if it were a folder.
        is_below_file = error.exception == "AccessControlException" and _BELOW_FILE in text
        if error.exception == "FileNotFoundException" or is_below_file:
            return FileNotFoundError(errno.ENOENT, f"no such file or folder, {who}", str(location))
        if denied := why_denied(error.exception, text, who):
            return PermissionError(errno.EACCES, denied, str(location))
        if "out of the range" in text:
            return OSError(f"{location}: it became shorter while it was read; {CHANGED}")
        if "Hadoop IPC port" in text:
            return OSError(
                f"{location}: {self._where} is Hadoop's RPC port; WebHDFS answers on "
                "another, by default 9870"
            )
        return OSError(
            f"{location}: HDFS refused the request {who}: {error.exception or ''} {text}"
        )

    def _unreachable(self, location: Location, error: Exception) -> OSError:
        """Return a StoreUnavailable if HDFS may answer later, else an OSError."""
        reason = root_cause(error)
        kind = StoreUnavailable if self._is_transient(error) else OSError
        if datanode := self._datanode(error):
            return kind(
                f"{location}: no answer from {datanode} within {self._patience:g} s ({reason}); "
                f"can this host reach it? {self._where} has named it"
            )
        return kind(
            f"{location}: no WebHDFS at {self._where} within {self._patience:g} s "
            f"({reason}); is the address right, and does the NameNode run?"
        )

    def _is_transient(self, error: BaseException) -> bool:
        # The name of a DataNode, or of one of two NameNodes, may be gone since it has died. Without
        # any NameNode that has a known name, the address is wrong.
        if is_unknown_name(error):
            return not self._namenodes <= self._client.unknown
        return is_transient(error)

    def _datanode(self, error: BaseException) -> str:
        """Return the DataNode that a failed request went to; '' for a NameNode, or if unknown."""
        server = server_of(error)
        return "" if not server or server in self._namenodes else f"the DataNode {server}"


class _Sent(threading.local):
    """The number of requests that a thread has sent."""

    number = 0


class _Client(hdfs.Client):  # type: ignore[misc]  # hdfs has no types
    """The package's client, which asks each NameNode once.

    Attributes:
        sent: The number of requests.
        unknown: The servers of the last requests to them whose names are not known.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sent = _Sent()
        self.unknown: set[str] = set()

    def resolve(self, hdfs_path: str) -> str:
        """Return a path unchanged: the package takes "#LATEST" for the newest file of a folder."""
        return hdfs_path

    def _request(self, method: str, url: str, **kwargs: Any) -> requests.Response:
        self.sent.number += 1
        try:
            answer: requests.Response = self._session.request(
                method,
                url,
                timeout=self._timeout if kwargs.get("data") is None else _SENDING,
                headers={"content-type": "application/octet-stream"},  # for HttpFS
                **kwargs,
            )
        except requests.ConnectionError as error:
            if is_unknown_name(error):
                self.unknown.add(server_of(error))
            raise
        self.unknown.discard(urlsplit(url).netloc.lower())
        return answer


def _with_name_as_asked(answer: requests.Response, **_: Any) -> None:
    """Let a redirect to a DataNode keep the name of the file, as it was asked for.

    The NameNode writes it in composed characters (NFC), which may be the name of another file.
    """
    if "location" not in answer.headers:
        return
    asked = urlsplit(str(answer.request.url)).path
    with contextlib.suppress(ValueError):  # no URL, which requests says
        there = urlsplit(answer.headers["location"])
        if asked != there.path and _composed(asked) == unquote(there.path):
            answer.headers["location"] = there._replace(path=asked).geturl()


def _composed(path: str) -> str:
    return unicodedata.normalize("NFC", unquote(path))


def _upto_problem(data: Iterator[bytes], problems: list[OSError]) -> Iterator[bytes]:
    """Yield data up to an error of reading it, so that the connection ends in order."""
    try:
        yield from data
    except OSError as error:
        problems.append(error)


def _status(location: Location, entry: dict[str, Any]) -> FileStatus:
    folder = entry["type"] == "DIRECTORY"
    changed = int(entry["modificationTime"])
    length = int(entry["length"])
    return FileStatus(
        location=location,
        length=length,
        version=str(changed),
        is_folder=folder,
        modified=changed / 1000,
    )
