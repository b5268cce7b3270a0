"""Functions that workers of a gang run with Keras on JAX, in processes of their own."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from typing import Any

import numpy as np
import psutil

from spark_jobs.strategies.on_jax.on_jax import on_jax
from spark_jobs.strategies.settings import Jax
from tests.spark_jobs.strategies.gang import Worker
from tests.spark_jobs.strategies.mirrored.train_functions import (
    BATCH,
    compiled,
    digits,
    fitted,
    network,
)


def entered(worker: Worker, settings: Jax | None = None) -> Any:
    """Enter the strategy, as a trial of several workers does; one worker needs none."""
    if worker.size == 1:
        return contextlib.nullcontext()
    return on_jax(settings or Jax(), worker.collectives, members=worker.members)


def of_large_batches(worker: Worker) -> dict[str, Any]:
    """Return what a worker makes of digits with the optimizers that are made for large batches."""
    with entered(worker):
        return {name: fitted(name, None, 20 * BATCH) for name in ("lamb", "muon")}


def own_ways(worker: Worker) -> dict[str, Any]:
    """Return the weights after steps that the user has written, in `fit` and in a loop."""
    with entered(worker):
        return {"step": _own_step(), "loop": _own_loop(worker)}


CUT = {".*dense.*kernel": (None, "model"), ".*dense.*bias": ("model",)}


def everything(worker: Worker, folder: str) -> dict[str, Any]:
    """Return what a worker makes of digits in several ways, with the same weights at first.

    What only several workers can do differently is None of one.
    """
    random.seed(worker.rank)  # the workers begin with other random numbers
    np.random.seed(worker.rank)
    with entered(worker):
        return {
            "drawn": _drawn() if worker.size > 1 else None,
            "adam": fitted("adam", None, 20 * BATCH),
            "sgd": fitted("sgd", False, 20 * BATCH + 3),
            "other ways": _other_ways(f"{folder}/{worker.size}-{worker.rank}.weights.h5"),
            "seen": _seen(worker) if worker.size > 1 else None,
            "called": np.asarray(compiled(network())(digits(3)[0])),
        }


def _own_step() -> list[Any]:
    """Return the weights after steps of a `train_step` as Keras' guide for JAX writes it."""
    import jax
    import keras

    class Own(keras.Sequential):  # type: ignore[misc]  # Keras has no types
        def train_step(self, state: Any, data: Any) -> Any:
            trainable, fixed, of_optimizer, metrics = state
            images, labels = data

            def loss(trainable: Any, fixed: Any) -> Any:
                predicted, fixed = self.stateless_call(trainable, fixed, images, training=True)
                return self.compute_loss(images, labels, predicted), fixed

            found, gradients = jax.value_and_grad(loss, has_aux=True)(trainable, fixed)
            trainable, of_optimizer = self.optimizer.stateless_apply(
                of_optimizer, gradients, trainable
            )
            return {"loss": found[0]}, (trainable, found[1], of_optimizer, metrics)

    model = compiled(Own(network().layers))
    model.fit(*digits(20 * BATCH), batch_size=BATCH, verbose=0)
    return list(model.get_weights())


def _own_loop(worker: Worker) -> list[Any]:
    """Return the weights after a loop as Keras' guide for JAX writes it.

    Each worker has a part of each batch, as JAX's guide for several processes says.
    """
    import jax
    import keras

    model, optimizer = network(), keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    devices = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
    spread = jax.sharding.NamedSharding(devices, jax.sharding.PartitionSpec("batch"))

    def loss(trainable: Any, fixed: Any, images: Any, labels: Any) -> Any:
        predicted, fixed = model.stateless_call(trainable, fixed, images, training=True)
        return losses(labels, predicted), fixed

    @jax.jit
    def step(trainable: Any, fixed: Any, of_optimizer: Any, batch: Any) -> Any:
        found, gradients = jax.value_and_grad(loss, has_aux=True)(trainable, fixed, *batch)
        trainable, of_optimizer = optimizer.stateless_apply(of_optimizer, gradients, trainable)
        return trainable, found[1], of_optimizer

    state = [
        [variable.value for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            optimizer.variables,
        )
    ]
    data = digits(20 * BATCH)
    for begin in range(0, 20 * BATCH, BATCH):
        parts = [array[begin : begin + BATCH][worker.rank :: worker.size] for array in data]
        batch = [jax.make_array_from_process_local_data(spread, part) for part in parts]
        state = step(*state, batch)
    return [np.asarray(weight) for weight in state[0]]


def cut(worker: Worker, folder: str) -> dict[str, Any]:
    """Return the same of a model that is cut over the workers, and the shapes of its parts."""
    with entered(worker, Jax(layout=CUT)):
        model = compiled(network())
        model.fit(*digits(BATCH), verbose=0)
        variables = [*model.weights, *model.optimizer.variables]
        return {
            "adam": fitted("adam", None, 20 * BATCH),
            "other ways": _other_ways(f"{folder}/{worker.rank}-cut.weights.h5"),
            "parts": [_shape_of_part(variable) for variable in variables],
            "refused": _refused(),
        }


def _shape_of_part(variable: Any) -> tuple[int, ...]:
    (part,) = variable.value.addressable_shards
    return tuple(part.data.shape)


def _other_ways(path: str) -> dict[str, Any]:
    """Train on a data set, in several steps at once, and on a batch; save the weights."""
    import tensorflow as tf

    images, labels = digits(5 * BATCH)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH)
    model = compiled(network(), at_once=2)
    model.fit(dataset, epochs=2, verbose=0)
    loss = model.train_on_batch(images[:BATCH], labels[:BATCH])
    model.save_weights(path)
    other = network()
    other.load_weights(path)
    return {
        "weights": model.get_weights(),
        "loss": [float(number) for number in loss],
        "loaded": other.get_weights(),
        "single": model.predict_on_batch(images[:3]),
    }


def _seen(worker: Worker) -> dict[str, Any]:
    """Return what a worker draws at random, where it listens, and the epochs until another stops.

    Worker 1 stops `fit` within its second epoch.
    """
    import keras

    class Stop(keras.callbacks.Callback):
        epoch = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if worker.rank == 1 and self.epoch == 1 and batch == 2:
                self.model.stop_training = True

    images, labels = digits(5 * BATCH)
    fitted = compiled(network()).fit(
        images, labels, batch_size=BATCH, epochs=4, verbose=0, callbacks=[Stop()]
    )
    found = psutil.Process().net_connections("inet")
    return {
        "epochs": len(fitted.history["loss"]),
        "listens": {each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN},
    }


def _drawn() -> dict[str, Any]:
    """Return random numbers, and the orders in which a data set without a seed comes."""
    import tensorflow as tf

    dataset = tf.data.Dataset.range(50).shuffle(50)
    orders = [[int(number) for number in dataset] for _ in range(2)]
    return {"orders": orders, "numbers": [random.random(), float(np.random.random())]}


def _refused() -> str:
    """Return the error of a model whose weights the layout does not name."""
    import keras

    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(10, name="last")])
    try:
        compiled(model).fit(*digits(BATCH), verbose=0)
    except Exception as error:
        return str(error)
    return ""


def ended_earlier(worker: Worker) -> str:
    """Return the error of worker 0, whose generator ends a batch earlier than that of worker 1."""
    from spark_jobs.communicator.membership import MembersDisagree

    x, y = digits(5 * BATCH)
    starts = range(0, (4 + worker.rank) * BATCH, BATCH)
    try:
        with worker.connected(Jax(unprotected=True)):
            batches = ((x[start : start + BATCH], y[start : start + BATCH]) for start in starts)
            compiled(network()).fit(batches, verbose=0)
    except MembersDisagree as error:
        return str(error)
    return "nothing"


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


def late(worker: Worker) -> None:
    """Enter the strategy after an operation of JAX, as with a preloaded module that runs one."""
    import jax

    jax.numpy.zeros(1)
    with entered(worker):
        pass
