"""Functions that workers of a gang run with Keras on JAX, in processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import numpy as np
import psutil

from spark_jobs.strategies.on_jax.on_jax import on_jax
from spark_jobs.strategies.settings import Jax
from tests.spark_jobs.strategies.gang import Worker
from tests.spark_jobs.strategies.mirrored.train_functions import BATCH, compiled, digits, network


def entered(worker: Worker, settings: Jax | None = None) -> Any:
    """Enter the strategy, as a trial of several workers does; one worker needs none."""
    if worker.size == 1:
        return contextlib.nullcontext()
    return on_jax(
        settings or Jax(),
        rank=worker.rank,
        members=worker.members,
        collectives=worker.collectives,
    )


def trained(
    worker: Worker, optimizer: str, normalized: bool | None, samples: int
) -> dict[str, Any]:
    """Return all that `fit`, `evaluate` and `predict` make of digits."""
    with entered(worker):
        images, labels = digits(samples)
        model = compiled(network(normalized), optimizer)
        fitted = model.fit(
            images,
            labels,
            batch_size=BATCH,
            epochs=1,
            verbose=0,
            validation_data=(images[:101], labels[:101]),
        )
        return {
            "weights": model.get_weights(),
            "history": fitted.history,
            "evaluated": model.evaluate(images, labels, batch_size=BATCH, verbose=0),
            "predicted": model.predict(images[:65], batch_size=BATCH, verbose=0),
        }


def other_ways(worker: Worker, folder: str) -> dict[str, Any]:
    """Return what one worker and several make of a data set, single batches and saved weights."""
    with entered(worker):
        import tensorflow as tf

        images, labels = digits(5 * BATCH)
        dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH)
        model = compiled(network(), at_once=2)
        model.fit(dataset, epochs=2, verbose=0)
        loss = model.train_on_batch(images[:BATCH], labels[:BATCH])
        path = f"{folder}/{worker.size}-{worker.rank}.weights.h5"
        model.save_weights(path)
        other = network()
        other.load_weights(path)
        return {
            "weights": model.get_weights(),
            "loss": [float(number) for number in loss],
            "loaded": other.get_weights(),
            "single": model.predict_on_batch(images[:3]),
            "called": np.asarray(model(images[:3])),
        }


def observed(worker: Worker) -> dict[str, Any]:
    """Return what a worker draws at random, where it listens, and the epochs until another stops.

    Worker 1 stops `fit` within its second epoch.
    """
    with entered(worker):
        import keras
        import tensorflow as tf

        class Stop(keras.callbacks.Callback):
            epoch = 0

            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.epoch = epoch

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                if worker.rank == 1 and self.epoch == 1 and batch == 2:
                    self.model.stop_training = True

        dataset = tf.data.Dataset.range(50).shuffle(50)
        orders = [[int(number) for number in dataset] for _ in range(2)]
        drawn = float(np.random.random())
        images, labels = digits(5 * BATCH)
        fitted = compiled(network()).fit(
            images, labels, batch_size=BATCH, epochs=4, verbose=0, callbacks=[Stop()]
        )
        found = psutil.Process().net_connections("inet")
        return {
            "orders": orders,
            "drawn": drawn,
            "epochs": len(fitted.history["loss"]),
            "listens": {each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN},
        }


def killed(worker: Worker) -> str:
    """Let worker 1 be killed between two steps; return the error of the other one."""
    with entered(worker):
        model, batch = compiled(network()), digits(BATCH)
        for step in range(50):
            if worker.rank == 1 and step == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                model.train_on_batch(*batch)
            except Exception as error:
                return str(error)
    return "nothing"
