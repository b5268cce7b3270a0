"""The time of a step of `model.fit` in 16 bits against 32, on this host's processor."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np

from tests.benchmarks.training.mirrored_steps import clock_of_steps
from tests.spark_jobs.strategies.gang import Gangs, Worker

_UNITS = 2_048
_BATCH = 256
_STEPS = 20
_ROUNDS = 3


def seconds_of_a_step(worker: Worker, precision: str) -> float:
    """Return the median seconds of a step of three dense layers, after those that trace it."""
    import keras

    keras.config.set_dtype_policy(precision)
    layers = [keras.layers.Dense(_UNITS, activation="relu") for _ in range(3)]
    model = keras.Sequential([keras.layers.Input((_UNITS,)), *layers])
    model.compile(keras.optimizers.SGD(1e-3), "mse")
    numbers = np.ones((_BATCH * _STEPS, _UNITS), np.float32)
    clock = clock_of_steps(keras)
    model.fit(numbers, numbers, batch_size=_BATCH, verbose=0, callbacks=[clock])
    return statistics.median(clock.taken[_STEPS // 4 :])


def share_of_bfloat16() -> float:
    """Return the time of a step by 'mixed_bfloat16', of that by 'float32'."""
    found = []
    with tempfile.TemporaryDirectory() as folder, Gangs(Path(folder)) as gangs:
        for _ in range(_ROUNDS):
            half, whole = (
                gangs.values(seconds_of_a_step, 1, precision)[0]
                for precision in ("mixed_bfloat16", "float32")
            )
            found.append(half / whole)
    return statistics.median(found)
