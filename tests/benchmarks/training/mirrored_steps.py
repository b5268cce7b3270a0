"""The speed of `model.fit` on two workers against one, with steps whose computing is known.

Computing is a sleep, so that it takes as long whatever else the processors do. Real convolutions
are measured by their processor time, for the same reason.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.spark_jobs.strategies.gang import Gangs, Worker

_BATCH = 64
_ROUNDS = 3
_LONG = 0.2  # seconds of a step on one worker
_WEIGHTS = 1000  # rows and columns of a matrix: 4 MB of gradients


def clock_of_steps(keras: Any) -> Any:
    """Return a callback whose `taken` has the seconds of each step of `fit`."""

    class Clock(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is imported late
        def __init__(self) -> None:
            super().__init__()
            self.taken: list[float] = []

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.begun = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.taken.append(time.perf_counter() - self.begun)

    return Clock()


def steps_of_fit(worker: Worker, seconds: float, steps: int) -> list[float]:
    """Return the seconds of each step of `fit`, without those that trace it.

    Args:
        worker: The worker.
        seconds: Seconds that a step sleeps on one worker; two sleep half as long.
        steps: The number of steps.
    """
    with worker.mirrored():
        import keras
        import tensorflow as tf

        def slept(images: Any) -> Any:
            time.sleep(seconds * len(images) / _BATCH)
            return images

        class Compute(keras.layers.Layer):
            def build(self, shape: Any) -> None:
                size = _WEIGHTS if seconds else 1
                self.matrix = self.add_weight(shape=(size, size), initializer="ones")

            def call(self, images: Any) -> Any:
                if seconds:
                    computed = tf.numpy_function(slept, [images], tf.float32, stateful=True)
                    images = tf.ensure_shape(computed, images.shape)
                return images * tf.reduce_mean(self.matrix)

        model = keras.Sequential([keras.layers.Input((1,)), Compute()])
        clock = clock_of_steps(keras)
        model.compile(keras.optimizers.SGD(1e-3), "mse", metrics=["mae"])
        numbers = np.ones((_BATCH * steps, 1), np.float32)
        model.fit(numbers, numbers, batch_size=_BATCH, verbose=0, callbacks=[clock])
        return clock.taken[steps // 5 :]


def of_one_and_two(
    seconds: float, steps: int, choose: Callable[[list[float]], float]
) -> list[tuple[float, float]]:
    """Return the seconds of a step on one worker and on two, in turns.

    Args:
        seconds: Seconds that a step sleeps on one worker.
        steps: The number of steps of a round.
        choose: Chooses from the seconds of all steps of a round.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder, Gangs(Path(folder)) as gangs:
        for _ in range(_ROUNDS):
            one, two = (
                choose(gangs.values(steps_of_fit, workers, seconds, steps)[0]) for workers in (1, 2)
            )
            found.append((one, two))
    return found


def overhead_of_fit() -> float:
    """Return the milliseconds by which a step that computes nothing is longer on two workers."""
    found = of_one_and_two(0, 200, statistics.median)
    return statistics.median(1e3 * (two - one) for one, two in found)


def speed_of_fit() -> float:
    """Return how many times as fast as one worker two are, with steps of 200 ms."""
    found = of_one_and_two(_LONG, 30, statistics.median)
    return statistics.median(one / two for one, two in found)


def processor_of_convolutions(worker: Worker, steps: int) -> float:
    """Return the processor seconds of a step of `fit` with convolutions, after the first ones."""
    with worker.mirrored():
        import keras

        class Clock(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if batch == steps // 5:  # traced by now
                    self.begun = time.process_time()

        layers = keras.layers
        model = keras.Sequential(
            [
                layers.Input((32, 32, 3)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.Conv2D(64, 3, activation="relu"),
                layers.GlobalAveragePooling2D(),
                layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(1e-3), loss)
        images = np.ones((_BATCH * steps, 32, 32, 3), np.float32)
        clock = Clock()
        labels = np.zeros(len(images), np.int32)
        model.fit(images, labels, batch_size=_BATCH, verbose=0, callbacks=[clock])
        return (time.process_time() - clock.begun) / (steps - steps // 5)


def share_of_convolutions() -> float:
    """Return the processor time of a step with convolutions on each of two workers, of one's."""
    found = []
    with tempfile.TemporaryDirectory() as folder, Gangs(Path(folder)) as gangs:
        for _ in range(_ROUNDS):
            (one,), two = (
                gangs.values(processor_of_convolutions, workers, 50) for workers in (1, 2)
            )
            found.append(statistics.fmean(two) / one)
    return statistics.median(found)
