"""The accuracy of models that two workers train out of step, against that of one worker."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterable, Sequence
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
    """The accuracy in one way, over seeds, against that in another.

    Attributes:
        mean: The mean.
        difference: The mean difference from the other way, in pairs of one seed.
        error: Its standard error.
    """

    mean: float
    difference: float
    error: float


class Way(NamedTuple):
    """A way to train.

    Attributes:
        workers: The number of workers, each of which trains.
        passes: How often a model sees its digits.
        shards: The number of parts of the digits, of which a worker has the one of its rank.
        strategy: The strategy of several workers as JSON; None: they know nothing of each other.
    """

    workers: int
    passes: int
    shards: int
    strategy: dict[str, Any] | None = None


def compared(accuracies: Sequence[float], others: Sequence[float]) -> Accuracy:
    """Compare accuracies by seed with others."""
    apart = [one - other for one, other in zip(accuracies, others, strict=True)]
    error = statistics.stdev(apart) / math.sqrt(len(apart))
    return Accuracy(statistics.fmean(accuracies), statistics.fmean(apart), error)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return pixels and labels, the unseen ones from number `_TRAINED` on."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    return (pixels[order] / 16).astype("float32"), labels[order]


def predictions(worker: Worker, seed: int, *way: Any) -> np.ndarray:
    """Return the probabilities that a model predicts for unseen digits.

    Args:
        worker: The worker.
        seed: The seed of initial weights and order.
        way: The fields of a `Way`.
    """
    import keras

    _, passes, shards, strategy = Way(*way)
    # Models that learn from each other begin with different weights.
    keras.utils.set_random_seed(10 * seed + worker.rank)
    x, y = digits()
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
    return np.asarray(keras.ops.softmax(model.predict(x[_TRAINED:], verbose=0)))


def accuracy(probabilities: np.ndarray) -> float:
    """Return the share of the unseen digits that are the most probable ones."""
    _, labels = digits()
    return float((probabilities.argmax(axis=1) == labels[_TRAINED:]).mean())


def downpour(seeds: int) -> list[Accuracy]:
    """Return the accuracy of one worker, of Downpour, and of elastic averaging, same samples.

    Each is compared with the first one.

    Args:
        seeds: The number of seeds.
    """
    rules = [msgspec.to_builtins(Downpour(rule=rule)) for rule in ("downpour", "easgd")]
    ways = [Way(1, 6, 1), *(Way(2, 6, 2, rule) for rule in rules)]
    with tempfile.TemporaryDirectory() as folder, Gangs(Path(folder)) as gangs:
        found = [
            [
                accuracy(gangs.values(predictions, way.workers, seed, *way)[0])
                for seed in range(seeds)
            ]
            for way in ways
        ]
    return [compared(accuracies, found[0]) for accuracies in found]


class Pair(NamedTuple):
    """The accuracy of two models, each trained on a half of the digits, by seed.

    Attributes:
        mean: The mean of the two.
        averaged: That of the mean of their predictions.
    """

    mean: list[float]
    averaged: list[float]


class Codistilled(NamedTuple):
    """The accuracy of models of as many steps, by seed.

    Attributes:
        one: Of a model that sees all digits.
        independent: Of two that know nothing of each other.
        codistilled: Of two that learn from each other.
    """

    one: list[float]
    independent: Pair
    codistilled: Pair


def codistillation(seeds: Iterable[int]) -> Codistilled:
    """Return the accuracy of one model, of two independent ones, and of two codistilled ones.

    All make as many steps.

    Args:
        seeds: The seeds.
    """
    strategy = msgspec.to_builtins(Codistillation())
    found = Codistilled([], Pair([], []), Pair([], []))
    with tempfile.TemporaryDirectory() as folder, Gangs(Path(folder)) as gangs:
        for seed in seeds:
            whole = Way(1, 20, 1)
            found.one.append(accuracy(*gangs.values(predictions, 1, seed, *whole)))
            for pair, how in ((found.independent, None), (found.codistilled, strategy)):
                both = gangs.values(predictions, 2, seed, *Way(2, 40, 2, how))
                pair.mean.append(statistics.fmean(map(accuracy, both)))
                pair.averaged.append(accuracy(np.mean(both, axis=0)))
    return found
