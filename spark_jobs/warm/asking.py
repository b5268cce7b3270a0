"""How a slot gets a zygote from a keeper, and starts the keeper where there is none."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from spark_jobs.installed import is_installed
from spark_jobs.warm import keeper
from spark_jobs.warm.executor import Executor, SharedSocket, connect, executor_here, left
from spark_jobs.warm.packets import Answer, Request, receive, send

# Lines of /proc/self/status that a child process inherits, and that an import may depend on.
_INHERITED = (
    "Umask", "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd",
    "CapAmb", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed", "THP_enabled",
)  # fmt: skip


class Unavailable(Exception):
    """No zygote can be had from a keeper; the message says why."""


class KeeperEnded(Unavailable):
    """The keeper has ended, or is about to: another one may have a zygote.

    Ask it with other descriptors: a zygote that has these may have been forked.
    """


@dataclass(frozen=True, slots=True)
class Warm:
    """Where the slots of an executor find their keepers.

    Attributes:
        executor: The executor, with whose JVM they end.
        seconds: Seconds for which they stay without a zygote.
    """

    executor: Executor
    seconds: float


@dataclass(frozen=True, slots=True)
class Imports:
    """What a zygote imports, and how.

    Attributes:
        importer: The module that runs as the importer.
        modules: The modules to import.
        environment: The environment variables to import with.
    """

    importer: str
    modules: tuple[str, ...]
    environment: Mapping[str, str]

    def identity(self) -> bytes:
        """Return bytes that differ where the resulting zygotes may differ. Secret: the environment.

        They cover all that a process inherits from its slot, rather than what is known to matter.
        """
        parts = (
            sys.executable,
            sys.version,
            os.getcwd(),
            [self.importer, *self.modules],
            [is_installed(name) for name in self.modules],
            sorted(self.environment.items()),
            _inherited_state(),
        )
        return json.dumps(parts).encode()


@dataclass(frozen=True, slots=True)
class Forked:
    """A zygote from a keeper.

    Attributes:
        pid: Its process id.
        pidfd: Its pidfd.
        connection: The connection to the keeper, which sends `SWEPT` when the zygote has ended and
            nothing of it is left, and closes it.
    """

    pid: int
    pidfd: int
    connection: socket.socket


def warm_here(seconds: float) -> Warm | None:
    """Return where this slot finds its keepers; None without keepers.

    Args:
        seconds: Seconds for which keepers stay without a zygote; 0 to do without.
    """
    if not seconds or (executor := executor_here("experiment-warm")) is None:
        return None
    return Warm(executor, seconds)


def kept_commands(warm: Warm, importer: str) -> Iterator[list[str]]:
    """Yield the words after the importer's name in the command line of each keeper.

    Args:
        warm: Where keepers are.
        importer: The module that runs as the importer.
    """
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has ended
            words = process.cmdline()
            mine = str(warm.executor.folder) in (str(Path(word).parent) for word in words)
            of_keeper = mine and keeper.__name__ in words and importer in words
            # A keeper may have no importer left, and stay because it remembers why.
            if of_keeper and any(importer in child.cmdline() for child in process.children()):
                yield words[words.index(importer) + 1 :]


def start(warm: Warm, imports: Imports, until: float) -> None:
    """Start the keeper of these imports, or let it stay longer if there is one.

    This process must not be a subreaper: it would inherit the keeper.

    Args:
        warm: Where keepers are.
        imports: What its zygotes will have imported.
        until: When to give up, by `time.monotonic`.

    Raises:
        Unavailable: It cannot be started.
    """
    with _unavailable(), _connect(warm, imports, until) as connection:
        send(connection, Request(warm.seconds).to_json())  # so that it stays from now on


def ask(warm: Warm, imports: Imports, descriptors: Sequence[int], until: float) -> Forked:
    """Get a zygote from the keeper of these imports, which is started if there is none.

    This process must not be a subreaper: it would inherit the keeper.

    Args:
        warm: Where keepers are.
        imports: What the zygote has imported.
        descriptors: The zygote's control socket, lifeline and log, which stay open here.
        until: When to give up, by `time.monotonic`.

    Raises:
        KeeperEnded: There may be one from another keeper.
        Unavailable: There is no zygote.
    """
    request = Request(warm.seconds).to_json()
    with _unavailable():
        return _ask(_connect(warm, imports, until), request, descriptors, until)


@contextlib.contextmanager
def _unavailable() -> Iterator[None]:
    """Raise `Unavailable` for an error of the block."""
    try:
        yield
    except (TimeoutError, subprocess.TimeoutExpired):
        raise Unavailable("the keeper did not answer in time") from None
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{type(error).__name__}: {error}") from error


def _ask(
    connection: socket.socket, request: bytes, descriptors: Sequence[int], until: float
) -> Forked:
    with contextlib.ExitStack() as stack:
        stack.callback(connection.close)
        connection.settimeout(left(until))
        try:
            send(connection, request, descriptors)
        except ConnectionError:
            raise KeeperEnded("the keeper ended before it was asked") from None
        data, received = receive(connection)
        for descriptor in received:
            stack.callback(os.close, descriptor)
        if not data or (answer := Answer.from_json(data)).stale:
            raise KeeperEnded("the keeper ended before it answered")
        if not answer.pid or not received:
            raise Unavailable(answer.problem)
        stack.pop_all()
        return Forked(answer.pid, received[0], connection)


def _connect(warm: Warm, imports: Imports, until: float) -> socket.socket:
    start = functools.partial(_start_keeper, warm, imports, until)
    return connect(
        warm.executor, imports.identity(), start, kind=socket.SOCK_SEQPACKET, until=until
    )


def _start_keeper(warm: Warm, imports: Imports, until: float, shared: SharedSocket) -> None:
    """Start a keeper.

    Args:
        warm: Where keepers are.
        imports: What its zygotes import.
        until: When to give up.
        shared: The keeper's socket.
    """
    with tempfile.TemporaryFile() as log:
        words = [sys.executable, "-m", keeper.__name__, *shared.words, str(warm.seconds)]
        subprocess.run(
            [*words, "-m", imports.importer, *imports.modules],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=shared.descriptors,
            env=imports.environment,
            start_new_session=True,
            timeout=left(until),
        )


def _inherited_state() -> list[object]:
    """Return what a child of this process inherits, apart from environment and folder."""
    status = Path("/proc/self/status").read_text().splitlines()
    spaces = sorted(os.listdir("/proc/self/ns"))
    return [
        [line for line in status if line.partition(":")[0] in _INHERITED],
        _signals(line.split()[1] for line in status if line.startswith(("SigBlk:", "SigIgn:"))),
        [_text("/proc/self/limits"), _text("/proc/self/cgroup"), _text("/proc/self/oom_score_adj")],
        [os.readlink(f"/proc/self/ns/{name}") for name in spaces],
        os.getpriority(os.PRIO_PROCESS, 0),
        os.readlink("/proc/self/root"),
    ]


def _signals(masks: Iterable[str]) -> list[int]:
    """Return masks of signals without glibc's own, which it sets when it starts a thread."""
    known = sum(1 << number - 1 for number in signal.valid_signals())
    return [int(mask, 16) & known for mask in masks]


def _text(path: str) -> str:
    with contextlib.suppress(OSError):  # such as a kernel without control groups
        return Path(path).read_text(encoding="utf-8", errors="replace")
    return ""
