"""The marks of the drivers that ran a run: who each is, and whether its process still runs.

Each driver that runs a run leaves a mark in its folder, `owners/<n>.json`, under the next number.
The newest mark is that of the run's owner, who touches it every 5 s. Drivers read them to find out
whether a run is free, and slots to find out whether a driver that does not answer is gone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import msgspec

from spark_jobs.storage.files import Files, FileStatus
from spark_jobs.storage.locations import Location

_LARGEST = 4096  # bytes of a mark
_NAME = re.compile(r"(\d{1,9})\.json")
_ENDED = ("Z", "X")  # states of processes that only their parents still see


class Origin(msgspec.Struct, frozen=True):
    """What tells a process from any other one of its id, wherever that runs or ran.

    Attributes:
        boot: The id of its kernel's boot.
        namespace: In which its id counts, as in a container.
        started: Ticks from the boot to its start.
    """

    boot: Annotated[str, msgspec.Meta(max_length=64)]
    namespace: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    started: Annotated[int, msgspec.Meta(ge=0, le=2**53)]

    @classmethod
    def of_this_process(cls) -> Origin | None:
        """Return that of this process; None where the system does not tell."""
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            namespace = os.stat("/proc/self/ns/pid").st_ino
            return cls(boot, namespace, _look_at(os.getpid())[1])
        except (OSError, ValueError):
            return None


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver says of itself.

    Attributes:
        host: What its host calls itself, which need not be unique.
        pid: Its process there.
        origin: Which process that is; None where its system does not tell.
        application: Spark's name of its application.
        since: When it took the run, in seconds since 1970, by its own clock.
        locked: Does it hold the run's lock?
        released: Has it handed the run back?
    """

    host: Annotated[str, msgspec.Meta(max_length=255)]
    pid: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    origin: Origin | None
    application: Annotated[str, msgspec.Meta(max_length=200)]
    since: Annotated[float, msgspec.Meta(ge=0, lt=1e11)]
    locked: bool
    released: bool = False

    def encoded(self) -> bytes:
        """Return what `read_mark` reads."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def is_of_this_system(self) -> bool:
        """Has its driver run since the last boot of the system on which this process runs?"""
        here = Origin.of_this_process()
        return here is not None and self.origin is not None and here.boot == self.origin.boot

    def runs(self) -> bool | None:
        """Return whether the process of its driver runs; None where that cannot be seen here."""
        here, there = Origin.of_this_process(), self.origin
        if here is None or there is None:
            return None
        if (here.boot, here.namespace) != (there.boot, there.namespace):
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # of another user
            pass
        try:
            state, started = _look_at(self.pid)
        except (OSError, ValueError):  # which are not shown everywhere
            return None
        return state not in _ENDED and started == there.started


class Silence:
    """Measures for how long nothing was heard, where somebody listened.

    What nobody could hear, as while the place or the listener was in trouble, is no silence.

    Args:
        needed: Seconds of it.
        longest_gap: Seconds between two times of listening, beyond which it begins anew.
        now: Seconds by any clock.
    """

    def __init__(self, needed: float, longest_gap: float, now: float) -> None:
        self._needed = needed
        self._longest_gap = longest_gap
        self._since = self._listened = now

    def restart(self, now: float) -> None:
        """Say that something was heard just now."""
        self._since = self._listened = now

    def is_over(self, now: float) -> bool:
        """Say that nothing was heard just now; return whether that was long enough."""
        if now - self._listened > self._longest_gap:
            self._since = now
        self._listened = now
        return now - self._since >= self._needed


def newest_mark(files: Files, folder: Location) -> FileStatus | None:
    """Return the newest mark of a folder, None where it has none.

    Raises:
        OSError: There is no such folder, or it cannot be read.
    """
    marks = [
        status
        for status in files.listdir(folder)
        if _NAME.fullmatch(status.location.name) and not (status.is_folder or status.is_link)
    ]
    return max(marks, key=lambda status: number_of(status.location), default=None)


def is_coming(mark: FileStatus | None) -> bool:
    """Is it a name without a content, as `LocalFiles.rename` leaves for a moment?"""
    return mark is not None and mark.length == 0


def number_of(mark: Location) -> int:
    """Return the number of a mark."""
    return int(mark.name.partition(".")[0])


def read_mark(files: Files, status: FileStatus) -> Mark | None:
    """Return what a mark says; None where it is none, or half of one.

    Raises:
        OSError: It cannot be read.
    """
    if status.length > _LARGEST:
        return None
    data = bytearray()
    files.read(status, data.extend)
    try:
        return msgspec.json.decode(bytes(data), type=Mark)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _look_at(pid: int) -> tuple[str, int]:
    """Return a process' state, and in how many ticks after the boot it was started.

    Raises:
        OSError: There is none, or it is not shown.
        ValueError: The system tells something else.
    """
    words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    if len(words) < 20:
        raise ValueError("/proc does not tell when a process was started")
    return words[0], int(words[19])
