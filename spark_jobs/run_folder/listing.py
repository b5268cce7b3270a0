"""The files below a folder of this host at one moment, and which of them belong together."""

from __future__ import annotations

import contextlib
import itertools
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
    """Return the plain files below a folder, and what links among its checkpoints lead to.

    Returns:
        The status of each file by its relative path; and an error if the folder, or one below it
        that still exists, cannot be listed.
    """
    found: dict[str, Look] = {}
    errors: list[OSError] = []
    checkpoints, tops = folder / CHECKPOINT, [folder]
    for top in tops:  # which grow by linked folders
        for parent, folders, names in os.walk(top, onerror=errors.append):
            folders[:] = [name for name in folders if not name.startswith(PART)]
            tops += [
                path
                for path in (Path(parent, name) for name in folders)
                if path.is_symlink() and leads_inside(path, checkpoints)
            ]
            for path in (Path(parent, name) for name in names):
                with contextlib.suppress(*GONE):
                    status = path.lstat()
                    if stat.S_ISLNK(status.st_mode) and leads_inside(path, checkpoints):
                        status = path.stat()
                    if stat.S_ISREG(status.st_mode):
                        found[path.relative_to(folder).as_posix()] = look_of(status)
    unlisted = (
        error for error in errors if not isinstance(error, GONE) or error.filename == str(folder)
    )
    return found, next(unlisted, None)


def leads_inside(link: Path, top: Path) -> bool:
    """Return whether a link below a folder leads to something below it, but to none around it."""
    if top not in link.parents:
        return False
    try:
        target = Path(os.path.realpath(link, strict=True))
    except OSError:  # it leads to nothing, or to itself
        return False
    around = itertools.takewhile(lambda parent: parent != top.parent, link.parents)
    if target in (Path(os.path.realpath(parent)) for parent in around):
        return False  # what is in it would have no end
    return Path(os.path.realpath(top)) in target.parents


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
