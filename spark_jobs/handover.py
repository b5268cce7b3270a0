"""How the secrets of a run, and its train function, come from the driver to its slots.

Where `spark.authenticate` is off, Spark gives closures and broadcasts to whoever reaches its ports.
So both go through files that only their user can read, in the run's folder, which every executor
sees; what Spark carries is where a file is, its SHA-256, and whose it is. On HDFS slots need
secrets before they can read files, and anybody may call himself the user; there Spark carries all.
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
"""Gives a slot what the driver has lent it, or raises an OSError; part of the slot's closure.

It is pickled by value, and imports our packages when it is called, so that an executor that lacks
one can say so.
"""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_NOBODY = 65534  # Linux' name for an owner who has no number here, as in a container


class Handover(Protocol):
    """Lends bytes to the slots of a run.

    Attributes:
        function: The train function, pickled.
    """

    function: Lent

    def lend(self, secret: bytes) -> Lent:
        """Lend a secret, of some kilobytes."""


@contextlib.contextmanager
def handover(session: Session, root: Location, function: bytes) -> Iterator[Handover]:
    """Lend a train function, and secrets, to slots while the block lasts.

    Args:
        session: That runs the slots.
        root: The run's folder. The caller owns it: what a killed driver has lent is removed.
        function: Pickled.

    Raises:
        OSError: Files cannot be written there.
    """
    if root.scheme == "file":
        with _folder(RunPaths(Path(root.path)).secrets) as folder:
            files = _InFiles(folder, function)
            if not files.open_to_others:
                yield files
                return
    with session.shared(function) as shared:
        yield _InClosure(shared)


class _InFiles:
    """Lends by files of mode 0600."""

    def __init__(self, folder: Path, function: bytes) -> None:
        self._folder = folder
        self._count = 0
        self.open_to_others = False
        self.function = self.lend(function)

    def lend(self, secret: bytes) -> Lent:
        """See `Handover`. Says also whether the file system keeps no modes, as some of clouds."""
        self._count += 1
        place = self._folder / f"{self._count}"
        with open_new(place) as file:
            file.write(secret)
            found = os.fstat(file.fileno())
        self.open_to_others |= bool(found.st_mode & _OTHERS)
        path, digest, owner = str(place), hashlib.sha256(secret).hexdigest(), found.st_uid

        def read() -> bytes:
            from spark_jobs.handover import read_lent

            return read_lent(path, digest, owner)

        return read


class _InClosure:
    """Lends by what Spark carries, the large train function beside the closure.

    Spark writes a large closure to disk; with the function in it, the secrets would be, too.
    """

    def __init__(self, function: SharedBytes) -> None:
        self.function: Lent = lambda: function.value

    def lend(self, secret: bytes) -> Lent:
        """See `Handover`."""
        return lambda: secret


def read_lent(path: str, digest: str, owner: int) -> bytes:
    """Return what the driver has written to a file.

    Args:
        path: Of the file.
        digest: SHA-256 of its content, hexadecimal.
        owner: Number of the driver's user; the file may also be this process's own, which has
            another number where hosts or containers number users differently.

    Raises:
        OSError: It cannot be read, is somebody else's, can be read by others, or is not what the
            driver has written.
    """
    with open(path, "rb", opener=_open_itself) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise PermissionError(f"{path}: expected a file")
        if found.st_mode & _OTHERS:
            mode = stat.S_IMODE(found.st_mode)
            raise PermissionError(f"{path}: expected mode 600, got {mode:o}, so others can read it")
        if found.st_uid not in (owner, os.geteuid(), _NOBODY):
            raise PermissionError(f"{path}: expected a file of user {owner}, got {found.st_uid}'s")
        data = file.read()
    if not hmac.compare_digest(hashlib.sha256(data).hexdigest(), digest):
        raise OSError(f"{path}: not what the driver has written there")
    return data


def _open_itself(path: str, flags: int) -> int:
    """Open a file, and nothing that a link leads to; do not wait for who writes to a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


@contextlib.contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    """Make a folder of a random name, in place of all others there; remove it in the end."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(parent)
    folder = parent / secrets.token_hex(8)
    make_folder(folder)
    try:
        yield folder
    finally:
        # Not those of a driver that has taken the run over.
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            parent.rmdir()
