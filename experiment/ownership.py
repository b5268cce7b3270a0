"""Who runs a run: one driver at a time, on this host and on storage that knows no locks.

Each driver that runs a run leaves a mark in its folder, `owners/<n>.json`, under the next number,
which storage gives to a single one. The newest mark is the owner's. It is touched every 5 s, and
says so once its driver has handed the run back. A mark that no longer changes is that of a dead
driver; for how long it has been silent is measured by the clock of who looks. No number is used
twice: a driver that slept while it was taken for dead touches no mark but its own, and finds a
newer one.

On this host there is a kernel lock besides, which a driver holds as long as it lives. So nobody has
to wait for signs of life from a driver of the same host. One of another host is waited for all the
same: many a shared folder is mounted so that its locks are seen on one host only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from experiment.text import command, duration, printable
from search.errors import InvalidArgument
from spark_jobs.files import (
    Files,
    FileStatus,
    LocalFiles,
    WritableFiles,
    beside,
    writable_files_at,
)
from spark_jobs.hadoop import HadoopSettings
from spark_jobs.locations import Location
from spark_jobs.paths import OWNERS, RunPaths
from spark_jobs.storage import open_appending

_LOCK = "lock"
_LARGEST = 4096  # bytes of a mark
_BRIEFLY = 1.0  # seconds for which a lock may be that of a reader, or of a child before its exec
_LAST_WORD = 5.0  # seconds that handing a run back may take
_LOOKS = 5  # at another's mark, in the time between two signs of life
_MARK = re.compile(r"(\d{1,9})\.json")


@dataclass(frozen=True, slots=True)
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


@contextlib.contextmanager
def owned(
    root: Location,
    hadoop: HadoopSettings,
    application: str,
    *,
    taken: Callable[[str], None],
    tell: Callable[[str], None],
    argument: str = "resume",
    beat: float = 5.0,
    silence: float = 30.0,
) -> Iterator[None]:
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
            mark = _Mark(
                host=socket.gethostname(),
                pid=os.getpid(),
                application=application[:200],
                since=time.time(),
                locked=held.enter_context(_locked(folder)),
            )
            place = _Taker(files, folder, mark, tell, beat, silence).take()
        except _AlreadyOwned as refusal:
            raise _refused(argument, root, refusal.owner) from None
        except OSError as error:
            got = f"{str(root)!r}: {error}"
            raise InvalidArgument(argument, "a run that can be written to", got) from None
        with _beating(place, mark, hadoop, taken, beat):
            yield


def owner_of(paths: RunPaths) -> Owner | None:
    """Return who runs a run, or ran it last and did not hand it back.

    Args:
        paths: Of the run, or of a copy on this host that keeps the times of its files.

    Returns:
        None where nobody does, or nothing that can be read says who.
    """
    files, folder = LocalFiles(), Location.parse(paths.owners)
    try:
        last = _last(files, folder)
        mark = None if last is None else _read(files, last)
    except OSError:
        return None
    if last is None or mark is None or mark.released:
        return None
    locked = None if paths.kept_at else _is_locked(paths.owners / _LOCK)
    here = mark.locked and mark.host == socket.gethostname()
    return _owner(mark, last, locked if here else locked or None)


class Silence:
    """Measures for how long nothing was heard, where somebody listened.

    What nobody could hear, as while the place or the listener was in trouble, is no silence.

    Args:
        needed: Seconds of it.
        longest_gap: Seconds between two times of listening, beyond which it begins anew.
        now: Seconds by any clock.
    """

    def __init__(self, needed: float, longest_gap: float, now: float) -> None:
        self._needed, self._longest_gap = needed, longest_gap
        self._since = self._listened = now

    def is_over(self, now: float) -> bool:
        """Say that nothing was heard just now; return whether that was long enough."""
        if now - self._listened > self._longest_gap:
            self._since = now
        self._listened = now
        return now - self._since >= self._needed


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    host: Annotated[str, msgspec.Meta(max_length=255)]
    pid: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    application: Annotated[str, msgspec.Meta(max_length=200)]
    since: Annotated[float, msgspec.Meta(ge=0, lt=1e11)]
    locked: bool
    released: bool = False

    def encoded(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


class _AlreadyOwned(Exception):
    def __init__(self, owner: Owner | None) -> None:
        super().__init__()
        self.owner = owner


@dataclass(frozen=True, slots=True)
class _Taker:
    files: WritableFiles
    folder: Location
    mark: _Mark
    tell: Callable[[str], None]
    beat: float
    silence: float

    def take(self) -> Location:
        """Put the mark there as the newest one, once the one before is over; return where it is.

        Raises:
            _AlreadyOwned: The one before is that of a driver that lives.
        """
        part = beside(self.folder.below(_LOCK))
        self.files.write(part, self.mark.encoded())
        try:
            while True:
                last = _last(self.files, self.folder)
                if last is not None:
                    self._wait_for_end(last, part)
                number = 1 + (0 if last is None else _number(last.location))
                place = self.folder.below(f"{number:06d}.json")
                self.files.touch(part)  # from here on its time is of the clock that wrote it
                with contextlib.suppress(FileExistsError):  # somebody was faster
                    self.files.rename(part, place, replace=False)
                    return place
        except BaseException:
            with contextlib.suppress(OSError):  # nobody reads it
                self.files.remove(part)
            raise

    def _wait_for_end(self, last: FileStatus, part: Location) -> None:
        mark = _read(self.files, last)
        if mark is not None and (mark.released or self._had_our_lock(mark)):
            return
        who = "its driver, whose mark cannot be read" if mark is None else str(_owner(mark, last))
        self.tell(
            f"{str(self.folder.parent)!r} was not handed back by {who}; "
            f"{self.silence:g} s without a sign of life are waited for"
        )
        silence = Silence(self.silence, 2 * self.beat, time.monotonic())
        while not silence.is_over(time.monotonic()):
            time.sleep(self.beat / _LOOKS)
            self.files.touch(part)  # where nobody can, as in a safe mode, the owner cannot either
            now = _last(self.files, self.folder)
            if now != last and not _is_coming(now):
                self._check_over(now)
                return

    def _had_our_lock(self, mark: _Mark) -> bool:
        """Is its driver dead, since it held the lock that is held here now?"""
        return mark.locked and self.mark.locked and mark.host == self.mark.host

    def _check_over(self, last: FileStatus | None) -> None:
        mark = None if last is None else _read(self.files, last)
        if last is not None and (mark is None or not mark.released):
            raise _AlreadyOwned(None if mark is None else _owner(mark, last))


@contextlib.contextmanager
def _beating(
    place: Location,
    mark: _Mark,
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
    last = _last(files, place.parent)
    if last is not None and last.location == place:
        return None
    if last is None or _number(last.location) < _number(place):
        return f"{place}, which says who runs it, was removed"
    mark = _read(files, last)
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
    return InvalidArgument(argument, "a run that nobody runs", got, hint)


def _last(files: Files, folder: Location) -> FileStatus | None:
    """Return the newest mark; OSError where there is no such folder."""
    marks = [
        status
        for status in files.listdir(folder)
        if _MARK.fullmatch(status.location.name) and not (status.is_folder or status.is_link)
    ]
    return max(marks, key=lambda status: _number(status.location), default=None)


def _is_coming(mark: FileStatus | None) -> bool:
    """Is it a name without a content, as `LocalFiles.rename` leaves for a moment?"""
    return mark is not None and mark.length == 0


def _number(mark: Location) -> int:
    return int(mark.name.partition(".")[0])


def _read(files: Files, status: FileStatus) -> _Mark | None:
    """Return what a mark says; None where it is none, or half of one."""
    if status.length > _LARGEST:
        return None
    data = bytearray()
    files.read(status, data.extend)
    try:
        return msgspec.json.decode(bytes(data), type=_Mark)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _owner(mark: _Mark, status: FileStatus, alive: bool | None = None) -> Owner:
    return Owner(
        printable(mark.host),
        mark.pid,
        printable(mark.application),
        max(0.0, status.modified - mark.since),
        status.modified,
        alive,
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
    lock = _Lock(Path(folder.path, _LOCK))
    try:
        try:
            locked = lock.acquire()
        except BlockingIOError:
            raise _AlreadyOwned(_holder(folder)) from None
        yield locked
    finally:
        lock.close()


def _holder(folder: Location) -> Owner | None:
    return owner_of(RunPaths(Path(folder.parent.path)))


class _Lock:
    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = open_appending(path)
        # A child that is forked has this open, too, and would keep the lock of a killed driver.
        os.register_at_fork(after_in_child=self.close)

    def acquire(self) -> bool:
        """Return whether there are locks here at all; BlockingIOError where it is another's."""
        assert self._descriptor is not None
        until = time.monotonic() + _BRIEFLY
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
            except OSError:
                return False
            else:
                return True

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


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
