"""The accuracy of models that two workers train out of step, against that of one worker."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spark_jobs.strategies.settings import Downpour
from spark_jobs.strategies.sharding import part_of
from tests.spark_jobs.strategies.gang import Gangs, Worker

_TRAINED = 1_200  # digits; the model is judged by the others
_BATCH = 16
_PASSES = 6


class Difference(NamedTuple):
    """How the accuracy on two workers differs from that on one, over seeds.

    Attributes:
        one: The mean accuracy on one worker.
        two: The mean accuracy on two.
        error: The standard error of the mean difference, of pairs of one seed.
    """

    one: float
    two: float
    error: float


def accuracy(worker: Worker, seed: int, settings: dict[str, Any] | None) -> float:
    """Return a model's accuracy on unseen digits.

    Args:
        worker: The worker.
        seed: The seed of initial weights and order.
        settings: Those of `Downpour`; None on one worker.
    """
    import keras
    from sklearn.datasets import load_digits

    keras.utils.set_random_seed(seed)
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    x, y = (pixels[order] / 16).astype("float32"), labels[order]
    part = part_of((x[:_TRAINED], y[:_TRAINED]), worker.rank, worker.size)
    layers = [keras.layers.Input((64,)), keras.layers.Dense(64, activation="relu")]
    model = keras.Sequential([*layers, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    options = {"batch_size": _BATCH, "epochs": _PASSES, "verbose": 0}
    if settings is None:
        model.fit(*part, **options)
    else:
        with worker.downpour(Downpour(**settings)):
            model.fit(*part, **options)
    return float(model.evaluate(x[_TRAINED:], y[_TRAINED:], verbose=0)[1])


def differences(ways: Sequence[dict[str, Any]], seeds: int) -> list[Difference]:
    """Compare ways to train on two workers with one worker that sees the same samples.

    Args:
        ways: The settings of `Downpour` for each way.
        seeds: The number of seeds, each of which trains once on one worker and once in each way.
    """
    with tempfile.TemporaryDirectory() as folder, Gangs(Path(folder)) as gangs:
        one = [gangs.values(accuracy, 1, seed, None)[0] for seed in range(seeds)]
        found = []
        for settings in ways:
            two = [gangs.values(accuracy, 2, seed, settings)[0] for seed in range(seeds)]
            apart = [b - a for a, b in zip(one, two, strict=True)]
            error = statistics.stdev(apart) / seeds**0.5
            found.append(Difference(statistics.fmean(one), statistics.fmean(two), error))
    return found
