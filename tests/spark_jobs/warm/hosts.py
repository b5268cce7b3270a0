"""A host for tests: slots in processes of their own, and a process that plays the JVM."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from spark_jobs import time_limits
from spark_jobs.slot.runners import ProcessRunner
from spark_jobs.warm.asking import Warm
from spark_jobs.warm.executor import Executor
from spark_jobs.zygote.process import KeptProcess
from tests.experiment.waiting import wait_until
from tests.spark_jobs import train_functions
from tests.spark_jobs.slot.running import Runner, alive, program, sleeping

_HOST = "EXPERIMENT_TEST_HOST"  # marks the processes of a host


class Slot:
    """A slot in a process of its own.

    Attributes:
        kept: Whether its zygote comes from a keeper. Set by `start`, like those below.
        zygote: Its zygote.
        importer: The importer of the zygote, if it is kept; not set otherwise.
        keeper: The keeper of the zygote, if it is kept; not set otherwise.
    """

    kept: bool
    zygote: psutil.Process
    importer: psutil.Process
    keeper: psutil.Process

    def __init__(self, host: Host, number: int, settings: dict[str, Any]) -> None:
        words = [str(host.folder), str(host.jvm.pid), str(host.root / f"slot-{number}")]
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, *words, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=host.environment,
            text=True,
        )
        self.tag = f"3600.{uuid.uuid4().int % 10**9}"

    def start(self) -> Slot:
        """Wait for the zygote."""
        said = self.hear()
        self.kept = said["kept"]
        self.zygote = psutil.Process(said["zygote"])
        if self.kept:
            self.importer = self.zygote.parent()
            self.keeper = self.importer.parent()
        return self

    def hear(self) -> Any:
        """Return the next line of the slot."""
        return json.loads(self.process.stdout.readline())

    def ask(self, function: str, **params: Any) -> None:
        """Let the slot run a trial."""
        self.process.stdin.write(json.dumps([function, params]) + "\n")
        self.process.stdin.flush()

    def run(self, function: str, **params: Any) -> Any:
        """Run a trial and return status, value and kind of its failure."""
        self.ask(function, **params)
        return self.hear()

    def hang(self) -> list[int]:
        """Start a trial that hangs, with processes in sessions of their own; return these."""
        self.ask("leave_children", tag=self.tag, then="hang")
        wait_until(lambda: len(sleeping(self.tag)) == 3)
        return sleeping(self.tag)

    def left(self) -> list[int]:
        """Return the processes of the hanging trial that still run."""
        return sleeping(self.tag)

    def close(self) -> None:
        """End the slot, as Spark does."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Host:
    """An executor's host.

    Args:
        root: A folder for everything.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "local" / "warm"
        self.folder.parent.mkdir()
        self.modules = root / "modules"
        self.modules.mkdir()
        path = os.pathsep.join([str(self.modules), *(path for path in sys.path if path)])
        self.environment = dict(os.environ, PYTHONPATH=path, **{_HOST: str(root)})
        self.jvm = subprocess.Popen(["sleep", "3600"])
        self.slots: list[Slot] = []

    def slot(self, **settings: Any) -> Slot:
        """Start a slot; `settings` are those of `serve`."""
        made = Slot(self, len(self.slots), settings)
        self.slots.append(made)
        return made

    def keepers(self) -> list[psutil.Process]:
        """Return the keepers of this host."""
        return self._running("spark_jobs.warm.keeper")

    def importers(self) -> list[psutil.Process]:
        """Return the importers of this host, and their zygotes."""
        return self._running("spark_jobs.zygote.importer")

    def _running(self, module: str) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get(_HOST) == str(self.root)
                if ours and module in process.cmdline()[:3] and alive(process):
                    found.append(process)
        return found

    def close(self) -> None:
        """End everything, and check that nothing is left."""
        for slot in self.slots:
            if slot.process.poll() is None:
                slot.process.kill()
            slot.close()
        self.jvm.kill()
        self.jvm.wait()
        wait_until(lambda: not self.keepers() and not self.importers())
        for slot in self.slots:
            for pid in slot.left():  # of a test that has failed
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def host_in(root: Path) -> Iterator[Host]:
    """Return a host whose processes end with the block."""
    host = Host(root)
    try:
        yield host
    finally:
        host.close()


def serve(folder: str, jvm: str, root: str, settings: str) -> None:
    """Be a slot: run the trials that standard input names.

    Args:
        folder: The folder of keepers.
        jvm: The process id of the JVM.
        root: A folder for trials.
        settings: As JSON: `preload`, `seconds` of keepers, `environment` of trials.
    """
    given = json.loads(settings)
    time_limits.WARM_READY = 240.0  # a busy machine starts no zygote of its own instead
    warm = Warm(Executor(Path(folder), int(jvm)), given.get("seconds", 300.0))
    made = program(call, preload=tuple(given.get("preload", ("json",))))
    with ProcessRunner(made, given.get("environment"), warm=warm) as runner:
        process = runner._zygote.process
        said = {"zygote": process.pid, "kept": isinstance(process, KeptProcess)}
        print(json.dumps(said), flush=True)
        run = Runner(runner, Path(root))
        for line in sys.stdin:
            function, params = json.loads(line)
            outcome = run(function=function, params=params)
            kind = outcome.error.kind if outcome.error else ""
            print(json.dumps([outcome.status, outcome.value, kind]), flush=True)


def call(function: str, params: dict[str, Any]) -> Any:
    """Call one of the train functions of tests."""
    return getattr(train_functions, function)(**params)


if __name__ == "__main__":
    serve(*sys.argv[1:])
