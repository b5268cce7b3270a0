"""A tournament of trainers, each of two workers: Keras models of 1,797 handwritten digits.

After each round the worse half of the trainers goes on with the models of the better half, and with
changed learning rates: LBANN's tournaments (Jacobs et al. 2017) as population based training. The
two workers of a trainer train out of step, each on its part of the digits. Run it with
`python examples/tournament.py` or with spark-submit.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import experiment


def train(learning_rate: float, epochs: int = 2) -> float:
    """Train a model for a round; return its accuracy on unseen digits."""
    import keras
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    x_all, x_val, y_all, y_val = train_test_split(images / 16, labels, random_state=0)
    x, y = experiment.shard((x_all, y_all))  # this worker's part
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.SGD(learning_rate), "sparse_categorical_crossentropy")
    saved = Path(experiment.checkpoint_dir(), "model.weights.h5")
    if saved.exists():  # of the trainer whose model this one goes on with
        model.load_weights(saved)
    model.fit(x, y, epochs=epochs, callbacks=experiment.keras_callbacks(), verbose=2)
    model.save_weights(saved)
    return float((model.predict(x_val, verbose=0).argmax(axis=1) == y_val).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--trainers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3, help="after the first one")
    parser.add_argument("--logdir", help="the folder of all runs; default: experiments")
    options = parser.parse_args()

    spark = (
        SparkSession.builder.appName("tournament")
        .config("spark.ui.showConsoleProgress", "false")  # the search shows its own progress
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    result = experiment.population_based_training(
        spark,
        functools.partial(train, epochs=options.epochs),
        {"learning_rate": [0.5, 0.005]},
        popsize=options.trainers,
        generations=options.rounds,
        quantile=0.5,  # half of the trainers lose
        workers_per_trial=2,
        strategy=experiment.Downpour(fetch_every=5, push_every=5),
        name="digits-tournament",
        logdir=options.logdir,
    )
    columns = ["trial", "status", "value", "learning_rate", "seconds"]
    print(result.to_pandas()[columns].to_string(index=False))
    print(f"Best: {result.best}")
    print(f"Look at it: {sys.executable} -m experiment tensorboard {result.logdir}")
    spark.stop()


if __name__ == "__main__":
    main()
