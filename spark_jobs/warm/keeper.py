"""The keeper of an importer: `python -m spark_jobs.warm.keeper SERVER JVM PATH SECONDS WORD...`.

A keeper serves the slots of one executor whose zygotes would import the same. It starts an importer
by the command `python WORD... LINK KEEPER`, which imports once and then forks a zygote per request.
The keeper itself is small, so that it can end everything at any time, also while an import hangs.
It uses the standard library alone.

It is the subreaper of its zygotes: when one was killed, it ends the processes that its trial left.
It tells the slot when a zygote has ended and nothing of it is left, and closes the connection; a
slot that closes its side lets its zygote end.

The keeper ends with the executor's JVM, and, when it has had no zygote for some time, when memory
is short, or when Spark has removed the socket's folder.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from spark_jobs import time_limits
from spark_jobs.trial.memory.control_groups import free_share
from spark_jobs.warm.packets import (
    DESCRIPTORS,
    FORK,
    SWEPT,
    Answer,
    Request,
    close_all,
    peer_of,
    receive,
    send,
)
from spark_jobs.warm.processes import become_subreaper, kill_children, reap, signal_pidfd

_LEAST_FREE = 0.1  # share of the memory
_LOOK = 1.0  # seconds between two checks of clock, memory and folder
_SWEEP_PAUSE = 0.005  # seconds for killed processes to disappear


@dataclass(slots=True, eq=False, kw_only=True)
class _Slot:
    """A connection to a slot, with the zygote forked for it.

    Attributes:
        connection: The connection.
        descriptors: Descriptors for the zygote that has not been forked.
        pid: The zygote's process id; 0 for none.
        pidfd: Its pidfd; -1 for none.
        gone: Whether the slot has closed its side.
        until: When to kill the zygote, or, after its end, to give up ending what it left.
    """

    connection: socket.socket
    descriptors: list[int] = field(default_factory=list)
    pid: int = 0
    pidfd: int = -1
    gone: bool = False
    until: float = math.inf


class Keeper:
    """Serves slots until it has to end.

    Args:
        server: The listening socket, at `path`.
        jvm: A pidfd of the executor's JVM.
        path: The socket's path.
        seconds: Seconds to stay without a zygote, until a request says something else.
        command: The importer's command line, without its last two arguments.
    """

    def __init__(
        self, server: socket.socket, jvm: int, path: str, seconds: float, command: Sequence[str]
    ) -> None:
        self._server = server
        self._path = path
        self._seconds = seconds
        self._inode = _inode(path)
        self._command = command
        self._selector = selectors.DefaultSelector()
        self._watch(server, self._accept)
        self._watch(jvm, functools.partial(self._lose_jvm, jvm))
        self._importer = 0
        self._importer_pidfd = 0
        self._link: socket.socket | None = None
        self._imported = False
        self._retired = False
        self._problem = ""
        self._busy_until = math.inf  # the importer's time limit for what it does now
        self._last_used = time.monotonic()
        self._jvm_lost_at = math.inf
        self._waiting: list[_Slot] = []
        self._forking: _Slot | None = None
        self._zygotes: list[_Slot] = []
        self._ended: list[_Slot] = []  # slots whose zygote has ended, and may have left something

    def run(self) -> None:
        """Serve until the end, and leave no process."""
        become_subreaper()
        self._start_importer()
        try:
            while not self._is_over():
                self._step()
        finally:
            self._server.close()
            _end_all()

    def _step(self) -> None:
        pause = _SWEEP_PAUSE if self._ended else _LOOK
        for key, _ in self._selector.select(pause):
            if self._selector.get_map().get(key.fd) is key:  # no earlier event has ended it
                key.data()
        self._end_overdue()
        reap()
        self._sweep()
        self._forward()

    def _is_over(self) -> bool:
        now = time.monotonic()
        if now >= self._jvm_lost_at:
            return not self._zygotes or now > self._jvm_lost_at + time_limits.ZYGOTE_END
        in_use = bool(self._waiting or self._forking or self._zygotes or self._ended)
        # While it imports, too: where memory is short, each slot would import by itself.
        if in_use or self._is_importing:
            self._last_used = now
            return False
        return self._retired or is_unwanted(
            now - self._last_used,
            self._seconds,
            is_there=_inode(self._path) == self._inode,
            free=free_memory(),
        )

    @property
    def _is_importing(self) -> bool:
        return not (self._imported or self._problem)

    def _watch(self, source: socket.socket | int, react: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, react)

    def _unwatch(self, source: socket.socket | int) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(source)

    def _start_importer(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.set_inheritable(True)
        words = [sys.executable, *self._command, str(theirs.fileno()), str(os.getpid())]
        self._importer = os.posix_spawn(sys.executable, words, os.environ)
        theirs.close()
        self._importer_pidfd = os.pidfd_open(self._importer)
        self._link = ours
        self._busy_until = time.monotonic() + time_limits.WARM_IMPORT
        ours.setblocking(False)
        for source in (ours, self._importer_pidfd):
            self._watch(source, self._hear_importer)

    def _lose_jvm(self, jvm: int) -> None:
        self._unwatch(jvm)
        self._jvm_lost_at = time.monotonic()

    # Slots

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            return
        if peer_of(connection).user != os.getuid():
            connection.close()
            return
        connection.setblocking(False)
        slot = _Slot(connection=connection)
        self._watch(connection, functools.partial(self._hear_slot, slot))

    def _hear_slot(self, slot: _Slot) -> None:
        """Take a slot's request; whatever comes later is its end."""
        try:
            data, descriptors = receive(slot.connection)
        except BlockingIOError:
            return
        try:
            seconds = Request.from_json(data).seconds
            known = slot in (*self._waiting, self._forking, *self._zygotes)
            if known or len(descriptors) not in (0, DESCRIPTORS):
                raise ValueError("one request, with a zygote's descriptors or none")
        except ValueError:
            close_all(descriptors)
            self._lose_slot(slot)
            return
        self._seconds = seconds
        self._last_used = time.monotonic()
        if not descriptors:
            self._lose_slot(slot)
            return
        slot.descriptors = descriptors
        self._waiting.append(slot)

    def _lose_slot(self, slot: _Slot) -> None:
        self._unwatch(slot.connection)
        slot.gone = True
        if slot in self._zygotes:
            self._release(slot)
        elif slot is not self._forking:
            self._drop(slot)

    def _release(self, slot: _Slot) -> None:
        """Let a zygote end whose slot is gone: it notices, unless a trial has stopped it."""
        slot.until = time.monotonic() + time_limits.ZYGOTE_END
        signal_pidfd(slot.pidfd, signal.SIGCONT)

    def _drop(self, slot: _Slot, answer: Answer | None = None) -> None:
        """Close a connection, after an answer if there is one."""
        self._unwatch(slot.connection)
        if slot in self._waiting:
            self._waiting.remove(slot)
        close_all(slot.descriptors)
        if answer is not None:
            with contextlib.suppress(OSError):
                send(slot.connection, answer.to_json())
        slot.connection.close()

    def _forward(self) -> None:
        """Answer waiting slots, or pass the first request to the importer."""
        if self._problem or self._retired:
            for slot in tuple(self._waiting):
                self._drop(slot, Answer(problem=self._problem, stale=self._retired))
        elif self._imported and self._waiting and self._forking is None and self._link is not None:
            self._forking = slot = self._waiting.pop(0)
            self._busy_until = time.monotonic() + time_limits.WARM_IMPORT
            with contextlib.suppress(OSError):  # it has ended, which its pidfd shows
                send(self._link, FORK, slot.descriptors)
            close_all(slot.descriptors)
            slot.descriptors = []

    # The importer

    def _hear_importer(self) -> None:
        """Take the importer's next packet; without one it has ended."""
        assert self._link is not None
        try:
            data, descriptors = receive(self._link)
            answer = Answer.from_json(data)
        except (OSError, ValueError):
            self._lose_importer("the process that imports has ended")
            return
        self._busy_until = math.inf
        slot, self._forking = self._forking, None
        if answer.stale:
            self._retire()
        if slot is not None and answer.pid and descriptors:
            self._keep(slot, answer, descriptors)
        elif slot is not None:
            self._drop(slot, answer)
        elif answer.problem:
            self._lose_importer(answer.problem)
        else:
            self._imported = True

    def _keep(self, slot: _Slot, answer: Answer, descriptors: list[int]) -> None:
        slot.pid = answer.pid
        slot.pidfd = descriptors[0]
        self._zygotes.append(slot)
        self._watch(slot.pidfd, functools.partial(self._end, slot))
        if slot.gone:
            self._release(slot)
        else:
            with contextlib.suppress(OSError):  # it is gone, which its connection shows
                send(slot.connection, answer.to_json(), descriptors[:1])

    def _lose_importer(self, problem: str) -> None:
        """Do without an importer: remember a failed import, and end after a successful one."""
        assert self._link is not None
        for source in (self._link, self._importer_pidfd):
            self._unwatch(source)
        signal_pidfd(self._importer_pidfd, signal.SIGKILL)
        os.close(self._importer_pidfd)
        self._link.close()
        self._link = None
        self._importer = 0
        self._busy_until = math.inf
        if self._imported:
            self._retire()
        else:
            self._problem = problem
        slot, self._forking = self._forking, None
        if slot is not None:  # its zygote may run, unknown
            self._end_after_sweep(slot)

    def _retire(self) -> None:
        """Take no more requests, so that the next one starts another keeper."""
        self._retired = True
        self._unwatch(self._server)
        self._server.close()

    # Zygotes

    def _end(self, slot: _Slot) -> None:
        """Note that a zygote has ended."""
        self._unwatch(slot.pidfd)
        os.close(slot.pidfd)
        self._zygotes.remove(slot)
        self._end_after_sweep(slot)

    def _end_after_sweep(self, slot: _Slot) -> None:
        self._unwatch(slot.connection)
        self._ended.append(slot)
        slot.until = time.monotonic() + time_limits.SWEEP

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for slot in self._zygotes:
            if now > slot.until:
                signal_pidfd(slot.pidfd, signal.SIGKILL)
        if now > self._busy_until:
            limit = time_limits.WARM_IMPORT
            self._lose_importer(f"the process that imports did not answer within {limit:g} s")

    def _sweep(self) -> None:
        """End the processes that ended zygotes left; then tell their slots."""
        if not self._ended:
            return
        # Zygotes become children of this process when their importer has ended.
        some_left = kill_children({self._importer, *(slot.pid for slot in self._zygotes)})
        now = time.monotonic()
        for slot in tuple(self._ended):
            if not some_left or now > slot.until:
                self._ended.remove(slot)
                if slot.pid:  # else it waits for an answer, and asks another keeper
                    with contextlib.suppress(OSError):  # it is gone
                        send(slot.connection, SWEPT)
                slot.connection.close()


def is_unwanted(idle: float, seconds: float, *, is_there: bool, free: float) -> bool:
    """Return whether a keeper without a zygote ends.

    Args:
        idle: Seconds since it was last used.
        seconds: Seconds that it may be idle.
        is_there: Whether its socket still has its path.
        free: Share of the memory that is free.
    """
    return idle > seconds or not is_there or free < _LEAST_FREE


def free_memory() -> float:
    """Return the share of this host's memory, or of a limit, that new processes can have."""
    with open("/proc/meminfo", encoding="ascii") as file:
        sizes = {name: int(value) for name, value, *_ in map(str.split, file)}
    return min(sizes["MemAvailable:"] / sizes["MemTotal:"], free_share())


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def _end_all() -> None:
    """Kill all descendants of this process."""
    give_up = time.monotonic() + time_limits.SWEEP
    while time.monotonic() < give_up:
        reap()
        if not kill_children():
            return
        time.sleep(_SWEEP_PAUSE)


def main(server: int, jvm: int, path: str, seconds: float, command: list[str]) -> None:
    """Run a keeper that is no child of its starter, which may end before it."""
    if os.fork():
        os._exit(0)
    for descriptor in (server, jvm):
        os.set_inheritable(descriptor, False)
    Keeper(socket.socket(fileno=server), jvm, path, seconds, command).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), sys.argv[5:])
