"""Early stopping: sixteen Keras models of 1,797 handwritten digits, most of them not for long.

Successive halving (ASHA) compares the trials at epochs 1, 2, 4, 8, ... and stops each that is not
in the better half of those that got there. `keras_callbacks` reports the epochs and ends `fit`.
Run it with `python examples/early_stopping.py` or with spark-submit.
"""

from __future__ import annotations

import argparse
import functools
import sys

from pyspark.sql import SparkSession

import experiment


def train(learning_rate: float, units: int, dropout: float, epochs: int = 8) -> dict[str, float]:
    """Train a small network on the digits; return its accuracy on unseen ones."""
    import keras
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    x, x_val, y, y_val = train_test_split(images / 16, labels, test_size=0.25, random_state=0)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(
        x,
        y,
        epochs=epochs,
        validation_data=(x_val, y_val),
        callbacks=[
            *experiment.keras_callbacks(),
            # a retried trial, whose executor was lost, resumes after its last epoch
            keras.callbacks.BackupAndRestore(experiment.checkpoint_dir()),
        ],
        verbose=2,
    )
    _, accuracy = model.evaluate(x_val, y_val, verbose=0)
    return {"val_accuracy": accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--logdir", help="the folder of all runs; default: experiments")
    options = parser.parse_args()

    spark = (
        SparkSession.builder.appName("early stopping")
        .config("spark.ui.showConsoleProgress", "false")  # the search shows its own progress
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    bounds = {"learning_rate": [0.1, 0.00001], "units": [8, 64], "dropout": [0.0, 0.8]}
    result = experiment.random_search(
        spark,
        functools.partial(train, epochs=options.epochs),
        bounds,
        samples=options.samples,
        name="digits-early-stopping",
        optimization_key="val_accuracy",  # the reported and returned metric to maximise
        stopping=experiment.SuccessiveHalving(reduction_factor=2),
        logdir=options.logdir,
    )
    frame = result.to_pandas()
    columns = ["trial", "status", "value", "learning_rate", "units", "dropout", "seconds"]
    print(frame[columns + [name for name in ("reason",) if name in frame]].to_string(index=False))
    print(f"Best: {result.best}")
    print(f"Look at it: {sys.executable} -m experiment tensorboard {result.logdir}")
    spark.stop()


if __name__ == "__main__":
    main()
