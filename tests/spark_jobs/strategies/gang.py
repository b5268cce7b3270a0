"""Workers of a trial without Spark: forked processes on loopback, as the zygotes fork them.

`python -m tests.spark_jobs.strategies.gang` is the process that forks them. It imports TensorFlow
once, and runs no operation.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import inspect
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import numpy as np

from spark_jobs.addresses import OwnAddress
from spark_jobs.communicator.communicator import Communicator
from spark_jobs.processes import die_with_parent
from spark_jobs.slot.gang.held_ports import DEFAULT_PORTS, HeldPorts
from spark_jobs.strategies.entering import entered
from spark_jobs.strategies.mirrored.mirrored import mirrored
from spark_jobs.strategies.settings import Mirrored, Strategy
from tests.spark_jobs.communicator.gangs import Gang

_COMPILE_FAST = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
_LIMIT = 250  # seconds, after which a worker that hangs is killed


class Star:
    """The collective calls of a worker, over rank 0."""

    def __init__(self, rank: int, connections: Sequence[Connection]) -> None:
        self.rank = rank
        self._connections = connections  # rank 0: to all others; others: to rank 0

    def all_reduce(self, arrays: Sequence[Any], op: str = "mean") -> list[Any]:
        function = {"mean": np.mean, "sum": np.sum, "min": np.min, "max": np.max}[op]
        own = [np.asarray(array) for array in arrays]
        if self.rank:
            self._connections[0].send(own)
            return self._connections[0].recv()
        every = [own, *(connection.recv() for connection in self._connections)]
        return self.broadcast(
            [function(np.stack(values), axis=0) for values in zip(*every, strict=True)]
        )

    def broadcast(self, arrays: Sequence[Any], root: int = 0) -> list[Any]:
        assert root == 0
        if self.rank:
            return self._connections[0].recv()
        for connection in self._connections:
            connection.send(list(arrays))
        return list(arrays)

    def meet(self) -> None:
        self.all_reduce([])

    def begin_step(self) -> None:
        """Do nothing: here a worker waits for ever for one that never comes."""

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One worker of a gang, in its process."""

    rank: int
    members: tuple[str, ...]
    collectives: Star
    gang: Gang

    @property
    def size(self) -> int:
        return len(self.members)

    def mirrored(self, settings: Mirrored | None = None) -> Any:
        """Enter the strategy, as a trial of several workers does; one worker needs none."""
        if self.size == 1:
            return contextlib.nullcontext()
        return mirrored(settings or Mirrored(), self.collectives, members=self.members)

    @contextlib.contextmanager
    def connected(self, strategy: Strategy) -> Iterator[Communicator]:
        """Connect to the others, and enter the strategy."""
        with self.gang.connect(self.rank) as communicator:
            with entered(strategy, members=self.members, communicator=communicator):
                yield communicator


@dataclass(frozen=True, slots=True)
class Ended:
    """How a worker ended.

    Attributes:
        value: The value that its function returned, or the exception's text.
        code: The exit status; negative for a signal, 1 for an exception.
    """

    value: Any
    code: int


class Gangs:
    """Runs functions in gangs; one at a time.

    Args:
        folder: A folder for what the workers return.
        backend: Keras' backend.
    """

    def __init__(self, folder: Path, backend: str = "tensorflow") -> None:
        self._folder = folder
        self._runs = 0
        environment = os.environ | {
            "KERAS_BACKEND": backend,
            "TF_NUM_INTRAOP_THREADS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        if backend == "jax":  # to compile is most of the work of these short trainings
            environment["XLA_FLAGS"] = _COMPILE_FAST
        self._server = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.stdin.close()
        self._server.wait(timeout=60)
        self._server.stdout.close()

    def ended(self, function: Callable[..., Any], workers: int, *args: Any) -> list[Ended]:
        """Call a function of a test module with each `Worker` of a gang; return how all ended."""
        self._runs += 1
        folder = self._folder / str(self._runs)
        folder.mkdir()
        module = inspect.getmodule(function).__spec__.name  # also of a program
        call = [str(folder), module, function.__qualname__, workers, args]
        print(json.dumps(call), file=self._server.stdin, flush=True)
        codes = json.loads(self._server.stdout.readline())
        found = []
        for rank, code in enumerate(codes):
            path = folder / f"{rank}"
            value = pickle.loads(path.read_bytes()) if path.exists() else None
            found.append(Ended(value, code))
        return found

    def values(self, function: Callable[..., Any], workers: int, *args: Any) -> list[Any]:
        """Return what the function returned in each worker; fail if one did not end well."""
        found = self.ended(function, workers, *args)
        assert [ended.code for ended in found] == [0] * workers, found
        return [ended.value for ended in found]


@contextlib.contextmanager
def held_addresses(number: int) -> Iterator[tuple[str, ...]]:
    """Hold addresses for the servers of the workers, as a trial's slots do."""
    with contextlib.ExitStack() as stack:
        local = OwnAddress(socket.AF_INET, "127.0.0.1")
        slots = [
            stack.enter_context(contextlib.closing(HeldPorts(local, DEFAULT_PORTS)))
            for _ in range(number)
        ]
        for ports in slots:
            ports.lend()
        yield tuple(ports.address.server for ports in slots)


def _star(workers: int) -> list[Star]:
    pairs = [Pipe() for _ in range(workers - 1)]
    others = [Star(rank, [pair[1]]) for rank, pair in enumerate(pairs, start=1)]
    return [Star(0, [pair[0] for pair in pairs]), *others]


def _fork(
    worker: Worker, stars: Sequence[Star], folder: str, function: Callable[..., Any], args: Any
) -> int:
    parent = os.getpid()
    if child := os.fork():
        return child
    code = 1
    try:
        die_with_parent(parent)
        faulthandler.enable(all_threads=True)
        signal.alarm(_LIMIT)
        faulthandler.dump_traceback_later(_LIMIT - 10)
        for other in stars:
            if other is not worker.collectives:
                other.close()  # so that another worker's end reaches this one
        value = function(worker, *args)
        code = 0
    except BaseException:
        value = traceback.format_exc()
    finally:
        try:
            path = Path(folder, str(worker.rank))
            path.write_bytes(pickle.dumps(value))
        finally:
            os._exit(code)


def main() -> None:
    import keras  # noqa: F401
    import sklearn.datasets  # noqa: F401  # most functions do, each worker anew if not here
    import tensorflow  # noqa: F401

    gc.collect()
    gc.freeze()  # as zygotes do, or a collection in a worker copies every page

    # What the workers print is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        folder, module, name, workers, args = json.loads(line)
        function = getattr(importlib.import_module(module), name)
        with held_addresses(workers) as addresses:
            stars = _star(workers)
            with Gang(workers) as gang:
                children = [
                    _fork(
                        Worker(rank=rank, members=addresses, collectives=star, gang=gang),
                        stars,
                        folder,
                        function,
                        args,
                    )
                    for rank, star in enumerate(stars)
                ]
            for star in stars:
                star.close()
            codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(codes), file=answers, flush=True)


if __name__ == "__main__":
    main()
