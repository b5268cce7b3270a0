"""Writes to an attempt's folder, which train functions may remove, rename or replace meanwhile.

Such a change is no fault of the host and costs no outcome: the slot creates the folder again, if it
can, and repeats the write.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from spark_jobs.run_folder.paths import AttemptPaths
from spark_jobs.trial.events.event_file import EventFile

_MODE = os.R_OK | os.W_OK | os.X_OK
_TRIES = 4  # other trials may change the folders above meanwhile


class FolderChanged(Exception):
    """An attempt's folder cannot be written to, since a train function changed it."""


def write_below(top: Path, folder: Path, write: Callable[[], None]) -> None:
    """Write to a folder, which is created before each of up to four tries if it is missing.

    Args:
        top: A folder above `folder` that is never created; without it, the run is gone.
        folder: The folder to write to.
        write: The function that writes; it may be called several times.

    Raises:
        OSError: The folder cannot be written to.
    """
    for _ in range(_TRIES - 1):
        with contextlib.suppress(OSError):
            make_again(top, folder)
            return write()
    make_again(top, folder)
    return write()


def make_again(top: Path, folder: Path) -> None:
    """Make a folder writable, and create it and its parents below `top` if they are missing.

    A file in the place of a folder is renamed.

    Raises:
        OSError: The folder cannot be created, or made writable.
    """
    if os.path.isdir(folder) and os.access(folder, _MODE):  # the usual case
        return
    at = top
    for part in folder.relative_to(top).parts:
        at /= part
        if not at.is_dir():
            if os.path.lexists(at):
                _put_aside(at)
            at.mkdir(mode=0o700, exist_ok=True)
        elif not os.access(at, _MODE):
            at.chmod(0o700)


def _put_aside(path: Path) -> None:
    """Rename anything but a folder; a folder that another slot has just created here stays."""
    os.link(path, path.with_name(f"{path.name}.{secrets.token_hex(4)}"), follow_symlinks=False)
    path.unlink()  # neither of the two does it to a folder


def gone(paths: AttemptPaths, events: EventFile) -> list[str]:
    """Return the missing ones of the files that a slot creates when a trial starts."""
    files = [path.name for path in (paths.trial, paths.stdout, paths.stderr) if not path.exists()]
    return files if events.is_there() else [*files, events.path.name]
