"""Differential evolution of a Keras model, with its data and its run on HDFS.

The cluster is that of HADOOP_CONF_DIR, as for any Spark program. Run it with
`python examples/hdfs_search.py` or with spark-submit; `make demo-hdfs` brings an HDFS of its own.
"""

from __future__ import annotations

import argparse
import functools
import getpass
import sys

from pyspark.sql import SparkSession

import experiment


def train(
    learning_rate: float, dropout: float, num_layers: int, digits: str, epochs: int = 5
) -> dict[str, float]:
    """Train a dense network on the digits; return its accuracy on unseen ones."""
    import keras
    import tensorflow as tf

    features = {
        "pixels": tf.io.FixedLenFeature([64], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    table = experiment.data.in_memory(digits, features=features)  # shared by a host's trials
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
        table["pixels"].chunk(0).to_numpy_ndarray(),
        table["label"].chunk(0).to_numpy(),
        epochs=epochs,
        validation_split=0.25,
        callbacks=experiment.keras_callbacks(),
        verbose=2,
    )
    return {"accuracy": history.history["val_accuracy"][-1]}


def put_digits(spark: SparkSession, path: str) -> None:
    """Write scikit-learn's 1,797 handwritten digits to four files of TFRecords."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    rows = list(zip((pixels / 16).tolist(), labels.tolist(), strict=True))
    frame = spark.createDataFrame(rows, "pixels array<float>, label long").repartition(4)
    experiment.data.from_dataframe(frame, path, format="tfrecord")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--popsize", type=int, default=10)
    parser.add_argument("--generations", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--digits", default=f"hdfs:///user/{getpass.getuser()}/digits")
    parser.add_argument("--logdir", help="the folder of all runs; on HDFS when left out")
    options = parser.parse_args()

    spark = (
        SparkSession.builder.appName("search on HDFS")
        .config("spark.ui.showConsoleProgress", "false")  # the search shows its own progress
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    if not experiment.data.exists(f"{options.digits}/_SUCCESS"):
        put_digits(spark, options.digits)
    search_dict = {
        "learning_rate": [0.005, 0.00005],  # high first: a log scale
        "dropout": [0.01, 0.99],
        "num_layers": [1, 3],
    }
    result = experiment.evolutionary_search(
        spark,
        functools.partial(train, digits=options.digits, epochs=options.epochs),
        search_dict,
        direction="max",
        popsize=options.popsize,
        generations=options.generations,
        crossover=0.7,
        mutation=0.5,
        name="digits-on-hdfs",
        logdir=options.logdir,
    )
    columns = ["trial", "status", "value", "learning_rate", "dropout", "num_layers", "seconds"]
    print(result.to_pandas()[columns].to_string(index=False))
    print(f"Best: {result.best}")
    print(f"Look at it: {sys.executable} -m experiment tensorboard {result.logdir}")
    spark.stop()


if __name__ == "__main__":
    main()
