"""Authentication of WebHDFS sessions: by a delegation token, a Kerberos ticket, or a user name."""

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
# Loggers that write the URLs of requests, which contain the token, or whole answers.
_LOGGERS = ("hdfs.client", "urllib3.connection", "urllib3.connectionpool", "urllib3.util.retry")


def authenticate(session: requests.Session, location: Location, settings: HadoopSettings) -> None:
    """Authenticate all requests of a session.

    Args:
        session: The session, which is changed.
        location: Any location of the HDFS.
        settings: Addresses, user and tokens.

    Raises:
        InvalidArgument: The HDFS requires Kerberos, and there is neither a token nor the package
            for tickets.
    """
    token = settings.token(location)
    if token or settings.is_secured:  # with a ticket, NameNodes issue tokens for DataNodes
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_hide_token)
    if token:
        session.params = {"delegation": token}
    elif settings.is_secured:
        session.auth = _Tickets(location, settings.namenodes(location))
    elif settings.user:
        session.params = {"user.name": settings.user}


def without_token(text: str) -> str:
    """Return a text with the tokens in URLs hidden."""
    return _TOKEN.sub(r"\1...", text)


def why_denied(exception: str | None, text: str, who: str) -> str:
    """Return a sentence on why HDFS denies access; '' for any other error.

    Args:
        exception: Name of the NameNode's exception.
        text: Message of that exception.
        who: The user and the address, as "as user ... at ...".
    """
    if "InvalidToken" in f"{exception} {text}":  # usually inside a SecurityException
        reason = text.rpartition("InvalidToken: ")[2]
        return (
            f"the delegation token is not accepted, {who} ({reason}); it is valid while the driver "
            "renews it, for 7 days unless the cluster sets another limit"
        )
    if exception in ("AccessControlException", "SecurityException"):
        return f"no permission, {who}: {text}"
    if text.startswith("Authentication failure"):
        return (
            f"access denied, {who}: this HDFS requires Kerberos; type kinit, and set "
            "HADOOP_CONF_DIR to a configuration that requires it"
        )
    return ""


class _Tickets(AuthBase):
    """Sends a Kerberos ticket to NameNodes (SPNEGO, RFC 4559), which issue tokens for DataNodes."""

    def __init__(self, location: Location, namenodes: tuple[str, ...]) -> None:
        try:
            import gssapi
        except ImportError:
            raise InvalidArgument(
                str(location),
                "a delegation token or the package gssapi, since this HDFS requires Kerberos",
                "neither",
                "for a search add the HDFS to spark.kerberos.access.hadoopFileSystems; without "
                "Spark type: pip install gssapi; kinit",
            ) from None
        self._gssapi: Any = gssapi
        self._location = location
        # requests turns the hosts of URLs into lower case, configurations do not.
        self._namenodes = {urlsplit(url).netloc.lower() for url in namenodes}

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        address = urlsplit(request.url or "")
        if address.netloc.lower() in self._namenodes:
            shown = base64.b64encode(self._ticket(str(address.hostname))).decode()
            request.headers["Authorization"] = f"Negotiate {shown}"
        return request

    def _ticket(self, host: str) -> bytes:
        gssapi = self._gssapi
        try:
            # Checked first, as SPNEGO does not report a missing ticket.
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
    record.msg = without_token(record.getMessage())
    record.args = ()
    return True
