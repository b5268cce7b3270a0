"""What the slots of an executor share: a folder, the JVM, and sockets of processes.

The first slot starts such a process, and the others connect to its socket. The folder belongs to
the user and has mode 0700; both sides ask the kernel for the user of the other one. It uses the
standard library and psutil alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from spark_jobs.warm.packets import peer_of

BACKLOG = 256
"""Maximum connections that wait in the queue of such a socket."""

_PAUSE = 0.01  # seconds between two tries
_SALT = 32  # bytes


@dataclass(frozen=True, slots=True)
class Executor:
    """The executor of a slot.

    Attributes:
        folder: A folder for sockets, of mode 0700; created if it is missing. Spark removes it.
        jvm: The process id of the executor's JVM, with which shared processes end.
    """

    folder: Path
    jvm: int


@dataclass(frozen=True, slots=True)
class SharedSocket:
    """The listening socket of a process to start.

    Attributes:
        server: The descriptor of the socket.
        jvm: A pidfd of the executor's JVM.
        path: The socket's path.
    """

    server: int
    jvm: int
    path: str

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors that the process has to inherit."""
        return self.server, self.jvm

    @property
    def words(self) -> list[str]:
        """The socket as words of the process's command line."""
        return [str(self.server), str(self.jvm), self.path]


def executor_here(name: str) -> Executor | None:
    """Return the executor of this slot; None if there is none, or no folder.

    Args:
        name: The name of the folder for sockets, in Spark's folder of the executor.
    """
    folder = spark_folder()
    if folder is None or (jvm := _jvm_above()) is None:
        return None
    return Executor(Path(folder, name), jvm)


def spark_folder() -> str | None:
    """Return a folder of Spark's, which is removed with the executor, however that ends."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None


def _jvm_above() -> int | None:
    """Return the process id of the executor, an ancestor of this slot."""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process().parents():
            if process.name() == "java":
                return int(process.pid)
    return None


def connect(
    executor: Executor,
    identity: bytes,
    start: Callable[[SharedSocket], None],
    *,
    kind: socket.SocketKind,
    until: float,
) -> socket.socket:
    """Connect to a process that the slots of an executor share; it is started if there is none.

    This process must not be a subreaper: it would inherit the other one. Slots can connect at once,
    and wait in the queue of its socket, also while that is full.

    Args:
        executor: The executor.
        identity: Tells this process apart from others in the folder; see `socket_name`.
        start: Starts the process that serves a socket.
        kind: The kind of the socket.
        until: When to give up, by `time.monotonic`.

    Raises:
        OSError: There is no such process and none could be started, also `TimeoutError`; or another
            user serves the socket.
    """
    with opened(executor.folder) as folder, _locked_salt(folder, until) as salt:
        key = socket_name(identity, salt)
        # A path of its own may be longer than the 107 bytes of a socket's.
        place = f"/proc/self/fd/{folder}/{key}"
        connection = socket.socket(socket.AF_UNIX, kind)
        try:
            connection.settimeout(left(until))
            try:
                _queue(connection, place, until)
            except (FileNotFoundError, ConnectionRefusedError):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(key, dir_fd=folder)
                _serve(executor, key, place, kind, start)
                _queue(connection, place, until)
            if peer_of(connection).user != os.getuid():
                raise PermissionError(f"{executor.folder / key} is served by another user")
        except BaseException:
            connection.close()
            raise
        return connection


def socket_name(identity: bytes, salt: bytes) -> str:
    """Return the name of a socket, which tells nothing to other users who see it.

    Args:
        identity: What the socket is for; it may be secret.
        salt: Random bytes of the folder, which keep them from guessing it.
    """
    return hmac.new(salt, identity, "sha256").hexdigest()[:32]


def _queue(connection: socket.socket, place: str, until: float) -> None:
    """Connect to a socket; while its queue is full the kernel refuses at once, so try again."""
    while True:
        try:
            return connection.connect(place)
        except BlockingIOError:
            time.sleep(min(_PAUSE, left(until)))


def _serve(
    executor: Executor,
    key: str,
    place: str,
    kind: socket.SocketKind,
    start: Callable[[SharedSocket], None],
) -> None:
    jvm = os.pidfd_open(executor.jvm)
    try:
        with socket.socket(socket.AF_UNIX, kind) as server:
            server.bind(place)
            server.listen(BACKLOG)
            start(SharedSocket(server.fileno(), jvm, str(executor.folder / key)))
    finally:
        os.close(jvm)


def left(until: float) -> float:
    """Return the seconds until a time.

    Raises:
        TimeoutError: It has passed.
    """
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    """Open a folder that no other user can enter.

    Raises:
        PermissionError: Another user owns it or may enter it.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(f"{folder} is open to other users")
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked_salt(folder: int, until: float) -> Iterator[bytes]:
    """Yield the salt of a folder, random bytes, while holding its lock.

    For milliseconds, never during an import.
    """
    file = os.open("salt", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        _lock(file, until)
        salt = os.pread(file, _SALT, 0)
        if len(salt) < _SALT:
            salt = os.urandom(_SALT)
            os.pwrite(file, salt, 0)
        yield salt
    finally:
        os.close(file)


def _lock(file: int, until: float) -> None:
    """Lock a file. Without `spark_jobs.retrying`, whose imports take longer than this.

    Raises:
        TimeoutError: Another slot held the lock all the time; it may be stopped.
    """
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(min(_PAUSE, left(until)))
