"""Locations of data: paths on this host, and URLs."""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass

from search.errors import InvalidArgument, shown

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/.*)?", re.DOTALL)
_STORES = "hdfs|webhdfs|swebhdfs|s3|s3a|s3n|gs|abfs|abfss|wasb|wasbs|adl|dbfs|file"
_ALMOST_URL = re.compile(rf"(({_STORES}):(?!//)|([A-Za-z][A-Za-z0-9+.-]*):/(?!/)).*", re.I | re.S)
_AUTHORITY = r"((\[[0-9A-Fa-f:.]+\]|[^:\s@\[\]]+)(:[0-9]{1,5})?)?"
_DATABRICKS = re.compile(r"dbfs:/+", re.IGNORECASE)
HADOOP = ("hdfs", "webhdfs", "swebhdfs")
_SECRETS = (
    re.compile(r"(https?://)[^/\s]*(@)", re.IGNORECASE),
    re.compile(r"(https?://[^?\s'\"]*\?)[^\s'\"]+()", re.IGNORECASE),
    re.compile(r"(://[^/\s@:]*:)[^/\s]*(@)"),
)


@dataclass(frozen=True, slots=True)
class Location:
    """A file, a folder or a pattern of them.

    As a string it is for people: its URL `without_secrets`, or its path on this host.

    Attributes:
        scheme: Scheme in lower case: 'file', 'hdfs', 'webhdfs', 's3', ...
        authority: Host and port, name service or bucket; '' without one.
        path: Absolute path, at least '/'. Not decoded: HDFS has no percent-encoding. On this host
            and on HDFS without empty and dotted parts; in other stores they may be names.
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def parse(cls, text: str | os.PathLike[str], argument: str = "path") -> Location:
        """Read a URL, or an absolute or relative path on this host.

        Args:
            text: The URL or path.
            argument: The argument's name in messages.

        Raises:
            InvalidArgument: Not a string, or an invalid URL.
        """
        name = os.fspath(text) if isinstance(text, str | os.PathLike) else None
        if not isinstance(name, str) or not name or "\0" in name:
            raise InvalidArgument(
                argument, "a path or a URL such as hdfs://host:8020/data", shown(text)
            )
        if _ALMOST_URL.fullmatch(name):
            raise InvalidArgument(
                argument, "a path or a URL", shown(without_secrets(name)), _hint(name)
            )
        match = _URL.fullmatch(name)
        if match is None:
            try:
                return cls("file", "", os.path.abspath(os.path.expanduser(name)))
            except FileNotFoundError:  # by `os.getcwd`
                got = f"{shown(name)}, and the working directory was removed"
                raise InvalidArgument(argument, "an absolute path", got) from None
        scheme, authority, path = match[1].lower(), match[2], match[3] or "/"
        if scheme == "file":
            if authority not in ("", "localhost"):
                hint = "files are on this host"
                raise InvalidArgument(argument, "file:///...", shown(name), hint)
            authority, path = "", os.path.abspath(path)
        if scheme in HADOOP and not re.fullmatch(_AUTHORITY, authority):
            got = shown(without_secrets(name))
            raise InvalidArgument(argument, f"{scheme}://host:port/path", got)
        if scheme in HADOOP:  # as Hadoop's own clients do; the NameNode refuses such parts
            path = "/" + posixpath.normpath(path).lstrip("/")
        return cls(scheme, authority, path)

    def at(self, path: str) -> Location:
        """Return another path in the same store."""
        return Location(self.scheme, self.authority, path)

    def below(self, relative: str) -> Location:
        """Return the location at a relative path below this folder."""
        return self.at(f"{self.path.rstrip('/')}/{relative}")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Location:
        """The folder that contains this location."""
        return self.at(self.path.rstrip("/").rpartition("/")[0] or "/")

    @property
    def without_query(self) -> Location:
        """The location without what follows a "?" on the web; elsewhere that is part of a name."""
        web = self.scheme in ("http", "https")
        return self.at(self.path.partition("?")[0]) if web else self

    @property
    def url(self) -> str:
        """The URL with all that its store needs, or the path on this host."""
        return (
            self.path if self.scheme == "file" else f"{self.scheme}://{self.authority}{self.path}"
        )

    def __str__(self) -> str:
        if self.scheme in ("file", *HADOOP):
            return self.url
        page, store = self.without_query, without_secrets(f"{self.scheme}://{self.authority}")
        return f"{store}{page.path}{'' if page == self else '?...'}"


def without_secrets(text: str) -> str:
    """Return a text with "..." for the passwords, tokens and signatures in its URLs.

    Those of http and https lose all before the host and after the "?", others their password.
    """
    for secret in _SECRETS:
        text = secret.sub(r"\1...\2", text)
    return text


def _hint(name: str) -> str:
    """Return what to write instead of an invalid URL."""
    if found := _DATABRICKS.match(name):
        return f"on Databricks, write {shown('/dbfs/' + name[found.end() :])}"
    url = "a URL has two slashes after its colon, and a third before the path"
    return f"{url}; a path of this host is {shown('./' + name)}"
