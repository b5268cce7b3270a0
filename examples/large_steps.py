"""Where several workers pay: a model whose computing dominates, on one worker and on two.

The data are random numbers, and the computing of a step is a wait in proportion to the samples of
the worker, so the times are those of two hosts also where both workers share the cores of one. Run
it with `python examples/large_steps.py` or with spark-submit.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from typing import Any

from pyspark.sql import SparkSession

import experiment

BATCH = 64  # samples of all workers together


def train(seconds: float, steps: int = 20) -> float:
    """Train a linear model by slow steps; return the median seconds of a step.

    Args:
        seconds: The seconds that one worker computes for a batch.
        steps: The number of steps.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    def computed(samples: Any) -> Any:
        time.sleep(seconds * len(samples) / BATCH)
        return samples

    class Slow(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
        def call(self, samples: Any) -> Any:
            found = tf.numpy_function(computed, [samples], tf.float32, stateful=True)
            return tf.ensure_shape(found, samples.shape)

    class Clock(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_begin(self, logs: Any = None) -> None:
            self.ends: list[float] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.ends.append(time.perf_counter())

    x = np.random.default_rng(0).normal(size=(steps * BATCH, 256)).astype("float32")
    model = keras.Sequential([keras.layers.Input((256,)), Slow(), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    clock = Clock()
    model.fit(x, x[:, :1], batch_size=BATCH, verbose=0, callbacks=[clock])
    return float(np.median(np.diff(clock.ends)))  # without the first, which makes the graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.4, help="of a step on one worker")
    parser.add_argument("--steps", type=int, default=20, help="at least 3")
    parser.add_argument("--logdir", help="the folder of all runs; default: experiments")
    options = parser.parse_args()

    spark = (
        SparkSession.builder.appName("large steps")
        .config("spark.ui.showConsoleProgress", "false")  # the training shows its own progress
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    taken = {}
    for workers in (1, 2):
        trial = experiment.distributed_training(
            spark,
            functools.partial(train, steps=options.steps),
            {"seconds": options.seconds},
            workers=workers,
            # TensorFlow of each worker listens without a password: between hosts, close its port.
            strategy=experiment.Mirrored(unprotected=True),
            direction="min",
            name=f"large-steps-on-{workers}",
            logdir=options.logdir,
        )
        if trial.value is None:  # after Ctrl-C
            sys.exit(f"The training was {trial.status}.")
        taken[workers] = trial.value
        print(f"Workers: {workers}, a step: {1e3 * trial.value:.0f} ms")
    print(f"Speed of two workers: {taken[1] / taken[2]:.2f} times that of one")
    print(f"Look at it: {sys.executable} -m experiment tensorboard {trial.logdir}")
    spark.stop()


if __name__ == "__main__":
    main()
