"""One model on two executors' slots: a Keras model of 1,797 handwritten digits, then a search.

`train` says nothing of workers: it runs on one as it does on several, with the same batch size and
learning rate, and gives the same model. Run it with `python examples/distributed_training.py` or
with spark-submit. The digits are few, so two workers take longer here than one: steps of more than
100 ms gain.
"""

from __future__ import annotations

import argparse
import functools
import sys

from pyspark.sql import SparkSession

import experiment


def train(learning_rate: float, epochs: int = 5) -> dict[str, float]:
    """Train a convolutional network on the digits; return its accuracy and loss on unseen ones."""
    import keras
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    keras.utils.set_random_seed(0)
    images, labels = load_digits(return_X_y=True)
    x, x_val, y, y_val = train_test_split(
        images.reshape(-1, 8, 8, 1) / 16, labels, test_size=0.25, random_state=0
    )
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            # as of one worker: without `synchronized`, each normalizes its part of a batch
            keras.layers.BatchNormalization(synchronized=True),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(learning_rate, momentum=0.9),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    samples = len(x) // 64 * 64  # whole batches, which the workers divide evenly
    model.fit(
        x[:samples],
        y[:samples],
        batch_size=64,  # of all workers together
        epochs=epochs,
        validation_data=(x_val, y_val),
        callbacks=[
            *experiment.keras_callbacks(),
            # if a worker is lost, all resume after the last epoch
            keras.callbacks.BackupAndRestore(experiment.checkpoint_dir()),
        ],
        verbose=2,
    )
    loss, accuracy = model.evaluate(x_val, y_val, verbose=0)
    return {"accuracy": accuracy, "loss": loss}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--logdir", help="the folder of all runs; default: experiments")
    options = parser.parse_args()

    spark = (
        SparkSession.builder.appName("distributed training")
        .config("spark.ui.showConsoleProgress", "false")  # the search shows its own progress
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    function = functools.partial(train, epochs=options.epochs)
    # TensorFlow of each worker listens without a password: between hosts, close its port to others.
    strategy = experiment.Mirrored(unprotected=True)
    for workers in (1, 2):
        trial = experiment.distributed_training(
            spark,
            function,
            {"learning_rate": 0.1},
            workers=workers,
            strategy=strategy,
            name=f"digits-on-{workers}",
            optimization_key="accuracy",
            logdir=options.logdir,
        )
        if trial.value is None:  # after Ctrl-C
            sys.exit(f"The training was {trial.status}.")
        metrics = trial.metrics
        print(f"Workers: {workers}; accuracy {metrics['accuracy']:.3f}, loss {metrics['loss']:.4f}")

    result = experiment.launch(
        spark,
        function,
        {"learning_rate": [0.05, 0.1, 0.2]},
        workers_per_trial=2,
        strategy=strategy,
        name="digits-on-two",
        optimization_key="accuracy",
        logdir=options.logdir,
    )
    columns = ["trial", "status", "value", "learning_rate", "metrics.loss", "seconds"]
    print(result.to_pandas()[columns].to_string(index=False))
    print(f"Best: {result.best}")
    print(f"Look at it: {sys.executable} -m experiment tensorboard {result.logdir}")
    spark.stop()


if __name__ == "__main__":
    main()
