"""The files below a folder of this host at one moment, and which of them belong together."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from spark_jobs.run_folder.paths import CHECKPOINT, OUTCOME, only_grows
from spark_jobs.storage.files import PART
from spark_jobs.storage.local_files import Look, look_of

CHECKPOINTS = f"{CHECKPOINT}/"
"""The folder for checkpoints."""

GONE = (FileNotFoundError, NotADirectoryError)
"""Errors at paths that were removed meanwhile."""


def files_below(folder: Path) -> tuple[dict[str, Look], OSError | None]:
    """Return the plain files below a folder.

    Returns:
        The status of each file by its relative path; and an error if the folder, or one below it
        that still exists, cannot be listed.
    """
    found: dict[str, Look] = {}
    errors: list[OSError] = []
    for parent, folders, names in os.walk(folder, onerror=errors.append):
        folders[:] = [name for name in folders if not name.startswith(PART)]
        for path in (Path(parent, name) for name in names):
            with contextlib.suppress(*GONE):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    found[path.relative_to(folder).as_posix()] = look_of(status)
    unlisted = (
        error for error in errors if not isinstance(error, GONE) or error.filename == str(folder)
    )
    return found, next(unlisted, None)


def unit_of(name: str) -> str:
    """Return the folder for checkpoints for a file in it, else the name."""
    return CHECKPOINTS if name.startswith(CHECKPOINTS) else name


def checkpoints_in(found: dict[str, Look]) -> dict[str, Look]:
    """Return the files of the folder for checkpoints."""
    return {name: look for name, look in found.items() if unit_of(name) == CHECKPOINTS}


def age(found: tuple[str, Look]) -> tuple[bool, int, bool]:
    """Return a sort key, the lowest for the oldest file; clocks are coarse, or set back."""
    name, look = found
    return name == OUTCOME, look.changed, not only_grows(name)
