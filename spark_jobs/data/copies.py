"""This host's copies of files.

Remote files are copied once to each host and read from there in every epoch of every trial; a
changed file is copied again. See `spark_jobs.storage.host_cache`.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from search.errors import InvalidArgument, shown
from spark_jobs.data.finding import data_settings, expanded, opened
from spark_jobs.storage.files import Files, FileStatus
from spark_jobs.storage.host_cache import FileChanged, HostCache
from spark_jobs.storage.locations import HADOOP, Location
from spark_jobs.trial.context import DataSettings, current

_CHANGES = 3  # of a file while it is copied, at most


def local_copy(path: str) -> list[Path]:
    """Return files of this host with the content of `path`, each copied here at most once.

    The copies stay as long as this trial runs, each with one open file. Files of this host are not
    copied.

    Args:
        path: A file, a pattern such as `hdfs://namenode:8020/digits/*.tfrecord`, or a folder, whose
            files count except those that start with "_" or ".", as in Spark.

    Returns:
        The copies, in the order of the files' names.

    Raises:
        FileNotFoundError: The file does not exist, or the pattern or the folder has no file.
        PermissionError: The user may not read it.
        OSError: It cannot be read, or the disk of this host is full.
    """
    location, settings = Location.parse(path), data_settings()
    with opened(location, settings) as files:
        return copied(files, expanded(files, location), settings)


def open(path: str, mode: str = "rb", encoding: str | None = None) -> IO[Any]:  # noqa: A001  # data.open
    """Open this host's copy of one file for reading.

    Args:
        path: A file.
        mode: 'rb' or 'r'.
        encoding: Encoding of text. Default: UTF-8.

    Raises:
        InvalidArgument: Another mode.
        IsADirectoryError: The path is a folder.
        OSError: The file cannot be read, as for `local_copy`.
    """
    if mode not in ("r", "rt", "rb"):
        raise InvalidArgument("mode", "'r' or 'rb'", shown(mode), "data is read-only")
    location, settings = Location.parse(path), data_settings()
    with opened(location, settings) as files:
        status = files.status(location)
        if status.is_folder:
            raise IsADirectoryError(f"{location} is a folder; name a file in it")
        (copy,) = copied(files, [status], settings)
    text = None if "b" in mode else encoding or "utf-8"
    return builtins.open(copy, mode, encoding=text)  # the caller closes it


def copied(
    files: Files,
    found: list[FileStatus],
    settings: DataSettings,
    keep: Callable[[int], None] | None = None,
) -> list[Path]:
    """Return this host's copies of files; files of this host are not copied.

    Args:
        files: The store.
        found: The files.
        settings: The data settings.
        keep: Called with the descriptor that keeps a copy. Default: `held` keeps it.
    """
    cache, keep = HostCache(settings.cache), keep or held
    copies = []
    for status in found:
        if status.location.scheme == "file":
            copies.append(Path(status.location.path))
            continue
        copy, descriptor = _fetched(cache, files, status, settings)
        keep(descriptor)
        copies.append(copy)
    return copies


def _fetched(
    cache: HostCache, files: Files, status: FileStatus, settings: DataSettings
) -> tuple[Path, int]:
    """Return the copy of a file; of its newest version if it is changed meanwhile."""
    for _ in range(_CHANGES):
        try:
            return cache.fetch(files, status, user_of(status, settings))
        except FileChanged:
            status = files.status(status.location)
    return cache.fetch(files, status, user_of(status, settings))


def user_of(status: FileStatus, settings: DataSettings) -> str:
    """Return the user in whose name a file is read; '' if all trials of this host are one."""
    return settings.hadoop.user if status.location.scheme in HADOOP else ""


@contextlib.contextmanager
def released() -> Iterator[Callable[[int], None]]:
    """Yield a `keep` for `copied` that keeps copies until the end of the block."""
    with contextlib.ExitStack() as kept:

        def keep(descriptor: int) -> None:
            kept.callback(os.close, descriptor)
            _allow_one_more()

        yield keep


def held(descriptor: int) -> None:
    """Keep a copy until the trial ends; outside a trial, until this process ends.

    Args:
        descriptor: The descriptor that keeps it; closed if another one keeps the same copy.
    """
    trial = current()
    kept = _held if trial is None else trial.held
    lock = os.fstat(descriptor)  # not the path: somebody may have removed the cache's folder
    if kept.setdefault((lock.st_dev, lock.st_ino), descriptor) != descriptor:
        os.close(descriptor)
    else:
        _allow_one_more()


def _allow_one_more() -> None:
    """Let this process have one more file open, up to its hard limit.

    So copies take none from the train function. The limit is not raised by more: programs that it
    starts may close all descriptors up to it, and `select` takes none above 1,023.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft not in (hard, resource.RLIM_INFINITY):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft + 1, hard))


# As `TrialContext.held`, of calls outside a trial; a descriptor belongs to the process, too.
_held: dict[tuple[int, int], int] = {}
