"""How a session of WebHDFS says who asks: by a token, by a Kerberos ticket, or by a name."""

from __future__ import annotations

import base64
import errno
import logging
import re
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase

from search.errors import InvalidArgument
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location

_TOKEN = re.compile(r"(delegation=)[^&\s'\"<>]+", re.IGNORECASE)
# Those that write the addresses of requests, which the token is a part of, or whole answers.
_LOGGERS = ("hdfs.client", "urllib3.connection", "urllib3.connectionpool", "urllib3.util.retry")


def authenticate(session: requests.Session, location: Location, settings: HadoopSettings) -> None:
    """Let all requests of a session say who asks.

    Args:
        session: To change.
        location: Any location of the HDFS.
        settings: Where it is, and who asks.

    Raises:
        InvalidArgument: The HDFS wants Kerberos, and there is neither a token nor the package that
            shows tickets.
    """
    token = settings.token(location)
    if token or settings.is_secured:  # with a ticket, NameNodes make tokens for DataNodes
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_hide_token)
    if token:
        session.params = {"delegation": token}
    elif settings.is_secured:
        session.auth = _Tickets(location, settings.namenodes(location))
    elif settings.user:
        session.params = {"user.name": settings.user}


def without_token(text: str) -> str:
    """Return a text in which no address shows a token any more."""
    return _TOKEN.sub(r"\1...", text)


def why_denied(exception: str | None, text: str, who: str) -> str:
    """Return a sentence on why HDFS does not let in who asks; '' where that is not its trouble.

    Args:
        exception: Name of the NameNode's exception.
        text: What that said.
        who: Asked whom.
    """
    if "InvalidToken" in f"{exception} {text}":  # as a rule inside of a SecurityException
        reason = text.rpartition("InvalidToken: ")[2]
        return (
            f"the delegation token is not accepted, {who} ({reason}); it lives for 7 days unless "
            "the cluster says otherwise, and as long as the driver renews it"
        )
    if exception in ("AccessControlException", "SecurityException"):
        return f"no permission, {who}: {text}"
    if text.startswith("Authentication failure"):
        return (
            f"not let in, {who}: this HDFS wants Kerberos; type kinit, and set HADOOP_CONF_DIR to "
            "its configuration, which has to say so"
        )
    return ""


class _Tickets(AuthBase):
    """Shows a Kerberos ticket to NameNodes (SPNEGO, RFC 4559); DataNodes get a token from these."""

    def __init__(self, location: Location, namenodes: tuple[str, ...]) -> None:
        try:
            import gssapi
        except ImportError:
            raise InvalidArgument(
                str(location),
                "a delegation token or the package gssapi, since this HDFS wants Kerberos",
                "neither",
                "for a search add the HDFS to spark.kerberos.access.hadoopFileSystems; without "
                "Spark type pip install 'spark-tf-experiment[kerberos]' and kinit",
            ) from None
        self._gssapi: Any = gssapi
        self._location = location
        self._namenodes = {urlsplit(url).netloc for url in namenodes}

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        address = urlsplit(request.url or "")
        if address.netloc in self._namenodes:
            shown = base64.b64encode(self._ticket(str(address.hostname))).decode()
            request.headers["Authorization"] = f"Negotiate {shown}"
        return request

    def _ticket(self, host: str) -> bytes:
        gssapi = self._gssapi
        try:
            # Asked first, as SPNEGO does not say that there is no ticket.
            gssapi.Credentials(usage="initiate", mechs=[gssapi.MechType.kerberos])
            server = gssapi.Name(f"HTTP@{host}", gssapi.NameType.hostbased_service)
            mechanism = gssapi.OID.from_int_seq("1.3.6.1.5.5.2")
            context = gssapi.SecurityContext(name=server, usage="initiate", mech=mechanism)
            return bytes(context.step() or b"")
        except gssapi.exceptions.GSSError as error:
            reason = error.get_all_statuses(error.min_code, False)[-1].rstrip("\0")
            raise PermissionError(
                errno.EACCES,
                f"no Kerberos ticket for the NameNode at {host} ({reason}); type kinit, or for a "
                "search add the HDFS to spark.kerberos.access.hadoopFileSystems",
                str(self._location),
            ) from None


def _hide_token(record: logging.LogRecord) -> bool:
    record.msg, record.args = without_token(record.getMessage()), ()
    return True
