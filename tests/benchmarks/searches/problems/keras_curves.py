"""Recorded learning curves of a Keras model, a problem for multi-fidelity searches.

The file beside this module has, for every configuration of a grid, how many validation digits the
model misreads after each epoch. `python -m tests.benchmarks.searches.problems.keras_curves` trains
them all with `experiment.launch` and writes the file again, in half an hour or more.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

import experiment
from search.space.spaces import Choice, Integer, Space
from tests.benchmarks.sessions import session

GRID: dict[str, list[Any]] = {
    "learning_rate": [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1],
    "batch_size": [16, 64, 256],
    "units": [16, 32, 64, 128],
    "layers": [1, 2, 3],
    "dropout": [0.0, 0.2, 0.4],
    "optimizer": ["adam", "sgd"],
}
EPOCHS = 81
TRAINED = 898
"""Digits of 1,797 that the model is trained on; the others validate it."""

VALIDATED = 1_797 - TRAINED

FILE = Path(__file__).with_suffix(".csv.gz")
"""A row per configuration, in the order of the grid."""


class DigitsCurves:
    """The share of misread validation digits, to be minimised, of a dense network.

    A number is searched by its position in the grid.

    Attributes:
        name: Unique among the problems.
        space: The grid.
    """

    name = "Keras on digits"
    space = Space(
        {
            name: Choice(steps) if isinstance(steps[0], str) else Integer(0, len(steps) - 1)
            for name, steps in GRID.items()
        }
    )

    @property
    def best(self) -> float:
        """The lowest value after all epochs."""
        return float(table()[..., -1].min())

    def value(self, params: Mapping[str, Any], steps: int) -> float:
        """Return the value of a configuration after a number of epochs, from 1 to `EPOCHS`."""
        places = (
            GRID[name].index(params[name]) if isinstance(domain, Choice) else int(params[name])
            for name, domain in self.space.items()
        )
        return float(table()[*places, steps - 1])


@functools.cache
def table() -> NDArray[np.float64]:
    """Return the values: an axis per hyperparameter, and one for the epochs."""
    misread: NDArray[np.int64] = pandas.read_csv(FILE).drop(columns=list(GRID)).to_numpy()
    return misread.reshape(*map(len, GRID.values()), EPOCHS) / VALIDATED


def train(
    learning_rate: float, batch_size: int, units: int, layers: int, dropout: float, optimizer: str
) -> float:
    """Train a network, report the misread validation digits of each epoch, return the last."""
    import keras
    import tensorflow as tf
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    digits = tf.constant(images[order] / 16, "float32")
    truth = tf.constant(labels[order])
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((64,))])
    for _ in range(layers):
        model.add(keras.layers.Dense(units, activation="relu"))
        model.add(keras.layers.Dropout(dropout))
    model.add(keras.layers.Dense(10))
    kind = {"adam": keras.optimizers.Adam, "sgd": keras.optimizers.SGD}[optimizer]
    descent = kind(learning_rate)
    descent.build(model.trainable_variables)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    # An epoch as one graph: `fit` takes ten times as long for steps this small.
    @tf.function  # type: ignore[untyped-decorator]
    def epoch() -> tf.Tensor:
        shuffled = tf.random.shuffle(tf.range(TRAINED))
        for first in tf.range(0, TRAINED - batch_size + 1, batch_size):
            rows = shuffled[first : first + batch_size]
            with tf.GradientTape() as tape:
                error = loss(tf.gather(truth, rows), model(tf.gather(digits, rows), training=True))
            gradients = tape.gradient(error, model.trainable_variables)
            descent.apply(gradients, model.trainable_variables)
        wrong = tf.argmax(model(digits[TRAINED:]), axis=1) != truth[TRAINED:]
        return tf.math.count_nonzero(wrong)

    for number in range(1, EPOCHS + 1):
        misread = int(epoch())
        experiment.report(step=number, misread=misread)
    return misread


def main() -> None:
    """Train every configuration, and write the file."""
    spark = session(2)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        result = experiment.launch(spark, train, GRID, direction="min", logdir=folder)
        curves = result.curves().pivot(index="trial", columns="step", values="value").astype(int)
        rows = result.to_pandas().set_index("trial")[list(GRID)].join(curves)
    spark.stop()
    if rows.isna().any(axis=None) or len(curves.columns) != EPOCHS:
        raise RuntimeError("a trial has failed: the file was left as it was")
    rows.to_csv(FILE, index=False, compression={"method": "gzip", "mtime": 1})


if __name__ == "__main__":
    main()
