"""Passes the secrets of a run, and its train function, from the driver to its slots.

With `spark.authenticate` off, Spark gives closures and broadcasts to any process that reaches its
ports. So both go through files that only their user can read, in the run's folder, which every
executor can access; through Spark go only a file's path, its SHA-256 and its owner. On HDFS slots
need secrets before they can read files, and any client may claim to be the user; there all goes
through Spark.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.session.session import Session, SharedBytes
from spark_jobs.storage.local_files import make_folder, open_new
from spark_jobs.storage.locations import Location

Lent = Callable[[], bytes]
"""Returns the bytes that the driver has lent to a slot, or raises an OSError; in its closure.

It is pickled by value, and imports our packages when it is called, so that an executor without them
fails with our message.
"""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_NOBODY = 65534  # Linux' id of an owner without a number here, as in a container


class Handover(Protocol):
    """Lends bytes to the slots of a run.

    Attributes:
        function: The train function, pickled.
    """

    function: Lent

    def lend(self, secret: bytes) -> Lent:
        """Lend a secret of some kilobytes; OSError if that fails, or if others could read it."""


@contextlib.contextmanager
def handover(session: Session, root: Location, function: bytes) -> Iterator[Handover]:
    """Lend a train function and secrets to slots during the block.

    Args:
        session: The session that runs the slots.
        root: The run's folder. The caller must own the run: files of killed drivers are removed.
        function: The train function, pickled.

    Raises:
        OSError: Files cannot be written to the folder.
    """
    if root.scheme == "file":
        with _folder(RunPaths(Path(root.path)).secrets) as folder:
            try:
                files = _InFiles(folder, function)
            except _OpenToOthers:  # the file system ignores modes
                pass
            else:
                yield files
                return
    with session.shared(function) as shared:
        yield _InClosure(shared)


class _OpenToOthers(PermissionError):
    """Other users can read a file of secrets."""


class _InFiles:
    """Lends through files of mode 0600."""

    def __init__(self, folder: Path, function: bytes) -> None:
        self._folder = folder
        self._count = 0
        self.function = self.lend(function)

    def lend(self, secret: bytes) -> Lent:
        """Write a secret to a new file, unless others can read it."""
        self._count += 1
        place = self._folder / f"{self._count}"
        with open_new(place) as file:
            found = os.fstat(file.fileno())
            _check_mode(str(place), found)
            file.write(secret)
        path, digest, owner = str(place), hashlib.sha256(secret).hexdigest(), found.st_uid

        def read() -> bytes:
            from spark_jobs.handover import read_lent

            return read_lent(path, digest, owner)

        return read


class _InClosure:
    """Lends through Spark, the large train function apart from the closure.

    Spark writes a large closure to disk; with the function in it, the secrets would be there, too.
    """

    def __init__(self, function: SharedBytes) -> None:
        self.function: Lent = lambda: function.value

    def lend(self, secret: bytes) -> Lent:
        """Put a secret into the closure."""
        return lambda: secret


def read_lent(path: str, digest: str, owner: int) -> bytes:
    """Return the content of a file of the driver.

    Args:
        path: The file's path.
        digest: SHA-256 of its content, hexadecimal.
        owner: User id of the driver; the file may also belong to this process' user, whose id
            differs if hosts or containers number users differently.

    Raises:
        OSError: The file cannot be read, belongs to another user, can be read by others, or has
            another content.
    """
    with open(path, "rb", opener=_open_itself) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise PermissionError(f"{path}: expected a file")
        _check_mode(path, found)
        if found.st_uid not in (owner, os.geteuid(), _NOBODY):
            raise PermissionError(f"{path}: expected a file of user {owner}, got {found.st_uid}'s")
        data = file.read()
    if not hmac.compare_digest(hashlib.sha256(data).hexdigest(), digest):
        raise OSError(f"{path}: its content is not the driver's")
    return data


def _check_mode(path: str, found: os.stat_result) -> None:
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise _OpenToOthers(f"{path}: expected mode 600, got {mode:o}, so others can read it")


def _open_itself(path: str, flags: int) -> int:
    """Open a file without following a link, and without waiting for the writer of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


@contextlib.contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    """Create a folder with a random name, and remove all others there; remove it at the end."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(parent)
    folder = parent / secrets.token_hex(8)
    make_folder(folder)
    try:
        yield folder
    finally:
        # Not the folders of a driver that has taken over the run.
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            parent.rmdir()
