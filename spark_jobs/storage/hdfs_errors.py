"""What errors of requests to HDFS mean: whether it may answer later, and whose they are."""

from __future__ import annotations

import datetime
from urllib.parse import urlsplit

import hdfs
import requests
import urllib3

from spark_jobs.storage.authentication import without_token
from spark_jobs.storage.locations import Location

# OpenSSL's errors of a certificate that a wrong clock may cause.
_OUT_OF_TIME = ("certificate has expired", "certificate is not yet valid")

# Errors of a NameNode that starts or fails over, and of missing DataNodes.
_TRANSIENT = {
    "BlockMissingException",
    "ConnectException",
    "EOFException",
    "LeaseExpiredException",
    "NoRouteToHostException",
    "NotReplicatedYetException",
    "ReplicaNotFoundException",
    "RetriableException",
    "SafeModeException",
    "SocketException",
    "SocketTimeoutException",
    "StandbyException",
}
_TRANSIENT_TEXTS = (
    "All datanodes",
    "Bad connect ack",
    "Could not obtain block",
    "Failed to find datanode",
    "No active and not excluded nodes",
    "Unable to close file",
    "could only be written to 0 of",
)


def is_transient(error: BaseException) -> bool:
    """Return whether HDFS may answer the same request later."""
    if isinstance(error, hdfs.HdfsError):
        text = str(error)
        return error.exception in _TRANSIENT or any(part in text for part in _TRANSIENT_TEXTS)
    if isinstance(error, requests.exceptions.InvalidURL):
        return False
    if isinstance(error, requests.exceptions.SSLError):
        return "EOF" in root_cause(error)  # from a server that was terminated
    return isinstance(
        error,
        requests.ConnectionError
        | requests.Timeout
        | requests.exceptions.ChunkedEncodingError
        | urllib3.exceptions.HTTPError
        | ConnectionError
        | TimeoutError,
    )


def root_cause(error: BaseException) -> str:
    """Return the root cause of an error of requests or urllib3 in a few words."""
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
    return without_token(str(error).split("\n")[0][:200]) or type(error).__name__


def is_unknown_name(error: BaseException) -> bool:
    """Return whether the name of a server is not known."""
    return root_cause(error).startswith("Name or service not known")


def server_of(error: BaseException) -> str:
    """Return the host and port that a failed request went to; '' if unknown."""
    request = getattr(error, "request", None)
    return "" if request is None else urlsplit(str(request.url)).netloc.lower()


def untrusted(location: Location, error: requests.exceptions.SSLError) -> OSError:
    """Return the error of a server whose certificate is not trusted, with advice."""
    server = server_of(error) or "the cluster"
    cause = root_cause(error)
    advice = "set REQUESTS_CA_BUNDLE, on executors too, to a file with the signer's certificate"
    if any(words in cause for words in _OUT_OF_TIME):
        now = datetime.datetime.now(datetime.UTC)
        advice = f"the clock of this host says {now:%Y-%m-%d %H:%M} UTC; is it right?"
    return OSError(f"{location}: the certificate of {server} is not trusted ({cause}); {advice}")
