"""A training loop of your own on several workers: the digits by TensorFlow's `tf.distribute`.

The loop is that of TensorFlow's guide, and runs on one worker, too. Run it with
`python examples/custom_loop.py` or with spark-submit.
"""

from __future__ import annotations

import argparse
import functools
import sys
from typing import Any

from pyspark.sql import SparkSession

import experiment

BATCH = 64  # samples of all workers together


def train(learning_rate: float, epochs: int = 5) -> float:
    """Train a network on the digits; return its accuracy on them."""
    import keras
    import tensorflow as tf
    from sklearn.datasets import load_digits

    strategy = tf.distribute.get_strategy()  # TensorFlow's default one on a single worker
    keras.utils.set_random_seed(0)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images))
    batches = strategy.experimental_distribute_dataset(dataset.batch(BATCH, drop_remainder=True))

    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    optimizer = keras.optimizers.SGD(learning_rate, momentum=0.9)
    optimizer.build(model.trainable_variables)
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def of_replica(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            each = losses(labels, model(images, training=True))
            loss = tf.nn.compute_average_loss(each, global_batch_size=BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step(batch: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(of_replica, args=batch), axis=None)

    for epoch in range(epochs):
        for batch in batches:
            loss = step(batch)
        experiment.report(step=epoch, loss=float(loss))  # of rank 0
    predicted = model(images).numpy().argmax(axis=1)
    return float((predicted == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--logdir", help="the folder of all runs; default: experiments")
    options = parser.parse_args()

    spark = (
        SparkSession.builder.appName("custom loop")
        .config("spark.ui.showConsoleProgress", "false")  # the training shows its own progress
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    trial = experiment.distributed_training(
        spark,
        functools.partial(train, epochs=options.epochs),
        {"learning_rate": 0.1},
        workers=options.workers,
        # TensorFlow of each worker listens without a password: between hosts, close its port.
        strategy=experiment.Mirrored(unprotected=True),
        name="digits-loop",
        logdir=options.logdir,
    )
    if trial.value is None:  # after Ctrl-C
        sys.exit(f"The training was {trial.status}.")
    print(f"Accuracy on {options.workers} workers: {trial.value:.3f}")
    print(f"Look at it: {sys.executable} -m experiment tensorboard {trial.logdir}")
    spark.stop()


if __name__ == "__main__":
    main()
