"""Reading from HDFS over WebHDFS, through dead DataNodes and a NameNode that restarts.

The package `hdfs` speaks the protocol. It has no time-outs unless told, does not retry, and takes a
connection that breaks off for the end of the file; all three are made good for here.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, TypeVar

import hdfs
import requests
import tenacity
import urllib3

from spark_jobs.files import CHANGED, CHUNK, FileStatus, Sink, check_complete
from spark_jobs.hadoop import HadoopSettings
from spark_jobs.locations import Location

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds for which a cluster may be in trouble before a call gives up."""

_TIMEOUT = (5.0, 30.0)  # seconds to connect, and between two pieces of an answer
_LONGEST_PAUSE = 3.0  # seconds between two tries

# Of a NameNode that starts or fails over, or of a DataNode that is gone.
_TRANSIENT = {
    "BlockMissingException",
    "ConnectException",
    "EOFException",
    "NoRouteToHostException",
    "RetriableException",
    "SafeModeException",
    "SocketException",
    "SocketTimeoutException",
    "StandbyException",
}
_TRANSIENT_TEXTS = (
    "Bad connect ack",
    "Could not obtain block",
    "Failed to find datanode",
    "No active and not excluded nodes",
)


class WebHdfs:
    """Files of one HDFS. See `Files`.

    Args:
        location: Any location of that HDFS.
        settings: Where it is, and who asks.
        patience: Seconds for which it is asked again while it is in trouble.

    Raises:
        InvalidArgument: The settings do not say where it is.
    """

    def __init__(
        self, location: Location, settings: HadoopSettings, patience: float = PATIENCE
    ) -> None:
        self._urls, self._user = settings.namenodes(location), settings.user
        self._patience = patience
        session = requests.Session()
        session.trust_env = False  # a proxy for the outside is none for the cluster
        session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or True
        if settings.user:
            session.params = {"user.name": settings.user}
        self._session = session
        self._client = hdfs.Client(";".join(self._urls), timeout=_TIMEOUT, session=session)

    def status(self, location: Location) -> FileStatus:
        """See `Files`."""
        return _status(location, self._ask(location, lambda: self._client.status(location.path)))

    def listdir(self, location: Location) -> list[FileStatus]:
        """See `Files`."""
        entries = self._ask(location, lambda: self._client.list(location.path, status=True))
        folder = location.path.rstrip("/")
        return [_status(location.at(f"{folder}/{name}"), entry) for name, entry in sorted(entries)]

    def read(self, status: FileStatus, sink: Sink, offset: int = 0) -> None:
        """See `Files`. Goes on where a connection broke off."""
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
        while before != reached < status.length:  # as long as each try brings something
            before = reached
            self._ask(location, read_on)
        check_complete(status, status.length - reached)

    def close(self) -> None:
        """See `Files`."""
        self._session.close()

    def _ask(self, location: Location, call: Callable[[], T]) -> T:
        """Call until it works or cannot work; errors become OSErrors of one sentence."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_transient),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE),
            stop=tenacity.stop_after_delay(self._patience),
            reraise=True,
        )
        try:
            return retrying(call)
        except hdfs.HdfsError as error:
            raise self._refused(location, error) from None
        except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
            raise self._unreachable(location, error) from None

    def _refused(self, location: Location, error: hdfs.HdfsError) -> OSError:
        text = str(error).split("\n")[0][:300]  # a Java stack trace may follow
        who = f"as user {self._user or 'nobody'} at {' or '.join(self._urls)}"
        if error.exception == "FileNotFoundException":
            return FileNotFoundError(errno.ENOENT, f"no such file or folder, {who}", str(location))
        if error.exception in ("AccessControlException", "SecurityException"):
            return PermissionError(errno.EACCES, f"no permission, {who}: {text}", str(location))
        if "out of the range" in text:
            return OSError(f"{location}: it became shorter while it was read; {CHANGED}")
        if "Hadoop IPC port" in text:
            return OSError(
                f"{location}: {' or '.join(self._urls)} is Hadoop's RPC port; WebHDFS answers on "
                "another, by default 9870"
            )
        return OSError(f"{location}: HDFS refused it {who}: {error.exception or ''} {text}")

    def _unreachable(self, location: Location, error: Exception) -> OSError:
        reason = _root_cause(error)
        return OSError(
            f"{location}: no WebHDFS at {' or '.join(self._urls)} within {self._patience:g} s "
            f"({reason}); is the address right, and does the NameNode run?"
        )


def _status(location: Location, entry: dict[str, Any]) -> FileStatus:
    folder = entry["type"] == "DIRECTORY"
    return FileStatus(location, int(entry["length"]), str(entry["modificationTime"]), folder)


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, hdfs.HdfsError):
        text = str(error)
        return error.exception in _TRANSIENT or any(part in text for part in _TRANSIENT_TEXTS)
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.SSLError):
        return False
    if _root_cause(error).startswith("Name or service not known"):
        return False
    return isinstance(
        error,
        requests.ConnectionError
        | requests.Timeout
        | requests.exceptions.ChunkedEncodingError
        | urllib3.exceptions.HTTPError
        | ConnectionError
        | TimeoutError,
    )


def _root_cause(error: BaseException) -> str:
    """Return in a few words what lies behind the errors of requests and urllib3."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        inner = getattr(error, "reason", None) or error.__cause__ or error.__context__
        nested = next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        found = inner if isinstance(inner, BaseException) else nested
        if found is None:
            break
        error = found
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).split("\n")[0][:200] or type(error).__name__
