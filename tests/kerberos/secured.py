"""A real HDFS that lets in nobody without a Kerberos ticket or a token."""

from __future__ import annotations

import base64
import contextlib
import os
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tests.kerberos.kdc import REALM, Kdc
from tests.servers.hdfs import Hdfs

USER = "alice"
RENEW_SECONDS = 20.0
_SERVER = f"hdfs/localhost@{REALM}"


@dataclass(frozen=True)
class Secured:
    """The HDFS, and what a client needs.

    Attributes:
        hdfs: The HDFS; `USER` may write everywhere.
        kdc: The Kerberos.
        keytab: Of `USER`.
        environment: Variables of a process that has the user's tickets.
        properties: A client's Hadoop properties.
    """

    hdfs: Hdfs
    kdc: Kdc
    keytab: Path
    environment: dict[str, str]
    properties: dict[str, str]


@contextlib.contextmanager
def secured_hdfs(root: Path) -> Iterator[Secured]:
    """Start a Kerberos and a NameNode with one DataNode, and end them.

    The environment of this process is changed meanwhile: its own look at the NameNode takes
    tickets, too.
    """
    kerberos, store, configuration = root / "kdc", root / "hdfs", root / "conf"
    for folder in (kerberos, store, configuration):
        folder.mkdir()
    with Kdc(kerberos) as kdc:
        servers = kdc.keytab("servers", _SERVER, "HTTP/localhost", "HTTP/127.0.0.1")
        keytab = kdc.keytab(USER, USER)
        tickets = kdc.tickets(USER, keytab)
        java = f"-Djava.security.krb5.conf={kdc.configuration}"
        environment = {
            **kdc.environment,
            "KRB5CCNAME": f"FILE:{tickets}",
            "JAVA_TOOL_OPTIONS": java,
            "HADOOP_CONF_DIR": str(configuration),
        }
        client = {
            "hadoop.security.authentication": "kerberos",
            "dfs.namenode.kerberos.principal": _SERVER,
        }
        hdfs = Hdfs(store, 1, properties={**client, **_server(servers)}, opener=_opener())
        # Hadoop asks whether it is secured before it reads the properties of its command line.
        _write_configuration(store / "core-site.xml", {**client, **_server(servers)})
        properties = {**client, **hdfs.settings()}
        _write_configuration(configuration / "core-site.xml", properties)
        with _in_environment(environment), hdfs:
            yield Secured(hdfs, kdc, keytab, environment, properties)


def _server(keytab: Path) -> dict[str, str]:
    return {
        "hadoop.security.authorization": "true",
        "hadoop.http.authentication.type": "kerberos",  # else ?user.name=root lists folders
        "hadoop.http.authentication.kerberos.principal": "*",
        "hadoop.http.authentication.kerberos.keytab": str(keytab),
        "dfs.namenode.keytab.file": str(keytab),
        "dfs.datanode.kerberos.principal": _SERVER,
        "dfs.datanode.keytab.file": str(keytab),
        "dfs.web.authentication.kerberos.principal": "*",
        "dfs.web.authentication.kerberos.keytab": str(keytab),
        "dfs.block.access.token.enable": "true",
        "ignore.secure.ports.for.testing": "true",  # ports below 1024 take root
        "dfs.namenode.delegation.token.renew-interval": str(int(RENEW_SECONDS * 1000)),
        "dfs.cluster.administrators": "*",
        "dfs.permissions.enabled": "false",
    }


def _write_configuration(file: Path, properties: Mapping[str, str]) -> None:
    entries = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in properties.items()
    )
    file.write_text(f"<configuration>{entries}</configuration>")


class _Negotiate(urllib.request.BaseHandler):
    def http_request(self, request: urllib.request.Request) -> urllib.request.Request:
        import gssapi

        server = gssapi.Name(
            f"HTTP@{request.host.partition(':')[0]}", gssapi.NameType.hostbased_service
        )
        ticket = gssapi.SecurityContext(name=server, usage="initiate").step()
        request.add_header("Authorization", f"Negotiate {base64.b64encode(ticket).decode()}")
        return request


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), _Negotiate())


@contextlib.contextmanager
def _in_environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
