"""The accuracy of models that two workers train out of step, against that of one worker."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from spark_jobs.strategies.settings import Codistillation, Downpour, Strategy
from spark_jobs.strategies.sharding import part_of
from tests.spark_jobs.strategies.gang import Gangs, Worker

_TRAINED = 1_200  # digits; the model is judged by the others
_BATCH = 16


class Accuracy(NamedTuple):
    """The accuracy in each way, over seeds.

    Attributes:
        mean: The mean.
        difference: The mean difference from the first way, in pairs of one seed.
        error: Its standard error.
    """

    mean: float
    difference: float
    error: float


def accuracy(
    worker: Worker, seed: int, passes: int, shards: int, strategy: dict[str, Any] | None
) -> float:
    """Return a model's accuracy on unseen digits.

    Args:
        worker: The worker.
        seed: The seed of initial weights and order.
        passes: How often the model sees its digits.
        shards: The number of parts of the digits, of which the worker has the one of its rank.
        strategy: The strategy of several workers as JSON.
    """
    import keras
    from sklearn.datasets import load_digits

    # Models that learn from each other begin with different weights.
    keras.utils.set_random_seed(10 * seed + worker.rank)
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    x, y = (pixels[order] / 16).astype("float32"), labels[order]
    part = part_of((x[:_TRAINED], y[:_TRAINED]), worker.rank, shards)
    layers = [keras.layers.Input((64,)), keras.layers.Dense(64, activation="relu")]
    model = keras.Sequential([*layers, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    options = {"batch_size": _BATCH, "epochs": passes, "verbose": 0}
    if strategy is None:
        model.fit(*part, **options)
    else:
        with worker.connected(msgspec.convert(strategy, Strategy)) as communicator:  # type: ignore[arg-type]  # a union
            model.fit(*part, **options)
            communicator.barrier()
    return float(model.evaluate(x[_TRAINED:], y[_TRAINED:], verbose=0)[1])


def _compared(seeds: int, ways: Sequence[tuple[int, Sequence[Any]]]) -> list[Accuracy]:
    """Return the accuracy of rank 0's model in each way.

    Args:
        seeds: The number of seeds.
        ways: The number of workers, and the arguments of `accuracy` after the seed.
    """
    with tempfile.TemporaryDirectory() as folder, Gangs(Path(folder)) as gangs:
        found = [
            [gangs.values(accuracy, workers, seed, *args)[0] for seed in range(seeds)]
            for workers, args in ways
        ]
    accuracies = []
    for way in found:
        apart = [b - a for a, b in zip(found[0], way, strict=True)]
        error = statistics.stdev(apart) / math.sqrt(seeds)
        accuracies.append(Accuracy(statistics.fmean(way), statistics.fmean(apart), error))
    return accuracies


def downpour(seeds: int) -> list[Accuracy]:
    """Return the accuracy of one worker, of Downpour, and of elastic averaging, same samples.

    Args:
        seeds: The number of seeds.
    """
    rules = [msgspec.to_builtins(Downpour(rule=rule)) for rule in ("downpour", "easgd")]
    return _compared(seeds, [(1, (6, 1, None)), *((2, (6, 2, rule)) for rule in rules)])


def codistillation(seeds: int) -> list[Accuracy]:
    """Return the accuracy of a model on all digits, on half of them, and codistilled on a half.

    All make as many steps.

    Args:
        seeds: The number of seeds.
    """
    strategy = msgspec.to_builtins(Codistillation(burn_in=300))
    return _compared(seeds, [(1, (20, 1, None)), (1, (40, 2, None)), (2, (40, 2, strategy))])
