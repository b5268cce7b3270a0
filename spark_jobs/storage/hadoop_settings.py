"""The WebHDFS addresses of a Hadoop cluster, from its client configuration.

Users write `hdfs://`, the address of Hadoop's own protocol, which no Python package speaks without
Java's libraries. The same NameNode answers over HTTP, at an address that every Hadoop client's
configuration has.
"""

from __future__ import annotations

import contextlib
import getpass
import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, Self
from xml.etree import ElementTree

import msgspec

from search.errors import InvalidArgument
from spark_jobs.storage.locations import Location

_Kind = tuple[str, str, int]
"""Scheme of a URL, name of the setting of a NameNode's address, default port."""

_HTTP = ("http", "dfs.namenode.http-address", 9870)
_HTTPS = ("https", "dfs.namenode.https-address", 9871)
_RPC_PORT = 8020
_EXPANSIONS = 20  # of a value at most, as of Hadoop
_EVERYWHERE = ("", "0.0.0.0", "[::]")  # noqa: S104  # read, not listened on

EXACT = (
    "fs.defaultFS",
    "dfs.nameservices",
    "dfs.http.policy",
    "hadoop.security.authentication",
)
"""Settings of the client configuration that are needed to reach a NameNode."""

PREFIXES = ("dfs.ha.namenodes.", "dfs.namenode.")
"""Prefixes of the names of further settings."""


class HadoopSettings(msgspec.Struct, frozen=True):
    """A client's view of its Hadoop clusters.

    Attributes:
        values: The settings named by `EXACT` and `PREFIXES`.
        user: The Spark session's user on Hadoop.
        tokens: Delegation tokens of secured clusters, by the authority of their `hdfs://` address.
    """

    values: dict[str, str] = {}
    user: str = ""
    tokens: dict[str, str] = {}

    @classmethod
    def of_files(cls) -> Self:
        """Return the settings of a process without Spark, as Hadoop's own client reads them.

        They are in core-site.xml and hdfs-site.xml, either of which may be missing, in the folder
        HADOOP_CONF_DIR, if that is set.

        Raises:
            InvalidArgument: A file is no Hadoop configuration, or cannot be read.
        """
        found: dict[str, str] = {}
        if folder := os.environ.get("HADOOP_CONF_DIR"):
            for name in ("core-site.xml", "hdfs-site.xml"):
                found |= _properties(Path(folder, name))
        return cls.of_client(found)

    @classmethod
    def of_client(cls, found: Mapping[str, str]) -> Self:
        """Return the settings of a process with these values in its Hadoop configuration.

        The user is HADOOP_USER_NAME, else the operating system's user.
        """
        whole = {name: _expanded(value, found) for name, value in found.items() if _counts(name)}
        # Trimmed as by Hadoop: in a formatted file a value may have a line of its own.
        values = {name: value.strip() for name, value in whole.items()}
        return cls(values, os.environ.get("HADOOP_USER_NAME") or _system_user())

    def __repr__(self) -> str:
        secret = f"<{len(self.tokens)} not shown>"
        return f"HadoopSettings(values={self.values!r}, user={self.user!r}, tokens={secret})"

    @property
    def is_secured(self) -> bool:
        """Whether the clusters require Kerberos."""
        return self.values.get("hadoop.security.authentication", "").lower() == "kerberos"

    def authorities(self, more: str = "") -> list[str]:
        """Return the authorities of the configured clusters, each once, the default one first.

        Args:
            more: Addresses of further file systems, separated by commas; only HDFS's count.
        """
        services = _names(self.values.get("dfs.nameservices", ""))
        others = [_hdfs_authority(address) for address in _names(more)]
        known = [self._authority_of_default(), *services, *others]
        return list(dict.fromkeys(filter(None, known)))

    def token(self, location: Location) -> str:
        """Return the delegation token for a location; '' without one.

        It is the token of the cluster that has a NameNode at the same address.
        """
        wanted = {address.lower() for address in self.namenodes(location)} if self.tokens else set()
        for (authority, token), kind in itertools.product(self.tokens.items(), (_HTTP, _HTTPS)):
            with contextlib.suppress(InvalidArgument):  # a cluster that is not configured for it
                if wanted & {address.lower() for address in self._web(authority, kind)}:
                    return token
        return ""

    def namenodes(self, location: Location) -> tuple[str, ...]:
        """Return the WebHDFS addresses for a location, such as "http://host:9870", in order.

        Raises:
            InvalidArgument: The configuration does not have the address.
        """
        if location.scheme != "hdfs" and location.authority not in self._services:
            return (self._given(location),)
        authority = location.authority or self._default_authority(location)
        return self._web(authority, self._kind_of(location))

    def _web(self, authority: str, kind: _Kind) -> tuple[str, ...]:
        """Return the web addresses of a service, or of a NameNode by its RPC address."""
        if authority in self._services:
            return self._of_service(authority, kind)
        known = [("", self._authority_of_default())]  # the ends of settings' names, and addresses
        for suffix in ("", *itertools.chain.from_iterable(map(self._suffixes, self._services))):
            known.append((suffix, self.values.get(f"dfs.namenode.rpc-address{suffix}", "")))
        asked = _with_port(authority)
        same = [suffix for suffix, address in known if address and _with_port(address) == asked]
        configured = next(filter(None, (self._configured(suffix, kind) for suffix in same)), "")
        return (self._address(configured, _host(authority), kind),)

    @property
    def _services(self) -> list[str]:
        return _names(self.values.get("dfs.nameservices", ""))

    def _suffixes(self, service: str) -> list[str]:
        """Return the ends of the names of the settings of each of a service's NameNodes."""
        nodes = _names(self.values.get(f"dfs.ha.namenodes.{service}", ""))
        return [f".{service}.{node}" for node in nodes] or [f".{service}"]

    def _given(self, location: Location) -> str:
        scheme, _, port = self._kind_of(location)
        if not location.authority:
            raise InvalidArgument("path", f"{location.scheme}://host:{port}/path", str(location))
        host, given = _host(location.authority), _port(location.authority)
        return f"{scheme}://{host}:{given or port}"

    def _of_service(self, service: str, kind: _Kind) -> tuple[str, ...]:
        addresses = []
        for suffix in self._suffixes(service):
            rpc = self.values.get(f"dfs.namenode.rpc-address{suffix}", "")
            configured = self._configured(suffix, kind)
            if not rpc and _host(configured) in _EVERYWHERE:
                raise InvalidArgument(
                    f"dfs.namenode.rpc-address{suffix}",
                    f"the address of a NameNode of {service!r}, in Spark's Hadoop configuration",
                    "nothing",
                )
            addresses.append(self._address(configured, _host(rpc), kind))
        return tuple(dict.fromkeys(addresses))  # with one twice, the package `hdfs` loops for ever

    def _configured(self, suffix: str, kind: _Kind) -> str:
        _, name, _ = kind
        return self.values.get(name + suffix, "")

    def _address(self, configured: str, host: str, kind: _Kind) -> str:
        """Return a URL; for a NameNode that listens on all addresses, with its service's host."""
        scheme, _, port = kind
        listens = _host(configured)
        if listens in _EVERYWHERE:
            listens = host
        return f"{scheme}://{listens}:{_port(configured) or port}"

    def _kind_of(self, location: Location) -> _Kind:
        """Return the protocol: that of the URL's scheme, for `hdfs://` that of the cluster."""
        if location.scheme == "hdfs":
            return _HTTPS if self.values.get("dfs.http.policy") == "HTTPS_ONLY" else _HTTP
        return _HTTPS if location.scheme == "swebhdfs" else _HTTP

    def _authority_of_default(self) -> str:
        return _hdfs_authority(self.values.get("fs.defaultFS", ""))

    def _default_authority(self, location: Location) -> str:
        authority = self._authority_of_default()
        if not authority:
            default = self.values.get("fs.defaultFS") or "nothing"
            raise InvalidArgument(
                "path",
                "hdfs://host:8020/path, since fs.defaultFS is no HDFS",
                f"{str(location)!r}, and fs.defaultFS is {default}",
            )
        return authority


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _hdfs_authority(address: str) -> str:
    scheme, _, rest = address.partition("://")
    return rest.partition("/")[0] if scheme == "hdfs" else ""


def _host(authority: str) -> str:
    """Return the host of "host:port"; IPv6 addresses keep their brackets."""
    if authority.startswith("["):
        return authority[: authority.find("]") + 1]
    return authority.partition(":")[0]


def _with_port(authority: str) -> str:
    """Return a normal form of the names of a service."""
    return f"{_host(authority).lower()}:{_port(authority) or _RPC_PORT}"


def _port(authority: str) -> str:
    return authority[len(_host(authority)) :].lstrip(":")


def _counts(name: str) -> bool:
    return name in EXACT or name.startswith(PREFIXES)


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # such as in a container whose users have no names
        return ""


class _Builder(ElementTree.TreeBuilder):
    """Refuses document types: with their entities a small file can expand without limit."""

    def doctype(self, *_: Any) -> NoReturn:
        raise ValueError("a document type")


def _properties(file: Path) -> dict[str, str]:
    """Return the properties of a Hadoop configuration file; {} if it does not exist."""
    expected = "a Hadoop configuration: <configuration><property>..."
    try:
        root = ElementTree.fromstring(file.read_bytes(), ElementTree.XMLParser(target=_Builder()))  # noqa: S314
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidArgument(str(file), expected, error.strerror or str(error)) from None
    except (ElementTree.ParseError, ValueError) as error:
        raise InvalidArgument(str(file), expected, str(error)) from None
    if root.tag != "configuration":
        raise InvalidArgument(str(file), expected, f"<{root.tag}>")
    pairs = ((entry.findtext("name"), entry.findtext("value")) for entry in root.iter("property"))
    return {name.strip(): value.strip() for name, value in pairs if name and value is not None}


def _expanded(value: str, properties: Mapping[str, str]) -> str:
    """Return a value with "${name}" replaced by that property's value, as Hadoop does."""
    for _ in range(_EXPANSIONS):  # a property may name others, or itself
        before = value
        value = re.sub(r"\$\{([^${}]+)\}", lambda found: properties.get(found[1], found[0]), before)
        if value == before:
            break
    return value
