"""Who runs a run: one driver at a time, on this host and on storage that knows no locks.

A driver's mark (see `spark_jobs.run_folder.marks`) gets the next number, which storage gives to a
single one. It says so once its driver has handed the run back. A mark that no longer changes is
that of a dead driver; for how long it has been silent is measured by the clock of who looks. No
number is used twice: a driver that slept while it was taken for dead touches no mark but its own,
and finds a newer one.

On this host the process is looked up besides, and there is a kernel lock, which a driver holds as
long as it lives. So nobody has to wait for signs of life from a driver of the same host. One of
another host is waited for all the same: many a shared folder is mounted so that its locks are seen
on one host only.
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
from spark_jobs.storage.stores import writable_files_at

_LOCK = "lock"
_BRIEFLY = 1.0  # seconds for which a lock may be that of a reader, or of a child before its exec
_LAST_WORD = 5.0  # seconds that handing a run back may take
_LOOKS = 5  # at another's mark, in the time between two signs of life


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A driver that runs a run, or that ran it last and did not hand it back.

    Attributes:
        host: Where it runs.
        pid: Its process there.
        application: Spark's name of its application.
        ran: Seconds from its start to its last sign of life, by its own clock.
        seen: When it gave that, in seconds since 1970, by its own clock.
        alive: Does it run? None where only its signs of life can tell.
    """

    host: str
    pid: int
    application: str
    ran: float
    seen: float
    alive: bool | None

    def __str__(self) -> str:
        return f"host {self.host}, pid {self.pid}"


@dataclass(frozen=True, slots=True)
class Owned:
    """A run that is owned.

    Attributes:
        mark: Where the mark of this driver is.
        killed: The owner before it, where that did not hand the run back.
    """

    mark: Location
    killed: Owner | None

    def leaving(self, now: float) -> float:
        """Return for how many seconds, at the most, slots of that owner may still be there.

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
    """Own a run as long as the block lasts; nobody else can run it meanwhile.

    Args:
        root: The run's folder; made where it is missing.
        hadoop: Where HDFS is.
        application: Spark's name of the application that runs it.
        taken: Told, once and in another thread, that somebody else owns the run by now, as after
            this process was suspended for long.
        tell: Told why it takes so long, where an owner may be dead.
        argument: What messages call the run.
        beat: Seconds between two signs of life.
        silence: Seconds without one after which an owner is taken for dead.

    Raises:
        InvalidArgument: Somebody else owns it, or its folder cannot be written to.
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
            raise InvalidArgument(argument, "a run that can be written to", got) from None
        with _beating(ours.mark, mark, hadoop, taken, beat):
            yield ours


def owner_of(paths: RunPaths) -> Owner | None:
    """Return who runs a run, or ran it last and did not hand it back.

    Args:
        paths: Of the run, or of a copy on this host that keeps the times of its files.

    Returns:
        None where nobody does, or nothing that can be read says who.
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
        """Put the mark there as the newest one, once the one before is over.

        Raises:
            _AlreadyOwned: The one before is that of a driver that lives.
        """
        part = beside(self.folder.below(_LOCK))
        self.files.write(part, self.mark.encoded())
        try:
            while True:
                last = newest_mark(self.files, self.folder)
                killed = None if last is None else self._wait_for_end(last, part)
                number = 1 + (0 if last is None else number_of(last.location))
                place = self.folder.below(f"{number:06d}.json")
                self._touch(part)  # from here on its time is of the clock that wrote it
                # Somebody was faster, and has tidied up perhaps.
                with contextlib.suppress(FileExistsError, FileNotFoundError):
                    self.files.rename(part, place, replace=False)
                    return Owned(place, killed)
        except BaseException:
            with contextlib.suppress(OSError):  # nobody reads it
                self.files.remove(part)
            raise

    def _wait_for_end(self, last: FileStatus, part: Location) -> Owner | None:
        """Wait until a mark is that of nobody; return whose it was, if it was not handed back."""
        mark = read_mark(self.files, last)
        if mark is not None and mark.released:
            return None
        owner = None if mark is None else _owner(mark, last)
        if self._is_dead(mark):
            return owner
        who = "its driver, whose mark cannot be read" if owner is None else str(owner)
        self.tell(
            f"{str(self.folder.parent)!r} was not handed back by {who}; "
            f"{self.silence:g} s without a sign of life are waited for"
        )
        silence = Silence(self.silence, 2 * self.beat, time.monotonic())
        while not (silence.is_over(time.monotonic()) or self._is_dead(mark)):
            time.sleep(self.beat / _LOOKS)
            self._touch(part)  # where nobody can, as in a safe mode, the owner cannot either
            now = newest_mark(self.files, self.folder)
            if now != last and not is_coming(now):
                self._check_over(now)
                return None
        return owner

    def _touch(self, part: Location) -> None:
        try:
            self.files.touch(part)
        except FileNotFoundError:  # an owner has removed it, as what a killed driver has left
            self.files.write(part, self.mark.encoded())

    def _is_dead(self, mark: Mark | None) -> bool:
        """Is its driver certainly gone: its process, or the lock that is held here now?"""
        if mark is None:
            return False
        had_our_lock = mark.locked and self.mark.locked and mark.is_of_this_system()
        return had_our_lock or mark.runs() is False

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
    """Give signs of life as long as the block lasts, and hand the run back then."""
    closing, ended = threading.Event(), threading.Event()

    def run() -> None:
        with contextlib.closing(writable_files_at(place, hadoop)) as files:
            reason = None
            while reason is None and not closing.wait(beat):
                with contextlib.suppress(OSError):  # the place is in trouble, which may end
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
        ended.wait(_LAST_WORD)  # and no longer: it may be asking an HDFS that does not answer


def _why_lost(files: Files, place: Location) -> str | None:
    last = newest_mark(files, place.parent)
    if last is not None and last.location == place:
        return None
    if last is None or number_of(last.location) < number_of(place):
        return f"{place}, which says who runs it, was removed"
    mark = read_mark(files, last)
    who = "somebody else" if mark is None else str(_owner(mark, last))
    return f"{who} has taken the run over, since nothing was heard from here"


def _refused(argument: str, root: Location, owner: Owner | None) -> InvalidArgument:
    if owner is None:
        got = f"{str(root)!r}, which somebody runs whose mark cannot be read"
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
    """Hold the lock of a run; yields False where its storage knows none.

    Raises:
        _AlreadyOwned: Somebody else holds it.
    """
    if folder.scheme != "file":
        yield False
        return
    lock = Lock(open_appending(Path(folder.path, _LOCK)))
    try:
        try:
            locked = lock.acquire(_BRIEFLY)
        except BlockingIOError:
            raise _AlreadyOwned(_holder(folder)) from None
        yield locked
    finally:
        lock.close()


def _holder(folder: Location) -> Owner | None:
    return owner_of(RunPaths(Path(folder.parent.path)))


def _is_locked(path: Path) -> bool | None:
    """Return whether somebody holds a lock; None where nobody can tell."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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
