"""Differential evolution of a Keras model of scikit-learn's 1,797 handwritten digits.

Run it with `python examples/evolutionary_search.py` or with spark-submit.
"""

from __future__ import annotations

import argparse
import functools
import sys

from pyspark.sql import SparkSession

import experiment


def train(
    learning_rate: float, dropout: float, num_layers: int, epochs: int = 5
) -> dict[str, float]:
    """Train a dense network on the digits; return its accuracy on unseen ones."""
    import keras
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits, labels = load_digits(return_X_y=True)
    x, x_val, y, y_val = train_test_split(digits / 16, labels, test_size=0.25, random_state=0)
    model = keras.Sequential([keras.layers.Input((64,))])
    for _ in range(num_layers):
        model.add(keras.layers.Dense(64, activation="relu"))
        model.add(keras.layers.Dropout(dropout))
    model.add(keras.layers.Dense(10, activation="softmax"))
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    history = model.fit(
        x,
        y,
        epochs=epochs,
        validation_data=(x_val, y_val),
        callbacks=experiment.keras_callbacks(),
        verbose=2,
    )
    return {"accuracy": history.history["val_accuracy"][-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--popsize", type=int, default=10)
    parser.add_argument("--generations", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--logdir", help="the folder of all runs; default: experiments")
    options = parser.parse_args()

    spark = (
        SparkSession.builder.appName("evolutionary search")
        .config("spark.ui.showConsoleProgress", "false")  # the search shows its own progress
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    search_dict = {
        "learning_rate": [0.005, 0.00005],  # high first: a log scale
        "dropout": [0.01, 0.99],
        "num_layers": [1, 3],
    }
    result = experiment.evolutionary_search(
        spark,
        functools.partial(train, epochs=options.epochs),
        search_dict,
        direction="max",
        popsize=options.popsize,
        generations=options.generations,
        crossover=0.7,
        mutation=0.5,
        generational=True,
        name="digits-evolution",
        seed=options.seed,
        logdir=options.logdir,
    )
    columns = ["trial", "status", "value", "learning_rate", "dropout", "num_layers", "seconds"]
    print(result.to_pandas()[columns].to_string(index=False))
    print(f"Best: {result.best}")
    print(f"Look at it: {sys.executable} -m experiment tensorboard {result.logdir}")
    spark.stop()


if __name__ == "__main__":
    main()
