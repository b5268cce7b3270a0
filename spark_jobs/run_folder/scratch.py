"""Scratch folders of this host, whose files are uploaded from there.

A process holds a lock of the kernel on its scratch folder, which is released when the process ends
in any way: so folders of killed processes are distinguished from those in use, and removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from spark_jobs.storage.locks import Lock

_PREFIX = "experiment-run-"
_KEPT = "experiment-left-"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def scratch_folder(parent: str | None = None) -> Iterator[Path]:
    """Create a folder that counts as in use during the block, and is not removed after it.

    Args:
        parent: The folder to create it in. Default: the folder for temporary files.

    Raises:
        OSError: The folder cannot be created.
    """
    path, lock = _made(parent)
    try:
        yield path
    finally:
        lock.close()


@contextlib.contextmanager
def temporary_folder(parent: str | None = None) -> Iterator[Path]:
    """Create a folder that is removed after the block; arguments and errors of `scratch_folder`."""
    with scratch_folder(parent) as path:
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def folder_of_left(path: Path) -> Path:
    """Return a folder for the files of a scratch folder that are left for the user, not uploaded.

    It is new, among the temporary files, and nobody else may enter it; where none can be made, it
    is the new name that `move_left` gives to the scratch folder.
    """
    try:
        return Path(tempfile.mkdtemp(prefix=_KEPT))
    except OSError:
        return _renamed(path)


def _renamed(path: Path) -> Path:
    return path.with_name(path.name.replace(_PREFIX, _KEPT, 1))


def move_left(path: Path, to: Path) -> None:
    """Move the files of a scratch folder to another one; what cannot be moved stays there."""
    with contextlib.suppress(OSError):  # such as another file system
        path.rename(to)  # an empty folder, or none: this needs neither space nor a listing
        return
    if to == _renamed(path):  # perhaps made by another user
        return
    with contextlib.suppress(OSError):
        for found in sorted(path.iterdir()):
            with contextlib.suppress(OSError):  # such as a disk without room for all of them
                shutil.move(found, to)
        path.rmdir()


def remove_left() -> None:
    """Remove the scratch folders of this user's killed processes among the temporary files."""
    with contextlib.suppress(OSError):  # an unreadable or full folder must not prevent the start
        parent = Path(tempfile.gettempdir())
        for path in sorted(parent.glob(f"{_PREFIX}*")):
            with contextlib.suppress(OSError):  # in use, or removed
                _remove(path)


def _remove(path: Path) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    lock = Lock(os.open(path, _OPEN))
    try:
        if lock.acquire():
            shutil.rmtree(path, ignore_errors=True)
    finally:
        lock.close()


def _made(parent: str | None) -> tuple[Path, Lock]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # another process removed it
            lock = Lock(os.open(path, _OPEN))
            try:
                lock.acquire()
                path.stat()
            except BaseException:
                lock.close()
                raise
            return path, lock
