"""Copies of remote files, one per host, whatever the number of trials and slots on it.

Each copy has a folder with the file under its own name, and a lock beside it. A reader holds the
lock shared, until it releases it or its process ends; a process that makes or removes a copy holds
it exclusively. The kernel drops the locks of a killed process. The locks are `fcntl.flock`, since
the library filelock has no shared locks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Self

import msgspec

from spark_jobs.storage.files import CHANGED, Files, FileStatus
from spark_jobs.storage.local_files import make_folder, open_new
from spark_jobs.storage.locations import Location

_KEY = re.compile("[0-9a-f]{32}")  # names of the folders of copies
_LONGEST_NAME = 255  # bytes of a file's name
_LONGEST_SUFFIX = 20
_SHARE = 0.5  # share of the disk's free bytes that copies may take by default
_FULL = (errno.ENOSPC, errno.EDQUOT)
_OF_HOST = (*_FULL, errno.EIO, errno.ENFILE, errno.EROFS)


class CacheUnavailable(OSError):
    """A host whose disk has no room for a copy, or fails: no error of the train function."""


class FileChanged(OSError):
    """A file that was changed since it was looked at, or while it was read."""


class CacheSettings(msgspec.Struct, frozen=True):
    """The folder and the size limit of a host's cache.

    Attributes:
        folder: Folder of the copies; '' for one in the folder for temporary files.
        limit: Maximum bytes of all copies, except that copies in use are never removed; 0 for half
            of the bytes that are free or taken by copies.
    """

    folder: str = ""
    limit: int = 0

    def with_folder(self) -> Self:
        """Return these settings with the folder of this process' host, never ''.

        Raises:
            FileNotFoundError: No folder for temporary files can be written to.
        """
        if self.folder:
            return self
        default = Path(tempfile.gettempdir(), f"spark-tf-experiment-cache-{os.getuid()}")
        return msgspec.structs.replace(self, folder=str(default))


@contextlib.contextmanager
def _blamed_on_the_host() -> Iterator[None]:
    """Turn errors of this host's disk into CacheUnavailable."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_HOST or isinstance(error, CacheUnavailable):
            raise
        raise CacheUnavailable(error.errno, error.strerror, error.filename) from error


class HostCache:
    """The copies on this host. Processes and threads may use the same folder at once.

    Args:
        settings: Folder and size limit.
    """

    def __init__(self, settings: CacheSettings) -> None:
        self._folder = Path(settings.with_folder().folder)
        self._limit = settings.limit

    @property
    def folder(self) -> Path:
        """The folder of the copies."""
        return self._folder

    def room(self) -> int:
        """Return how many bytes the copies may take here, existing ones included.

        Creates the folder if it is missing.

        Raises:
            OSError: The folder cannot be created, belongs to another user, is a link, or others can
                write to it.
        """
        self._prepare()
        free = shutil.disk_usage(self._folder).free
        taken = sum(size for _, size, _ in self._copies())
        return min(free + taken, self._limit or self._share(taken))

    def _share(self, taken: int) -> int:
        return int((shutil.disk_usage(self._folder).free + taken) * _SHARE)

    def fetch(self, files: Files, status: FileStatus, user: str = "") -> tuple[Path, int]:
        """Return this host's copy of a file, which is made if it does not exist.

        Args:
            files: The store to read from.
            status: The file's status; with another length or version it is another file.
            user: The user in whose name it is read; what others may read is not for this one.

        Returns:
            The copy, and a descriptor that keeps the copy until it is closed.

        Raises:
            CacheUnavailable: The disk of this host is full, or fails.
            FileChanged: The file has another status by now.
            OSError: The file cannot be read, or is larger than the limit of the settings.
        """

        def check() -> None:
            if files.status(status.location) != status:
                raise FileChanged(f"{status.location}: {CHANGED}")

        def download(part: Path) -> None:
            with part.open("wb") as file:
                files.read(status, file.write)
            check()  # else it may have parts of two versions

        name = _name_of_copy(status.location)
        source = str(status.location)
        key = identity(status, user)
        length = status.length
        return self.build(key, name, source, length, download, exact=True, waited=check)

    def build(
        self,
        key: object,
        name: str,
        source: str,
        size: int,
        make: Callable[[Path], None],
        *,
        exact: bool = False,
        waited: Callable[[], None] = lambda: None,
    ) -> tuple[Path, int]:
        """Return this host's file for a key, which is made if it does not exist.

        Args:
            key: The inputs that determine the file's content, as JSON.
            name: The file's name.
            source: The file's name in messages.
            size: Its size in bytes, or an estimate.
            make: Called with the path of an empty file, to which it writes.
            exact: Whether a file of another size is invalid; else only an empty file is, so `make`
                then writes at least one byte.
            waited: Called before `make` if another process was waited for, whose `make` failed.

        Returns:
            The file and a descriptor, as `fetch`.

        Raises:
            CacheUnavailable: The disk of this host is full, or fails.
            OSError: An error of `make` or `waited`, or the size is above the limit of the settings.
        """
        self._prepare()
        digest = hashlib.sha256(msgspec.json.encode(key)).hexdigest()[:32]
        built = self._folder / digest / name
        has_waited = False
        while True:
            lock, others = self._waited_lock(digest, fcntl.LOCK_SH)
            has_waited |= others
            if _is_whole(built, size if exact else None):
                os.utime(built.parent)  # the time of its last use
                return built, lock
            os.close(lock)
            with self._alone(digest) as others:
                if not _is_whole(built, size if exact else None):
                    if has_waited or others:
                        waited()
                    self._make_room(size, built.parent, source)
                    self._make(make, built, source, size)

    @_blamed_on_the_host()
    def _prepare(self) -> None:
        make_folder(self._folder)
        self._check_protected()

    def _check_protected(self) -> None:
        """Refuse a folder in which others could put files, which trials would take for copies.

        In /tmp any user can create the folder, or a link of its name, and change the link later.
        """
        found = self._folder.lstat()
        mode = stat.S_IMODE(found.st_mode)
        hint = "set spark.experiment.cache.folder to another"
        if found.st_uid != os.getuid():
            reason = f"belongs to user {found.st_uid}"
        elif stat.S_ISLNK(found.st_mode):
            reason = "is a link"
        elif mode & (stat.S_IWGRP | stat.S_IWOTH):
            reason = f"has mode {mode:o}, so others can write to it"
            hint = f"remove it or chmod go-w it if it is empty, or {hint}"
        else:
            return
        raise PermissionError(errno.EACCES, f"{reason}; {hint}", str(self._folder))

    def _make(self, make: Callable[[Path], None], built: Path, source: str, size: int) -> None:
        part = built.with_name(".part")
        try:
            with _blamed_on_the_host():
                make_folder(built.parent)
                part.unlink(missing_ok=True)  # of a process that was killed
                open_new(part).close()  # private to the user, however `make` opens it
                self._fill(part, make, source, size)
                written = part.stat().st_size
            if written > size:
                self._make_room(written, built.parent, source)
            with _blamed_on_the_host():
                part.chmod(0o400)  # a trial that wrote to it would change the data of all others
                part.replace(built)
        except BaseException:
            shutil.rmtree(built.parent, ignore_errors=True)
            raise

    def _fill(self, part: Path, make: Callable[[Path], None], source: str, size: int) -> None:
        try:
            make(part)
            with part.open("rb") as file:
                os.fsync(file.fileno())  # else it may be empty after a power cut
        except CacheUnavailable:
            raise
        except OSError as error:
            if error.errno not in _FULL:
                raise
            free = 0 if error.errno == errno.EDQUOT else shutil.disk_usage(self._folder).free
            raise self._no_room(source, size, free + part.stat().st_size) from None

    def _make_room(self, needed: int, new: Path, source: str) -> None:
        """Remove the least recently used copies until a new one fits.

        Args:
            needed: Bytes of the new one.
            new: Its folder.
            source: The name of its file in messages.
        """
        copies = sorted(self._copies(), key=lambda found: found[0])
        all_taken = sum(size for _, size, _ in copies)
        limit = self._limit or self._share(all_taken)
        there_is = shutil.disk_usage(self._folder).free + all_taken
        copies = [found for found in copies if found[2] != new]
        taken = sum(size for _, size, _ in copies)
        if needed > limit:
            refused = OSError if self._limit else CacheUnavailable
            raise refused(
                errno.ENOSPC,
                f"{needed} bytes are more than the cache of this host may hold, {limit}; raise "
                "spark.experiment.cache.limit, or read it in batches",
                str(self._folder),
            )
        if needed > there_is:
            raise self._no_room(source, needed, there_is)
        for _, size, folder in copies:
            if taken + needed <= min(limit, there_is):
                return
            with contextlib.suppress(BlockingIOError), self._alone(folder.name, wait=False):
                shutil.rmtree(folder, ignore_errors=True)
                taken -= size

    def _copies(self) -> Iterator[tuple[float, int, Path]]:
        """Yield each copy's time of last use, its bytes and its folder.

        Other files in the folder are not ours.
        """
        for folder in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if _KEY.fullmatch(folder.name) and folder.is_dir():
                    size = sum(path.stat().st_size for path in folder.iterdir())
                    yield folder.stat().st_mtime, size, folder

    def _no_room(self, source: str, size: int, free: int) -> CacheUnavailable:
        what = f"the {size} bytes of {source}, {free} are free"
        if size <= free:  # an estimate, which was too low
            what = f"{source}, which decoded takes more than the {free} bytes that are free"
        return CacheUnavailable(
            errno.ENOSPC,
            f"no room for {what}; set spark.experiment.cache.folder to a larger disk, or read it "
            "in batches",
            str(self._folder),
        )

    @contextlib.contextmanager
    def _alone(self, key: str, *, wait: bool = True) -> Iterator[bool]:
        """Hold a copy's lock exclusively, and yield whether others were waited for.

        BlockingIOError if others hold it and `wait` is False.
        """
        if wait:
            lock, others = self._waited_lock(key, fcntl.LOCK_EX)
        else:
            lock, others = self._lock(key, fcntl.LOCK_EX | fcntl.LOCK_NB), False
        try:
            yield others
        finally:
            os.close(lock)

    def _waited_lock(self, key: str, kind: int) -> tuple[int, bool]:
        """Return a copy's lock, and whether others were waited for."""
        try:
            return self._lock(key, kind | fcntl.LOCK_NB), False
        except BlockingIOError:
            return self._lock(key, kind), True

    @_blamed_on_the_host()
    def _lock(self, key: str, kind: int) -> int:
        descriptor = os.open(
            self._folder / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(descriptor, kind)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _name_of_copy(location: Location) -> str:
    """Return the name of a file's copy: the file's own, without a query, or a shorter one."""
    location = location.without_query
    whole = location.name.encode(errors="surrogateescape")
    if len(whole) <= _LONGEST_NAME:
        return location.name or "data"
    suffix = PurePosixPath(location.name).suffix
    if len(suffix) > _LONGEST_SUFFIX:
        suffix = ""
    start = whole[: _LONGEST_NAME - len(suffix.encode(errors="surrogateescape"))]
    return start.decode(errors="ignore") + suffix


def identity(status: FileStatus, user: str) -> list[str | int]:
    """Return the identity of a file's version for a user, as JSON."""
    return [status.location.url, status.length, status.version, user]


def _is_whole(built: Path, size: int | None) -> bool:
    try:
        found = built.stat().st_size
    except OSError:
        return False
    return found > 0 if size is None else found == size
