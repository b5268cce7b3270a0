"""What `plan_training` predicts for two workers, and what they do, on a local Spark.

Computing is a sleep, so that it takes as long whatever else the processors do.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import numpy as np

import experiment
from experiment.planning.measured_steps import FirstSteps
from tests.benchmarks.sessions import session

_MIRRORED = experiment.Mirrored(unprotected=True)
_BATCH = 64
_STEPS = 30


def fit(seconds: float) -> None:
    """Fit a model of 4 MB, whose steps sleep in proportion to this worker's part of the batch.

    Args:
        seconds: Seconds of a step on one worker.
    """
    import keras
    import tensorflow as tf

    def slept(images: Any) -> Any:
        time.sleep(seconds * len(images) / _BATCH)
        return images

    class Compute(keras.layers.Layer):  # type: ignore[misc]  # keras has no types
        def build(self, shape: Any) -> None:
            self.matrix = self.add_weight(shape=(1000, 1000), initializer="ones")

        def call(self, images: Any) -> Any:
            computed = tf.numpy_function(slept, [images], tf.float32, stateful=True)
            return tf.ensure_shape(computed, images.shape) * tf.reduce_mean(self.matrix)

    model = keras.Sequential([keras.layers.Input((1,)), Compute()])
    model.compile(keras.optimizers.SGD(1e-3), "mse")
    numbers = np.ones((_BATCH * 2 * _STEPS, 1), np.float32)
    model.fit(numbers, numbers, batch_size=_BATCH, verbose=0)


def of_two() -> tuple[float, float]:
    """Return the speed of two workers against one, with steps of 200 ms: planned, measured."""
    with tempfile.TemporaryDirectory() as logdir:
        spark = session(2)
        shared: dict[str, Any] = {"strategy": _MIRRORED, "logdir": logdir, "verbose": 0}
        params = {"seconds": 0.2}
        plan = experiment.plan_training(spark, fit, params, workers=[1, 2], steps=_STEPS, **shared)
        trial = experiment.distributed_training(
            spark,
            FirstSteps(fit, _STEPS),
            params,
            workers=2,
            optimization_key="step_seconds",
            direction="min",
            **shared,
        )
        return plan.speeds[1].speedup, plan.step_seconds / trial.metrics["step_seconds"]
