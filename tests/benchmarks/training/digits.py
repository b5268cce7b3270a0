"""Large batches and Hogwild on the handwritten digits: their accuracy, and their speed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import experiment

_TRAINED = 1_200  # of 1,797 digits; accuracy is that of the others
_BATCH = 16
_TIMES = 8  # the large batch, in small ones
_RATE = 0.02  # of the small batch; momentum 0.9
_EPOCHS = 20
_WARM_EPOCHS = 5  # as in the paper

_REPEATS = 5  # of the digits, so that there is a batch of 8,192 of them
_HAND_SECONDS = 3.0  # of each batch whose speed is measured by hand

_HOGWILD_RATE = 0.1  # without momentum
_HOGWILD_EPOCHS = 6


class Scores(NamedTuple):
    """Results of one kind of training, by seed.

    Attributes:
        accuracy: The share of the validation digits that are recognised.
        speed: Samples a second.
    """

    accuracy: list[float]
    speed: list[float]

    @property
    def mean(self) -> float:
        """The mean accuracy."""
        return statistics.fmean(self.accuracy)


def _digits(seed: int) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(x))
    return (x[order] / 16).astype("float32"), y[order]


def _model(seed: int) -> Any:
    import keras

    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def _accuracy(model: Any, x: np.ndarray, y: np.ndarray) -> float:
    predicted = model.predict(x[_TRAINED:], batch_size=len(x), verbose=0).argmax(axis=1)
    return float((predicted == y[_TRAINED:]).mean())


def of_batches(seeds: int) -> dict[str, Scores]:
    """Return the scores of the small batch, and of the large one with three learning rates."""
    import keras

    large = _TIMES * _BATCH
    scaled = experiment.linear_scaling(_RATE, _BATCH, large)
    warm = _WARM_EPOCHS * -(-_TRAINED // large)
    kinds = {
        "small": (_BATCH, _RATE),
        "scaled, warmed up": (large, experiment.warmed_up(scaled, warm, start=_RATE)),
        "scaled": (large, scaled),
        "neither": (large, _RATE),
    }
    found = {kind: Scores([], []) for kind in kinds}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for seed in range(seeds):
        x, y = _digits(seed)
        for kind, (batch, rate) in kinds.items():
            model = _model(seed)
            model.compile(keras.optimizers.SGD(rate, momentum=0.9), loss)
            begun = time.perf_counter()
            training = x[:_TRAINED], y[:_TRAINED]
            model.fit(*training, batch_size=batch, epochs=_EPOCHS, verbose=0)
            found[kind].speed.append(_EPOCHS * _TRAINED / (time.perf_counter() - begun))
            found[kind].accuracy.append(_accuracy(model, x, y))
    return found


def found_and_best_batch() -> tuple[int, int, float]:
    """Return the batch that `auto_batch_size` finds, the fastest by hand, and their speeds' ratio.

    By hand is by whole calls of `fit` with each batch, after one that traces the model.
    """
    x, y = (np.concatenate([part] * _REPEATS) for part in _digits(0))
    found = experiment.auto_batch_size(_compiled, (x, y), least=16)
    by_hand = {}
    for batch in (16 << power for power in range((len(x) // 16).bit_length())):
        model, number = _compiled(), len(x) // batch * batch
        model.fit(x[:number], y[:number], batch_size=batch, verbose=0)
        begun, samples = time.perf_counter(), 0
        while time.perf_counter() - begun < _HAND_SECONDS:
            model.fit(x[:number], y[:number], batch_size=batch, epochs=5, verbose=0)
            samples += 5 * number
        by_hand[batch] = samples / (time.perf_counter() - begun)
    best = max(by_hand, key=by_hand.__getitem__)
    return found.fastest, best, by_hand[found.fastest] / by_hand[best]


def _compiled() -> Any:
    import keras

    model = _model(0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(_RATE), loss)
    return model


def of_threads(seeds: int, threads: tuple[int, ...] = (1, 2, 4)) -> dict[int, Scores]:
    """Return the scores of `experiment.hogwild` by the number of threads."""
    import keras
    import tensorflow as tf

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    found = {count: Scores([], []) for count in threads}

    def batches(x: np.ndarray, y: np.ndarray, seed: int) -> Iterator[tuple[Any, Any]]:
        generator = np.random.default_rng(seed)
        for _ in range(_HOGWILD_EPOCHS):
            order = generator.permutation(_TRAINED)
            for rows in np.split(order, _TRAINED // _BATCH):
                yield x[rows], y[rows]

    for seed in range(seeds):
        x, y = _digits(seed)
        for count in threads:
            model = _model(seed)
            weights = [weight.value for weight in model.trainable_variables]

            @tf.function
            def step(x: Any, y: Any, model: Any = model, weights: Any = weights) -> None:
                with tf.GradientTape() as tape:
                    error = loss(y, model(x, training=True))
                for weight, gradient in zip(weights, tape.gradient(error, weights), strict=True):
                    weight.assign_sub(_HOGWILD_RATE * gradient)

            data = list(batches(x, y, seed))
            step(*data[0])  # traces
            begun = time.perf_counter()
            experiment.hogwild(lambda batch, step=step: step(*batch), data[1:], threads=count)
            took = time.perf_counter() - begun
            found[count].speed.append((len(data) - 1) * _BATCH / took)
            found[count].accuracy.append(_accuracy(model, x, y))
    return found
