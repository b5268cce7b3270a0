"""The owner of a run: one driver at a time, on this host and on storage without locks.

A driver's mark (see `spark_jobs.run_folder.marks`) gets the next number, which storage gives to
only one driver. The mark records when its driver has released the run. A mark that no longer
changes is that of a dead driver; the reader measures the silence by its own clock. No number is
used twice: a driver that was suspended and presumed dead touches only its own mark, and finds a
newer one.

On the same host, the driver's process is checked as well, so there is no need to wait for signs of
life. Where it cannot be seen, as in another container, there is a kernel lock that a driver holds
until its end: if it is free, two missing signs of life are enough. It says nothing about drivers of
other hosts: many shared folders are mounted so that only one host sees its locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from experiment.results.text import command, duration, printable
from search.errors import InvalidArgument
from spark_jobs import time_limits
from spark_jobs.run_folder.marks import (
    Mark,
    Origin,
    Silence,
    is_coming,
    newest_mark,
    number_of,
    read_mark,
)
from spark_jobs.run_folder.paths import OWNERS, RunPaths
from spark_jobs.storage.files import Files, FileStatus, LocalFiles, WritableFiles, beside
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.local_files import open_appending
from spark_jobs.storage.locations import Location
from spark_jobs.storage.locks import Lock
from spark_jobs.storage.refusals import refused
from spark_jobs.storage.stores import writable_files_at

_LOCK = "lock"
_LOCK_TIMEOUT = 1.0  # seconds; readers, or a child before its exec, may hold the lock briefly
_RELEASE_TIMEOUT = 5.0  # seconds
_CHECKS_PER_BEAT = 5  # of another driver's mark
_SILENT = 600.0  # seconds; far above `time_limits.DRIVER_SILENCE`, as clocks of hosts differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The driver of a run, or the last one if it has not released the run.

    Attributes:
        host: The driver's host.
        pid: The id of its process.
        application: Spark's id of its application.
        ran: Seconds from its start to its last sign of life, by its own clock.
        seen: The time of that sign, in seconds since 1970, by its own clock.
        alive: Whether it runs; None if only its signs of life can tell.
    """

    host: str
    pid: int
    application: str
    ran: float
    seen: float
    alive: bool | None

    def __str__(self) -> str:
        return f"host {self.host}, pid {self.pid}"

    @property
    def seems_gone(self) -> bool:
        """Whether it seems to run no more; for display only.

        If only signs of life can tell: whether the last one is more than ten minutes old by this
        host's clock.
        """
        if self.alive is None:
            return time.time() - self.seen > _SILENT
        return not self.alive


@dataclass(frozen=True, slots=True)
class Owned:
    """A run that this driver owns.

    Attributes:
        mark: The location of this driver's mark.
        killed: The last owner, if it has not released the run.
    """

    mark: Location
    killed: Owner | None

    def leaving(self, now: float) -> float:
        """Return the maximum seconds for which slots of the last owner may still run.

        Args:
            now: Seconds since 1970.
        """
        if self.killed is None:
            return 0.0
        return min(max(0.0, self.killed.seen + time_limits.LEAVING - now), time_limits.LEAVING)


@contextlib.contextmanager
def owned(
    root: Location,
    hadoop: HadoopSettings,
    application: str,
    *,
    taken: Callable[[str], None],
    tell: Callable[[str], None],
    argument: str = "resume",
    beat: float = time_limits.DRIVER_BEAT,
    silence: float = time_limits.DRIVER_SILENCE,
) -> Iterator[Owned]:
    """Own a run while the block runs; no other driver can run it.

    Args:
        root: The run's folder, created if missing.
        hadoop: The settings of HDFS.
        application: Spark's id of this driver's application.
        taken: Called with a message, once and in another thread, when another driver has taken over
            the run, as after a long suspension of this process.
        tell: Called with a message while the last owner may be dead and is waited for.
        argument: The argument's name, for errors.
        beat: Seconds between two signs of life.
        silence: Seconds without a sign of life after which an owner is presumed dead.

    Raises:
        InvalidArgument: Another driver owns the run, or its folder cannot be written to.
    """
    folder = root.below(OWNERS)
    with contextlib.ExitStack() as held:
        try:
            files = held.enter_context(contextlib.closing(writable_files_at(folder, hadoop)))
            files.make_folder(folder)
            mark = Mark(
                host=socket.gethostname(),
                pid=os.getpid(),
                origin=Origin.of_this_process(),
                application=application[:200],
                since=time.time(),
                locked=held.enter_context(_locked(folder)),
            )
            ours = _Taker(
                files=files, folder=folder, mark=mark, tell=tell, beat=beat, silence=silence
            ).take()
        except _AlreadyOwned as refusal:
            raise _refused(argument, root, refusal.owner) from None
        except OSError as error:
            got = f"{str(root)!r}: {error}"
            raise refused(error, argument, "a run that can be written to", got) from None
        with _beating(ours.mark, mark, hadoop, taken, beat):
            yield ours


def owner_of(paths: RunPaths) -> Owner | None:
    """Return the owner of a run.

    Args:
        paths: The paths of the run, or of a copy on this host with the times of its files.

    Returns:
        None if the run was released, or if no mark can be read.
    """
    files, folder = LocalFiles(), Location.parse(paths.owners)
    try:
        last = newest_mark(files, folder)
        mark = None if last is None else read_mark(files, last)
    except OSError:
        return None
    if last is None or mark is None or mark.released:
        return None
    locked = None if paths.kept_at else _is_locked(paths.owners / _LOCK)
    if locked is not None and mark.locked and mark.is_of_this_system():
        return _owner(mark, last, locked)
    runs = mark.runs()
    return _owner(mark, last, locked or None if runs is None else runs)


class _AlreadyOwned(Exception):
    def __init__(self, owner: Owner | None) -> None:
        super().__init__()
        self.owner = owner


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taker:
    files: WritableFiles
    folder: Location
    mark: Mark
    tell: Callable[[str], None]
    beat: float
    silence: float

    def take(self) -> Owned:
        """Write the newest mark, once the last owner has released the run or is dead.

        Raises:
            _AlreadyOwned: The last owner is alive.
        """
        part = beside(self.folder.below(_LOCK))
        self.files.write(part, self.mark.encoded())
        try:
            while True:
                last = newest_mark(self.files, self.folder)
                killed = None if last is None else self._wait_for_end(last, part)
                number = 1 + (0 if last is None else number_of(last.location))
                place = self.folder.below(f"{number:06d}.json")
                self._touch(part)  # from here on its time is by the clock that wrote it
                # Another driver was faster, and may have removed the part.
                with contextlib.suppress(FileExistsError, FileNotFoundError):
                    self.files.rename(part, place, replace=False)
                    # After a lost answer the client repeats the rename, and then takes the mark of
                    # a faster driver for ours.
                    if read_mark(self.files, self.files.status(place)) == self.mark:
                        return Owned(place, killed)
        except BaseException:
            with contextlib.suppress(OSError):  # no reader needs it
                self.files.remove(part)
            raise

    def _wait_for_end(self, last: FileStatus, part: Location) -> Owner | None:
        """Wait until the run has no owner; return the last one if it has not released the run."""
        mark = read_mark(self.files, last)
        if mark is not None and mark.released:
            return None
        owner = None if mark is None else _owner(mark, last)
        if self._is_dead(mark):
            return owner
        who = "its driver, whose mark cannot be read," if owner is None else str(owner)
        seconds = 2 * self.beat if self._let_go_of_lock(mark) else self.silence
        self.tell(
            f"{who} has not released {str(self.folder.parent)!r}; "
            f"waiting for {seconds:g} s without a sign of life"
        )
        silence = Silence(seconds, 2 * self.beat, time.monotonic())
        while not (silence.is_over(time.monotonic()) or self._is_dead(mark)):
            time.sleep(self.beat / _CHECKS_PER_BEAT)
            self._touch(part)  # if this fails, as in HDFS's safe mode, the owner fails too
            now = newest_mark(self.files, self.folder)
            if now != last and not is_coming(now):
                self._check_over(now)
                return None
        return owner

    def _touch(self, part: Location) -> None:
        try:
            self.files.touch(part)
        except FileNotFoundError:  # an owner has removed it, as a file of a killed driver
            self.files.write(part, self.mark.encoded())

    def _is_dead(self, mark: Mark | None) -> bool:
        """Return whether its driver is certainly dead: its process was on this host, and ended."""
        return mark is not None and mark.runs() is False

    def _let_go_of_lock(self, mark: Mark | None) -> bool:
        """Return whether its driver is probably dead.

        It held the lock that this driver holds now, on this host, and its process cannot be seen,
        as in another container. Of two mounts of one folder, each may have locks of its own.
        """
        if mark is None or not (mark.locked and self.mark.locked):
            return False
        return mark.is_of_this_system() and mark.runs() is None

    def _check_over(self, last: FileStatus | None) -> None:
        mark = None if last is None else read_mark(self.files, last)
        if last is not None and (mark is None or not mark.released):
            raise _AlreadyOwned(None if mark is None else _owner(mark, last))


@contextlib.contextmanager
def _beating(
    place: Location,
    mark: Mark,
    hadoop: HadoopSettings,
    taken: Callable[[str], None],
    beat: float,
) -> Iterator[None]:
    """Give signs of life while the block runs, and then release the run."""
    closing, ended = threading.Event(), threading.Event()

    def run() -> None:
        with contextlib.closing(writable_files_at(place, hadoop)) as files:
            reason = None
            while reason is None and not closing.wait(beat):
                with contextlib.suppress(OSError):  # the store fails, perhaps only for a while
                    reason = _why_lost(files, place)
                    if reason is None:
                        files.touch(place)
            if reason is not None:
                taken(reason)
                return
            with contextlib.suppress(OSError):
                files.write(place, msgspec.structs.replace(mark, released=True).encoded())

    def run_to_its_end() -> None:
        try:
            run()
        finally:
            ended.set()

    threading.Thread(target=run_to_its_end, name="experiment-owner", daemon=True).start()
    try:
        yield
    finally:
        closing.set()
        ended.wait(_RELEASE_TIMEOUT)  # HDFS may not respond


def _why_lost(files: Files, place: Location) -> str | None:
    last = newest_mark(files, place.parent)
    if last is not None and last.location == place:
        return None
    if last is None or number_of(last.location) < number_of(place):
        return f"the owner file {place} was removed"
    mark = read_mark(files, last)
    who = "another driver" if mark is None else str(_owner(mark, last))
    return f"{who} has taken over the run, since this driver gave no sign of life"


def _refused(argument: str, root: Location, owner: Owner | None) -> InvalidArgument:
    if owner is None:
        got = f"{str(root)!r}, which has an active driver, whose mark cannot be read"
    else:
        application = f" (application {owner.application})" if owner.application else ""
        got = (
            f"{str(root)!r}, which {owner}{application} has been running for {duration(owner.ran)}"
        )
    hint = f"wait for its end, or end it: {command('stop', str(root))}"
    return InvalidArgument(argument, "a run with no active driver", got, hint)


def _owner(mark: Mark, status: FileStatus, alive: bool | None = None) -> Owner:
    return Owner(
        host=printable(mark.host),
        pid=mark.pid,
        application=printable(mark.application),
        ran=max(0.0, status.modified - mark.since),
        seen=status.modified,
        alive=alive,
    )


@contextlib.contextmanager
def _locked(folder: Location) -> Iterator[bool]:
    """Hold the lock of a run; yields False if its storage has no locks.

    Raises:
        _AlreadyOwned: Another process holds it.
    """
    if folder.scheme != "file":
        yield False
        return
    lock = Lock(open_appending(Path(folder.path, _LOCK)))
    try:
        try:
            locked = lock.acquire(_LOCK_TIMEOUT)
        except BlockingIOError:
            raise _AlreadyOwned(owner_of(RunPaths(Path(folder.parent.path)))) from None
        yield locked
    finally:
        lock.close()


def _is_locked(path: Path) -> bool | None:
    """Return whether another process holds a lock; None if that cannot be checked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False
