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

    Links in a folder that a link leads to are left out: chains of links would multiply the files.

    Returns:
        The status of each file by its relative path; and an error if the folder, or one below it
        that still exists, cannot be listed.
    """
    found: dict[str, Look] = {}
    errors: list[OSError] = []
    checkpoints, tops = folder / CHECKPOINT, [folder]
    for top in tops:  # which grow by the linked folders below the first one
        follows = top == folder
        for parent, folders, names in os.walk(top, onerror=errors.append):
            folders[:] = [name for name in folders if not name.startswith(PART)]
            tops += [
                path
                for path in (Path(parent, name) for name in folders)
                if follows and path.is_symlink() and leads_inside(path, checkpoints)
            ]
            for path in (Path(parent, name) for name in names):
                with contextlib.suppress(*GONE):
                    status = path.lstat()
                    is_link = stat.S_ISLNK(status.st_mode)
                    if follows and is_link and leads_inside(path, checkpoints):
                        status = path.stat()
                    if stat.S_ISREG(status.st_mode):
                        found[path.relative_to(folder).as_posix()] = look_of(status)
    unlisted = (
        error for error in errors if not isinstance(error, GONE) or error.filename == str(folder)
    )
    return found, next(unlisted, None)


def leads_inside(link: Path, top: Path) -> bool:
    """Return whether a link below `top` leads to something in it that does not contain the link."""
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


def links_below(top: Path) -> dict[str, str]:
    """Return where the links below a folder lead to, relative to the link, by their relative path.

    An absolute link leads into the folder itself, and not into copies of it; a relative one that
    leads to the same is in its place.
    """
    found = {}
    for parent, folders, names in os.walk(top):
        for link in (Path(parent, name) for name in [*folders, *names]):
            with contextlib.suppress(OSError):  # no link, or removed meanwhile
                target = os.readlink(link)
                if os.path.isabs(target):
                    target = os.path.relpath(os.path.realpath(link), os.path.realpath(parent))
                found[link.relative_to(top).as_posix()] = target
    return found


def make_links(links: dict[str, str], top: Path) -> None:
    """Make links as returned by `links_below` in a folder, without those that lead out of it."""
    # A folder for files that are being written is not copied, so it has no place for its links.
    made = {top / name: to for name, to in links.items() if (top / name).parent.is_dir()}
    for link, target in made.items():
        link.symlink_to(target)
    for link in [link for link in made if not leads_inside(link, top)]:
        link.unlink()


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
