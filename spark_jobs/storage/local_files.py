"""Files of a run on this host.

Folders are made with mode 0700 and files with 0600: a run may hold what its trials read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC


def make_folder(path: Path) -> None:
    """Make a folder and its parents; fine where it is there already."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file beside its place and rename it, so that no reader sees half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open_new(beside) as file:
        file.write(data)
    beside.replace(path)


def open_appending(path: Path, *, new: bool = False) -> int:
    """Return a descriptor that appends to a file, made where it is missing.

    Args:
        path: The file.
        new: Raise FileExistsError where the file is there already.
    """
    return os.open(path, _NEW_FILE | os.O_APPEND | (os.O_EXCL if new else 0), 0o600)


def open_new(path: Path) -> IO[bytes]:
    """Open a file for writing, anew where there is one."""
    return os.fdopen(os.open(path, _NEW_FILE | os.O_TRUNC, 0o600), "wb")
