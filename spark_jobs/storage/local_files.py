"""Files of a run on this host.

Folders have mode 0700 and files 0600: a run may hold data that its trials read. No file is written
through a link in its place: by one, trials could let the driver overwrite files of its user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import IO, NamedTuple

# Nobody waits for a reader of a pipe in a file's place.
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Look(NamedTuple):
    """The status of a file at one moment, by which a change of its content is noticed."""

    inode: int
    size: int
    changed: int  # nanoseconds


def look_of(status: os.stat_result) -> Look:
    """Return what tells a file's content from that of other moments."""
    return Look(status.st_ino, status.st_size, status.st_mtime_ns)


def open_regular(path: str | Path) -> IO[bytes]:
    """Open a file for reading, for which nobody waits and which has an end.

    In a folder that others may write to, a name may be that of a pipe, or of a link to a device.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.fdopen(_regular(descriptor, path), "rb")


def make_folder(path: Path) -> None:
    """Create a folder and its parents, unless it exists."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def write_whole(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write a file beside its place and rename it, so that readers never see a part of it.

    Args:
        path: The file.
        data: Its content.
        sync: Whether this also holds for readers after a loss of power.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with open_new(beside) as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def open_appending(path: Path, *, new: bool = False) -> int:
    """Return a descriptor that appends to a file, which is created if it is missing.

    Args:
        path: The file.
        new: Whether to raise FileExistsError if the file exists.

    Raises:
        OSError: It cannot be opened, or is no regular file, such as a link or a pipe.
    """
    flags = _NEW_FILE | os.O_APPEND | (os.O_EXCL if new else 0)
    return _regular(os.open(path, flags, 0o600), path)


def open_new(path: Path) -> IO[bytes]:
    """Create a file for writing; FileExistsError if there is one, or a link."""
    return os.fdopen(os.open(path, _NEW_FILE | os.O_EXCL, 0o600), "wb")


def _regular(descriptor: int, path: str | Path) -> int:
    """Return the descriptor of a regular file; close another one and raise OSError."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "no regular file", str(path))
