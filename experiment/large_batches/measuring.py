"""The process that trains with larger and larger batches, and may die of memory.

`python -m experiment.large_batches.measuring PAYLOAD RESULTS PARENT`, with two descriptors and the
parent's process id.
"""

from __future__ import annotations

import math
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from experiment.large_batches.samples import Samples
from search.errors import one_line
from spark_jobs.processes import die_with_parent
from spark_jobs.trial.memory import out_of_memory
from spark_jobs.trial.memory.gpu_share import limited

LEAST_GAIN = 1.1
"""Ratio of the samples a second to the most so far below which doubling a batch is no gain."""

LOSSES = 2
"""Doublings in a row without a gain after which it ends: some hosts compute slowly for a while."""

_UNTIMED = 2  # first steps, in which Keras traces the model and frameworks choose algorithms
_UNTIMED_SHARE = 0.25  # of the seconds, after these: processor and memory get ready


class Speed(msgspec.Struct, frozen=True, kw_only=True, tag="speed"):
    """The speed of training with a batch.

    Attributes:
        batch: The number of samples of a step.
        samples_per_second: Samples a second.
    """

    batch: int
    samples_per_second: float


class Problem(msgspec.Struct, frozen=True, kw_only=True, tag="problem"):
    """Why training with a batch failed.

    Attributes:
        memory: Which memory was exhausted; None if it was something else.
        error: The error in one line.
    """

    memory: Literal["memory", "gpu memory"] | None
    error: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """All batches were measured, or more of them would not be faster: the last message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The batches to measure, pickled for the process.

    Attributes:
        build: Returns a compiled model of Keras.
        data: The data, as `Samples` takes it.
        batches: The batches, from the least, each the double of the one before.
        seconds: Seconds for which each is measured.
        policy: Keras' dtype policy; None for its default.
    """

    build: Callable[[], Any]
    data: Any
    batches: tuple[int, ...]
    seconds: float
    policy: str | None


def doubled(least: int, most: int) -> tuple[int, ...]:
    """Return `least`, its double and so on, none above `most`."""
    return tuple(least << power for power in range(int(math.log2(most / least)) + 1))


def speeds(
    batches: tuple[int, ...], measure: Callable[[int], float]
) -> Iterator[tuple[int, float]]:
    """Yield each batch with its speed, until two in a row are hardly faster than one before.

    These are measured twice, and the better speed counts: other programs only slow them down.

    Args:
        batches: The batches, in order.
        measure: Returns the samples a second of a batch.
    """
    most, losses = 0.0, 0
    for batch in batches:
        speed = measure(batch)
        if speed < LEAST_GAIN * most:
            speed = max(speed, measure(batch))
        yield batch, speed
        losses = losses + 1 if speed < LEAST_GAIN * most else 0
        if losses == LOSSES:
            return
        most = max(most, speed)


def speed_of(work: Work, samples: Samples, batch: int) -> float:
    """Train a new model with a batch for some seconds; return the samples a second.

    Args:
        work: The model, and the seconds that count; at least one step does.
        samples: The samples, at least as many as the batch.
        batch: The number of samples of a step.
    """
    import keras

    class Stop(Exception):
        pass

    class Clock(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        untimed, ready, steps, begun, took = _UNTIMED, math.inf, 0, 0.0, 0.0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.last = -1

        def on_train_batch_end(self, step: int, logs: Any = None) -> None:
            done, self.last = step - self.last, step  # several with steps_per_execution
            now = time.monotonic()
            if self.untimed > 0 or now < self.ready:
                self.untimed -= 1
                self.begun = now
                if self.untimed == 0:
                    self.ready = now + _UNTIMED_SHARE * work.seconds
                return
            self.steps += done
            self.took = now - self.begun
            if self.took >= work.seconds:
                raise Stop

    keras.backend.clear_session()
    if work.policy is not None:  # after that, which sets it back
        keras.config.set_dtype_policy(work.policy)
    model, clock = work.build(), Clock()
    x, y, *weights = samples.first(samples.number // batch * batch)  # another size is traced anew
    try:
        model.fit(
            x,
            y,
            batch_size=batch,
            epochs=sys.maxsize,
            sample_weight=weights[0] if weights else None,
            callbacks=[clock],
            verbose=0,
        )
    except Stop:
        return clock.steps * batch / clock.took
    raise RuntimeError("model.fit ended before its last epoch: build() stops the training itself")


def main(payload: int, results: int, parent: int) -> None:
    """Measure the batches, and write a line of JSON for each, and for how it ends.

    Args:
        payload: A descriptor of the parent, with its share of a GPU, which may be None, and the
            `Work`, each pickled.
        results: A pipe to it.
        parent: Its process id.
    """
    die_with_parent(parent)
    out_of_memory.be_first_to_be_killed()
    with os.fdopen(results, "wb", buffering=0) as lines, out_of_memory.reserve():
        try:
            with os.fdopen(payload, "rb") as file, limited(pickle.load(file)):
                work = pickle.load(file)  # which may start a GPU: the limit comes first
                samples = Samples(work.data)
                for batch, speed in speeds(work.batches, lambda b: speed_of(work, samples, b)):
                    found = Speed(batch=batch, samples_per_second=speed)
                    lines.write(msgspec.json.encode(found) + b"\n")
            lines.write(msgspec.json.encode(Done()) + b"\n")
        except Exception as raised:
            traceback.print_exc()
            error = out_of_memory.restored(raised)
            kind = out_of_memory.kind_of(error)
            problem = Problem(memory=kind, error=one_line(error)[:2000])
            lines.write(msgspec.json.encode(problem) + b"\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
