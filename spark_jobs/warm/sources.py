"""Files on which an import depends, to notice that they were changed since."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

Mark = tuple[int, int, int]

_CLOCK = 20_000_000  # nanoseconds, above the step of the clock by which the kernel marks files
_INSTALLED = ("site-packages", "dist-packages")


def sources_of(modules: Mapping[str, ModuleType], search_path: Iterable[str]) -> set[Path]:
    """Return the files and folders that change with what an import of modules executes.

    These are the files of the user's own modules, and the folders of installed packages, which
    change when a package is installed or removed; a package has too many files to look at.

    Args:
        modules: The imported modules by their names.
        search_path: The folders that were searched.
    """
    folders = {Path(path) for path in search_path if Path(path).name in _INSTALLED}
    still = [*folders, Path(sysconfig.get_path("stdlib"))]
    files = {Path(file) for module in list(modules.values()) if (file := _file_of(module))}
    return folders | {f for f in files if not any(f.is_relative_to(place) for place in still)}


def _file_of(module: ModuleType) -> str:
    try:
        file = module.__file__
    except Exception:  # a lazy module of the user, which may raise anything
        return ""
    return file if isinstance(file, str) and os.path.isabs(file) else ""


def marks_of(sources: Iterable[Path]) -> dict[Path, Mark]:
    """Return what changes of each file when it is written or replaced."""
    return {path: _mark(path) for path in sources}


def changed_since(marks: Mapping[Path, Mark], begin: int) -> bool:
    """Return whether a source was changed at or after the begin of its import.

    Args:
        marks: The marks of the sources.
        begin: The time of the begin, as `time.time_ns` returns it.
    """
    begin -= _CLOCK
    return any(
        changed >= begin and not _has_new_cache(path, begin)
        for path, (changed, _, _) in marks.items()
    )


def _has_new_cache(folder: Path, begin: int) -> bool:
    """Return whether the import itself may have changed a folder, by compiling what is in it."""
    cache = folder / "__pycache__"
    return cache.is_dir() and _mark(cache)[0] >= begin


def _mark(path: Path) -> Mark:
    """Return the mark of a file; of a file in an archive, that of the archive."""
    for place in (path, *path.parents):
        try:
            found = place.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            break
        if place == path or not place.is_dir():
            # Not st_mtime_ns, which a copy may keep.
            return found.st_ctime_ns, found.st_size, found.st_ino
        break
    return 0, 0, 0
