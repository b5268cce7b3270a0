"""The marks of a run's drivers, which show whether a driver's process still runs.

Each driver of a run leaves a mark in the run's folder, `owners/<n>.json`, under the next number.
The newest mark is that of the run's owner, which touches it every 5 s. Drivers read marks to check
whether a run has an active driver, and slots to check whether a silent driver is gone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import msgspec

from spark_jobs.storage.files import Files, FileStatus, content_of
from spark_jobs.storage.locations import Location

_LARGEST = 4096  # maximum bytes of a mark
_NAME = re.compile(r"(\d{1,9})\.json")
_ENDED = ("Z", "X")  # states of ended processes that their parents have not collected


class Origin(msgspec.Struct, frozen=True):
    """The identity of a process, beyond its id, among processes of all hosts and times.

    Attributes:
        boot: The id of its kernel's boot.
        namespace: The namespace of its id, such as a container's.
        started: Ticks from the boot to its start.
    """

    boot: Annotated[str, msgspec.Meta(max_length=64)]
    namespace: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    started: Annotated[int, msgspec.Meta(ge=0, le=2**53)]

    @classmethod
    def of_this_process(cls) -> Origin | None:
        """Return the origin of this process; None if the system does not show it."""
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            namespace = os.stat("/proc/self/ns/pid").st_ino
            return cls(boot, namespace, _look_at(os.getpid())[1])
        except (OSError, ValueError):
            return None


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A driver's mark.

    Attributes:
        host: The name of its host, which need not be unique.
        pid: The id of its process.
        origin: The identity of that process; None if its system does not show it.
        application: The id of its Spark application.
        since: Time at which it became the owner, in seconds since 1970, by its own clock.
        locked: Whether it holds the run's lock.
        released: Whether it has released the run.
    """

    host: Annotated[str, msgspec.Meta(max_length=255)]
    pid: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    origin: Origin | None
    application: Annotated[str, msgspec.Meta(max_length=200)]
    since: Annotated[float, msgspec.Meta(ge=0, lt=1e11)]
    locked: bool
    released: bool = False

    def encoded(self) -> bytes:
        """Return the bytes that `read_mark` reads."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def is_of_this_system(self) -> bool:
        """Return whether its driver ran on this system, since its last boot."""
        here = Origin.of_this_process()
        return here is not None and self.origin is not None and here.boot == self.origin.boot

    def runs(self) -> bool | None:
        """Return whether its driver's process runs; None if this process cannot see that."""
        here, there = Origin.of_this_process(), self.origin
        if here is None or there is None:
            return None
        if (here.boot, here.namespace) != (there.boot, there.namespace):
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # a process of another user
            pass
        try:
            state, started = _look_at(self.pid)
        except (OSError, ValueError):  # not every system shows it
            return None
        return state not in _ENDED and started == there.started


class Silence:
    """Measures the time without a sign of life, while there are checks for one.

    Times without checks, such as an outage of the storage or of this process, do not count.

    Args:
        needed: Seconds of silence after which it is over.
        longest_gap: Maximum seconds between two checks; after a longer gap the silence starts anew.
        now: The time in seconds, by any clock.
    """

    def __init__(self, needed: float, longest_gap: float, now: float) -> None:
        self._needed = needed
        self._longest_gap = longest_gap
        self._since = now
        self._listened = now

    def restart(self, now: float) -> None:
        """Record a sign of life."""
        self._since = now
        self._listened = now

    def is_over(self, now: float) -> bool:
        """Record a check without a sign of life; return whether the silence was long enough."""
        if now - self._listened > self._longest_gap:
            self._since = now
        self._listened = now
        return now - self._since >= self._needed


def newest_mark(files: Files, folder: Location) -> FileStatus | None:
    """Return the newest mark in a folder; None without a mark.

    Raises:
        OSError: The folder does not exist, or cannot be read.
    """
    marks = [
        status
        for status in files.listdir(folder)
        if _NAME.fullmatch(status.location.name) and not (status.is_folder or status.is_link)
    ]
    return max(marks, key=lambda status: number_of(status.location), default=None)


def is_coming(mark: FileStatus | None) -> bool:
    """Return whether the mark is an empty file, as `LocalFiles.rename` leaves for a moment."""
    return mark is not None and mark.length == 0


def number_of(mark: Location) -> int:
    """Return the number of a mark."""
    return int(mark.name.partition(".")[0])


def read_mark(files: Files, status: FileStatus) -> Mark | None:
    """Return the content of a mark; None if it is invalid or incomplete.

    Raises:
        OSError: The mark cannot be read.
    """
    if status.length > _LARGEST:
        return None
    data = content_of(files, status)
    try:
        return msgspec.json.decode(bytes(data), type=Mark)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _look_at(pid: int) -> tuple[str, int]:
    """Return a process' state, and the ticks from the boot to its start.

    Raises:
        OSError: There is no such process, or it is hidden.
        ValueError: The system shows another format.
    """
    words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    if len(words) < 20:
        raise ValueError("/proc does not tell when a process was started")
    return words[0], int(words[19])
