"""Folders of this host for what is on its way to where it is kept.

Who writes to one holds a lock of the kernel on it, which goes with the process however that ends:
so what a killed process has left is told from what is in use, and is removed.
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
    """Make a folder that is taken for one in use as long as the block lasts; removes nothing.

    Args:
        parent: Where; the folder for temporary files when left out.

    Raises:
        OSError: It cannot be made.
    """
    path, lock = _made(parent)
    try:
        yield path
    finally:
        lock.close()


def name_of_left(path: Path) -> str:
    """Return what a scratch folder is called where somebody may want what is in it."""
    return f"{_KEPT}{path.name.removeprefix(_PREFIX)}"


def remove_left() -> None:
    """Remove the scratch folders of this user's killed processes among the temporary files."""
    parent = Path(tempfile.gettempdir())
    with contextlib.suppress(OSError):  # a folder that cannot be read is no reason not to start
        for path in sorted(parent.glob(f"{_PREFIX}*")):
            with contextlib.suppress(OSError):  # it is in use, or gone
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
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # it was taken for left
            lock = Lock(os.open(path, _OPEN))
            try:
                lock.acquire()
                path.stat()
            except BaseException:
                lock.close()
                raise
            return path, lock
