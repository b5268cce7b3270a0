"""The files of a path, a pattern or a folder, in any store."""

from __future__ import annotations

import contextlib
import fnmatch
import re
from dataclasses import replace

from spark_jobs.storage.files import Files, FileStatus
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import files_at
from spark_jobs.trial.context import DataSettings, current

_GLANCE = 1 << 20  # bytes that `examine_data` reads
_MAGIC = re.compile(r"[*?\[]")


def exists(path: str) -> bool:
    """Return whether a file or a folder exists.

    Raises:
        OSError: The store does not answer.
    """
    location = Location.parse(path)
    with opened(location, data_settings()) as files:
        try:
            files.status(location)
        except FileNotFoundError:
            return False
        return True


def listdir(path: str) -> list[str]:
    """Return the names in a folder, sorted.

    Raises:
        NotADirectoryError: The path is a file.
        OSError: The folder does not exist, or cannot be read.
    """
    location = Location.parse(path)
    with opened(location, data_settings()) as files:
        if not files.status(location).is_folder:
            raise NotADirectoryError(f"{location} is a file; name its folder")
        return [status.location.name for status in files.listdir(location)]


def glob(path: str) -> list[str]:
    """Return the files that `local_copy` would copy, as URLs or paths, sorted.

    `*`, `?` and `[...]` match parts of a name, never a "/". As in Spark, they do not match the "_"
    or "." that a name begins with. In the path of a file or a folder that exists they are
    characters like others.

    Raises:
        OSError: The data cannot be read, as for `local_copy`.
    """
    location = Location.parse(path)
    with opened(location, data_settings()) as files:
        return [status.location.url for status in expanded(files, location)]


def examine_data(path: str, settings: DataSettings) -> tuple[list[int], int]:
    """Check that data is readable without copying it: list it, and read the first file's start.

    Args:
        path: A file, a pattern or a folder, as for `local_copy`.
        settings: The data settings.

    Returns:
        The sizes of the files in bytes, and the number of bytes read.

    Raises:
        OSError: The data cannot be read, as for `local_copy`.
    """
    location, read = Location.parse(path), bytearray()
    with opened(location, settings) as files:
        found = expanded(files, location)
        files.read(replace(found[0], length=min(found[0].length, _GLANCE)), read.extend)
    return [status.length for status in found], len(read)


def data_settings() -> DataSettings:
    """Return the trial's data settings; on the driver those of its session."""
    trial = current()
    if trial is not None:
        return trial.data
    from spark_jobs.session import active_data_settings

    return active_data_settings()


def opened(location: Location, settings: DataSettings) -> contextlib.closing[Files]:
    """Return the store of a location, which the end of a block closes."""
    return contextlib.closing(files_at(location, settings.hadoop))


def expanded(files: Files, location: Location) -> list[FileStatus]:
    """Return the files of a path, a pattern or a folder, sorted.

    Raises:
        FileNotFoundError: There is none.
        OSError: The store does not answer.
    """
    try:
        status = files.status(location)  # a name may have the characters of a pattern
    except FileNotFoundError:
        if not _MAGIC.search(location.path):
            raise
        found = [status for status in _matching(files, location) if not status.is_folder]
        kind = "matches"
    else:
        if not status.is_folder:
            return [status]
        found = [s for s in files.listdir(location) if not s.is_folder and _counts(s.location.name)]
        kind = "is in"
    if not found:
        raise FileNotFoundError(f"no file {kind} {location}")
    return sorted(found, key=lambda status: status.location.path)


def _matching(files: Files, location: Location) -> list[FileStatus]:
    """Return the files that match a pattern, one level of folders after the other."""
    parts = location.path.strip("/").split("/")
    plain = next(number for number, part in enumerate(parts) if _MAGIC.search(part))
    folders = [files.status(location.at("/" + "/".join(parts[:plain])))]
    for part in parts[plain:]:
        entries = [
            e for folder in folders if folder.is_folder for e in files.listdir(folder.location)
        ]
        folders = [
            entry
            for entry in entries
            if fnmatch.fnmatchcase(entry.location.name, part)
            and (_counts(entry.location.name) or part[0] == entry.location.name[0])
        ]
    return folders


def _counts(name: str) -> bool:
    return not name.startswith(("_", "."))
