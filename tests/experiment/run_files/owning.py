"""Drivers, in processes of their own, that own a run or try to; without Spark."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import json
import os
import queue
import subprocess
import sys
import threading
import time
from typing import Self

from experiment.run_files.ownership import owned
from search.errors import InvalidArgument
from spark_jobs.storage.files import WritableFiles
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at

SECONDS = 240  # timeout of a driver's answer


class Driver:
    """A process that takes a run on request.

    Args:
        root: The run's folder.
        values: Hadoop's settings.
        locks: Does the storage know locks?
        beat: As for `owned`.
        silence: As for `owned`.
    """

    def __init__(
        self,
        root: Location,
        values: dict[str, str],
        *,
        locks: bool = True,
        beat: float = 0.2,
        silence: float = 1000.0,
    ) -> None:
        options = [str(root), json.dumps(values), str(int(locks)), str(beat), str(silence)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._said: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()
        self.hear()

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, order: str) -> None:
        """Send it the order to "take" or "release" the run, or to "fork" a child."""
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Wait for its next line: "owned", "refused: ...", "note: ...", "taken: ..."."""
        return self._said.get(timeout=SECONDS)

    def hears_nothing(self) -> bool:
        return self._said.empty()

    def take(self) -> str:
        """Let it take the run; return its last line."""
        self.say("take")
        while (said := self.hear()).startswith("note: "):
            pass
        return said

    def ask(self, order: str) -> str:
        self.say(order)
        return self.hear()

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self._listener.join()
        self.process.stdout.close()

    def _listen(self) -> None:
        for line in self.process.stdout:
            self._said.put(line.rstrip("\n"))


class Place:
    """A run's folder and its drivers. A context manager, which kills them.

    Args:
        root: The run's folder.
        values: Hadoop's settings.
        locks: Does the storage know locks?
    """

    def __init__(
        self, root: Location, values: dict[str, str] | None = None, *, locks: bool = True
    ) -> None:
        self.root, self.values, self.locks = root, values or {}, locks
        self._drivers: list[Driver] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for driver in self._drivers:
            driver.kill()

    def driver(self, **options: float) -> Driver:
        """Start another driver."""
        self._drivers.append(Driver(self.root, self.values, locks=self.locks, **options))
        return self._drivers[-1]

    def files(self) -> contextlib.closing[WritableFiles]:
        """Return the store of the folder."""
        hadoop = HadoopSettings(self.values, getpass.getuser())
        return contextlib.closing(writable_files_at(self.root, hadoop))

    def marks(self) -> list[str]:
        """Return the names of the marks."""
        with self.files() as files:
            return [status.location.name for status in files.listdir(self.root.below("owners"))]

    def put(self, name: str, content: bytes) -> None:
        """Put a file into the folder of the marks."""
        with self.files() as files:
            files.make_folder(self.root.below("owners"))
            files.write(self.root.below(f"owners/{name}"), content)


def race(drivers: list[Driver]) -> Driver:
    """Let all drivers take the run at once; return the one that gets it; the others are refused."""
    for driver in drivers:
        driver.say("take")
    said = {driver: driver.hear() for driver in drivers}
    while noted := [driver for driver, words in said.items() if words.startswith("note: ")]:
        said |= {driver: driver.hear() for driver in noted}
    [winner] = [driver for driver, words in said.items() if words == "owned"]
    assert all(f"pid {winner.pid} " in words for words in said.values() if words != "owned")
    return winner


def _say(line: str) -> None:
    print(line, flush=True)


def _without_locks(descriptor: int, kind: int) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def _main(root: str, values: str, locks: str, beat: str, silence: str) -> None:
    if locks == "0":
        fcntl.flock = _without_locks
    place = Location.parse(root)
    hadoop = HadoopSettings.of_client(json.loads(values))
    held = contextlib.ExitStack()
    _say("ready")
    for line in sys.stdin:
        order = line.strip()
        if order == "take":
            owning = owned(
                place,
                hadoop,
                f"app-{os.getpid()}",
                taken=lambda reason: _say(f"taken: {reason}"),
                tell=lambda message: _say(f"note: {message}"),
                beat=float(beat),
                silence=float(silence),
            )
            try:
                held.enter_context(owning)
            except InvalidArgument as error:
                _say(f"refused: {error}")
            else:
                _say("owned")
        elif order == "release":
            held.close()
            _say("released")
        elif order == "fork" and (child := os.fork()):
            _say(str(child))
        elif order == "fork":
            os.close(1)
            time.sleep(SECONDS)
            os._exit(0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
