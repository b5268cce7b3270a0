"""An attempt's folder, which train functions may remove, rename or replace while it is written to.

What they do to it is no fault of the host's and costs no outcome: what the slot writes there is
written again where the folder can be made again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from spark_jobs.run_folder.paths import AttemptPaths
from spark_jobs.trial.event_file import EventFile

_TRIES = 3  # other trials may change the folders above meanwhile


class FolderChanged(Exception):
    """An attempt's folder cannot be written to, since a train function changed it."""


def write_below(top: Path, folder: Path, write: Callable[[], None]) -> None:
    """Write into a folder; where that fails, make the folder again and write once more.

    Args:
        top: A folder above it that is never made: where it is gone, so is all that is below it.
        folder: To write to.
        write: Does it; may be called several times.

    Raises:
        OSError: It cannot be written to.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):
            make_again(top, folder)
            return write()
    make_again(top, folder)
    return write()


def make_again(top: Path, folder: Path) -> None:
    """Make a folder, and those between `top` and it, such that files can be made in it.

    A folder without permissions gets them. What is in the way gets another name.

    Raises:
        OSError: That cannot be done.
    """
    at = top
    for part in folder.relative_to(top).parts:
        at /= part
        if not at.is_dir():
            if os.path.lexists(at):
                _put_aside(at)
            at.mkdir(mode=0o700, exist_ok=True)
        elif not os.access(at, os.R_OK | os.W_OK | os.X_OK):
            at.chmod(0o700)


def _put_aside(path: Path) -> None:
    """Rename what is no folder; one that another slot has just made here stays."""
    os.link(path, path.with_name(f"{path.name}.{secrets.token_hex(4)}"), follow_symlinks=False)
    path.unlink()  # neither of the two does it to a folder


def gone(paths: AttemptPaths, events: EventFile) -> list[str]:
    """Return what of the files that a slot makes when a trial starts is not there any more."""
    files = [path.name for path in (paths.trial, paths.stdout, paths.stderr) if not path.exists()]
    return files if events.is_there() else [*files, events.path.name]
