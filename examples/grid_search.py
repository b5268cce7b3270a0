"""Grid search: six Keras models of scikit-learn's 1,797 handwritten digits on Spark executors.

Run it with `python examples/grid_search.py` or with spark-submit.
"""

from __future__ import annotations

import argparse
import functools
import sys

from pyspark.sql import SparkSession

import experiment


def train(learning_rate: float, dropout: float, epochs: int = 10) -> dict[str, float]:
    """Train a convolutional network on the digits; return its accuracy and loss on unseen ones."""
    import keras
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    x, x_val, y, y_val = train_test_split(
        images.reshape(-1, 8, 8, 1) / 16, labels, test_size=0.25, random_state=0
    )
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu"),
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
        callbacks=experiment.keras_callbacks(),
        verbose=2,
    )
    loss, accuracy = model.evaluate(x_val, y_val, verbose=0)
    return {"accuracy": accuracy, "loss": loss}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--logdir", help="the folder of all runs; default: experiments")
    options = parser.parse_args()

    spark = (
        SparkSession.builder.appName("grid search")
        .config("spark.ui.showConsoleProgress", "false")  # the search shows its own progress
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    args_dict = {"learning_rate": [0.001, 0.005, 0.01], "dropout": [0.5, 0.6]}
    result = experiment.launch(
        spark,
        functools.partial(train, epochs=options.epochs),
        args_dict,
        name="digits-grid",
        optimization_key="accuracy",
        logdir=options.logdir,
    )
    columns = ["trial", "status", "value", "learning_rate", "dropout", "metrics.loss", "seconds"]
    print(result.to_pandas().reindex(columns=columns).to_string(index=False))
    print(f"Best: {result.best}")
    print(f"Look at it: {sys.executable} -m experiment tensorboard {result.logdir}")
    spark.stop()


if __name__ == "__main__":
    main()
