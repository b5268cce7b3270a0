"""The batch size that a model trains fastest with, found by doubling it."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, get_args

import cloudpickle
import msgspec

from experiment.large_batches import measuring
from experiment.large_batches.measuring import Done, Problem, Speed, Work, doubled
from experiment.large_batches.samples import Samples
from search.checks import check_integer, check_number, plain
from search.errors import InvalidArgument, one_line, shown
from spark_jobs.processes import signal_name
from spark_jobs.trial import context
from spark_jobs.trial.memory import out_of_memory
from spark_jobs.trial.memory.gpu_share import GpuShare

if TYPE_CHECKING:
    from spark_jobs.communicator.communicator import Communicator

Limit = Literal["memory", "gpu memory", "speed", "most"]

_LAST_WORDS = 500  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize:
    """The speed of training by the size of a batch; see `experiment.auto_batch_size`.

    Attributes:
        samples_per_second: Samples a second by the batch, in ascending order; at least one.
        limit: Why no larger batch was measured: the next one exhausted 'memory' or 'gpu memory',
            the last two were hardly faster than one before ('speed'), or it was the last one asked
            for ('most').
    """

    samples_per_second: Mapping[int, float]
    limit: Limit

    @property
    def largest(self) -> int:
        """The largest batch that was measured, which fits into memory."""
        return max(self.samples_per_second)

    @property
    def fastest(self) -> int:
        """The batch with the most samples a second."""
        return max(self.samples_per_second, key=self.samples_per_second.__getitem__)

    @property
    def advice(self) -> str:
        """What to do for larger batches, in a sentence; '' if memory is not the limit."""
        if self.limit not in ("memory", "gpu memory"):
            return ""
        return (
            f"batches of {2 * self.largest} do not fit into the {self.limit}: for a step of k * "
            f"{self.largest} samples, train with batch_size={self.largest} and give the optimizer "
            "gradient_accumulation_steps=k"
        )

    def __str__(self) -> str:
        marks = {self.fastest: "  fastest", self.largest: "  largest"}
        if self.fastest == self.largest:
            marks = {self.largest: "  fastest, largest"}
        lines = [
            f"{batch:>8}{speed:>12.0f}{marks.get(batch, '')}"
            for batch, speed in self.samples_per_second.items()
        ]
        head = f"{'batch':>8}{'samples/s':>12}"
        return "\n".join([head, *lines, *([self.advice] if self.advice else [])])


def auto_batch_size(
    build: Callable[[], Any],
    data: Any,
    *,
    least: int = 1,
    most: int | None = None,
    seconds: float = 2.0,
) -> BatchSize:
    """Measure how fast a model trains with batches of `least`, twice as many, and so on.

    It ends where twice the batch does not fit into memory or is larger than `most`, or where two
    doublings in a row make the training less than 10 % faster. The model is trained by `model.fit`
    in a process of its own, which may die of memory; it imports Keras, which takes some seconds,
    and has this process' environment, dtype policy and GPUs. Where trials share a GPU
    (`trials_per_gpu`), it may take as much memory of it as the trial. A framework that has taken
    all memory of a GPU in this process leaves it none. Where the kernel kills all processes of a
    container that is out of memory, as by default on Kubernetes, it ends the executor, too: pass a
    `most` whose training fits into the container's memory.

    In a trial on several slots all workers call it, each measures, and all get the same result: for
    each batch size that all workers measured, the speed of the slowest worker. The batches are
    those of one worker; `Mirrored` and `Jax` divide that of `fit`, so pass it `world_size()` times
    as many samples.

    Args:
        build: Returns a compiled model of Keras; called for each batch, in the other process.
        data: `(x, y)` or `(x, y, sample_weight)` of arrays, tensors, or tuples, lists or dicts of
            these, copied to the other process: a part of the data is enough.
        least: The first batch, in samples.
        most: The greatest batch. Default: the number of samples.
        seconds: Seconds for which each batch is measured, after two steps that do not count.

    Returns:
        `.largest`, `.fastest`, and `.samples_per_second` of each; `str` of it is a table.

    Raises:
        InvalidArgument: An argument is invalid or cannot be sent to another process, training
            fails there, or even `least` samples do not fit into memory.
    """
    if not callable(build):
        raise InvalidArgument("build", "a function that returns a compiled model", shown(build))
    samples = Samples(data)
    least, most = plain(least), samples.number if most is None else plain(most)
    check_integer("least", least, 1)
    if least > samples.number:
        raise InvalidArgument("least", f"at most {samples.number}, the samples", str(least))
    check_integer("most", most, least)
    if most > samples.number:
        raise InvalidArgument("most", f"at most {samples.number}, the samples", str(most))
    check_number("seconds", seconds, "seconds above zero", lambda value: 0 < value < 1e9)
    work = Work(
        build=build,
        data=samples.parts,
        batches=doubled(least, most),
        seconds=float(seconds),
        policy=_policy(),
    )
    trial = context.current()
    found = _measured(work, None if trial is None else trial.gpu_share)
    if trial is None or trial.communicator is None:
        return found
    return _agreed(found, trial.communicator)


def _measured(work: Work, share: GpuShare | None) -> BatchSize:
    found: dict[int, float] = {}
    with _measuring(work, share) as messages:
        for message in messages:
            if isinstance(message, Problem):
                return _ended(found, message, work.batches[0])
            found[message.batch] = message.samples_per_second
    limit: Limit = "most" if len(found) == len(work.batches) else "speed"
    return BatchSize(samples_per_second=found, limit=limit)


def _agreed(found: BatchSize, communicator: Communicator) -> BatchSize:
    """Return the least speeds of all workers, for the batches that each of them has measured."""
    communicator.meet()  # some measure for longer than others
    limits = get_args(Limit)
    own = len(found.samples_per_second) * len(limits) + limits.index(found.limit)
    (end,) = communicator.all_reduce([own], "min")
    number, limit = divmod(int(end), len(limits))  # of a worker with the fewest batches
    own_speeds = list(found.samples_per_second.values())[:number]
    (speeds,) = communicator.all_reduce([own_speeds], "min")
    least = dict(zip(found.samples_per_second, speeds.tolist(), strict=False))
    return BatchSize(samples_per_second=least, limit=limits[limit])


def _ended(found: dict[int, float], problem: Problem, least: int) -> BatchSize:
    if problem.memory is None:
        batch = 2 * max(found) if found else least
        expected = f"a function whose model trains with batches of {batch}"
        raise InvalidArgument("build", expected, problem.error)
    if not found:
        hint = "make the model smaller, or begin with fewer samples"
        expected = f"a batch that fits into the {problem.memory}"
        raise InvalidArgument("least", expected, f"{least}: {problem.error}", hint)
    return BatchSize(samples_per_second=found, limit=problem.memory)


def _policy() -> str | None:
    """Return Keras' dtype policy in this process; None if it has not imported Keras."""
    if (keras := sys.modules.get("keras")) is None:
        return None
    return str(keras.config.dtype_policy().name)


@contextlib.contextmanager
def _measuring(work: Work, share: GpuShare | None) -> Iterator[Iterator[Speed | Problem]]:
    """Start the process; yield an iterator over its messages. It does not outlive the block.

    Args:
        work: The batches to measure.
        share: The share of a GPU's memory that the process may take; None for all of it.
    """
    with contextlib.ExitStack() as stack:
        payload = stack.enter_context(os.fdopen(os.memfd_create("batch-size"), "w+b"))
        pickle.dump(share, payload)
        try:
            cloudpickle.dump(work, payload)
        except Exception as error:
            raise InvalidArgument(
                "build",
                "a function that can be pickled, for another process",
                one_line(error),
                "create what it refers to inside of it",
            ) from None
        payload.flush()
        payload.seek(0)
        log = stack.enter_context(tempfile.NamedTemporaryFile(prefix="experiment-"))
        reading, writing = os.pipe()
        lines = stack.enter_context(os.fdopen(reading, "rb"))
        kills_file = out_of_memory.oom_kills_file()
        kills = out_of_memory.oom_kills(kills_file)
        command = [sys.executable, "-P", "-m", measuring.__name__]
        try:
            process = subprocess.Popen(
                [*command, str(payload.fileno()), str(writing), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(payload.fileno(), writing),
                env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            )
        finally:
            os.close(writing)
        stack.callback(process.wait)
        stack.callback(process.kill)  # does nothing once it has ended

        def messages() -> Iterator[Speed | Problem]:
            for line in lines:
                message = msgspec.json.decode(line, type=Speed | Problem | Done)
                if isinstance(message, Done):
                    return
                yield message
            code = process.wait()  # build() may have ended it, with 0, too
            yield _death(code, log, out_of_memory.oom_kills(kills_file) - kills)

        yield messages()


def _death(code: int, log: IO[bytes], kills: int) -> Problem:
    """Return the problem of a process that has ended without its last message."""
    log.seek(0)
    text = log.read().decode("utf-8", "replace")
    words = " ".join(text.split())[-_LAST_WORDS:]
    how = f"signal {-code} ({signal_name(-code)})" if code < 0 else f"exit code {code}"
    by_memory = out_of_memory.ended_by_memory(
        code, Path(log.name), kills=kills, limited=out_of_memory.is_limited()
    )
    error = f"its process ended by {how}: {words}".rstrip(": ")
    return Problem(memory="memory" if by_memory else None, error=error)
