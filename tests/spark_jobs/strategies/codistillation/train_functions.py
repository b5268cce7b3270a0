"""What workers of a gang run under `Codistillation`; see `tests.spark_jobs.strategies.gang`."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from search.errors import InvalidArgument
from spark_jobs.strategies.settings import Codistillation
from tests.spark_jobs.strategies.gang import Worker

CLASSES = 3
RATE = 0.5
WEIGHT = 2.0


def batch(rank: int) -> tuple[Any, Any]:
    """Return the only batch of a worker."""
    numbers = np.random.default_rng(rank)
    return numbers.normal(size=(8, 4)).astype("float32"), numbers.integers(0, CLASSES, 8)


def matrix(rank: int) -> Any:
    """Return a worker's initial weights."""
    return np.random.default_rng(100 + rank).normal(size=(4, CLASSES)).astype("float32")


def build(rank: int, kind: str, rate: float = RATE) -> Any:
    """Return a compiled model with a worker's initial weights.

    Args:
        rank: The worker's rank.
        kind: What it predicts: 'logits' or 'probabilities' of the classes, one of which is true,
            'labels', the probability of each class by itself, as a functional model, 'normalized'
            for logits of the batch of rank 0 after an adapted layer, or 'own class' for a model of
            one that predicts logits.
        rate: The learning rate.
    """
    import keras

    activation = {"probabilities": "softmax", "labels": "sigmoid"}.get(kind)
    dense = keras.layers.Dense(CLASSES, activation=activation, use_bias=False)
    if kind == "labels":
        pixels = keras.Input((4,))
        model = keras.Model(pixels, dense(pixels))
    elif kind == "own class":
        model = own_class(configured=True)
        model(np.zeros((1, 4)))  # makes its weights
    elif kind == "normalized":
        adapted = keras.layers.Normalization()
        adapted.adapt(batch(0)[0])
        model = keras.Sequential([keras.layers.Input((4,)), adapted, dense])
    else:
        model = keras.Sequential([keras.layers.Input((4,)), dense])
    model.weights[-1].assign(matrix(rank))
    losses = {
        "probabilities": "sparse_categorical_crossentropy",
        "labels": "binary_crossentropy",
    }
    logits = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(rate), losses.get(kind, logits))
    return model


def own_class(configured: bool) -> Any:
    """Return a model of a class of the user's own, with a configuration for Keras or without."""
    import keras

    class Own(keras.Model):  # type: ignore[misc]  # Keras has no types
        def __init__(self, units: int) -> None:
            super().__init__(name="own")
            self.dense = keras.layers.Dense(units, use_bias=False)

        def call(self, x: Any) -> Any:
            return self.dense(x)

    class Configured(Own):
        def get_config(self) -> dict[str, Any]:
            return {"units": self.dense.units}

    return Configured(CLASSES) if configured else Own(CLASSES)


def waiting(wait_at: int, *files: Path) -> Any:
    """Return a callback that waits for files before a step, counted from 0."""
    import keras

    class Waiting(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == wait_at:
                for file in files:
                    wait_for(file)

    return Waiting()


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.01)


def taught_in_the_third_step(
    worker: Worker, folder: str, kind: str, floatx: str, teachers: int
) -> dict[str, Any]:
    """Train rank 0 three steps, the last one with the teachers' models, which learn nothing.

    Args:
        worker: The worker.
        folder: A folder of all workers.
        kind: What the models predict, see `build`.
        floatx: The type of the weights.
        teachers: The number of workers from rank 1 on that publish weights; others do not.
    """
    import keras

    keras.config.set_floatx(floatx)
    published = [Path(folder, f"published {rank}") for rank in range(teachers + 1)]

    class Tell(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            published[worker.rank].touch()

    x, y = batch(worker.rank)
    if kind == "labels":
        y = np.eye(CLASSES, dtype="float32")[y]
    settings = Codistillation(every=1, weight=WEIGHT, burn_in=2)
    with worker.connected(settings) as communicator:
        model = build(worker.rank, kind, RATE if worker.rank == 0 else 0.0)
        own = [waiting(1, *published[1:])] if worker.rank == 0 else [Tell()]
        epochs = 3 if worker.rank <= teachers else 0
        fitted = model.fit(
            x, y, batch_size=8, epochs=epochs, validation_data=(x, y), callbacks=own, verbose=0
        )
        communicator.barrier()
    if not epochs:
        return {}
    return {
        "weights": model.get_weights()[-1],
        "loss": fitted.history["loss"][-1],
        "val_loss": fitted.history["val_loss"][-1],
        "evaluated": model.evaluate(x, y, verbose=0),
    }


def one_that_ends(worker: Worker, folder: str) -> Any:
    """Return the weights of rank 0 after four steps, the last three after rank 1 has left the gang.

    Rank 1 makes one step, in which it learns nothing, and leaves once rank 0 has seen its model.
    """
    import keras

    published, seen, left = (Path(folder, name) for name in ("published", "seen", "left"))

    class Tell(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                seen.touch()

    x, y = batch(worker.rank)
    settings = Codistillation(every=1, weight=WEIGHT, burn_in=0)
    with worker.connected(settings):
        model = build(worker.rank, "logits", RATE if worker.rank == 0 else 0.0)
        if worker.rank == 1:
            model.fit(x, y, batch_size=8, epochs=1, verbose=0)
            published.touch()
            wait_for(seen)
        else:
            own = [waiting(0, published), Tell(), waiting(1, left)]
            model.fit(x, y, batch_size=8, epochs=4, callbacks=own, verbose=0)
    if worker.rank == 1:
        left.touch()
    return model.get_weights()[0]


def refused(worker: Worker, compiled: str) -> str:
    """Return why another loss is refused."""
    x, y = batch(worker.rank)
    with worker.connected(Codistillation()):
        model = build(worker.rank, "logits")
        model.compile(loss=compiled)
        try:
            model.fit(x, y, verbose=0)
        except InvalidArgument as error:
            return str(error)
    return ""


def refused_model(worker: Worker, kind: str) -> str:
    """Return why a model is refused that Keras does not copy.

    Args:
        worker: The worker.
        kind: 'own class' for one without a configuration, 'spare layer' for a layer that is not
            among those from the input to the output, so that its weights are not copied.
    """
    import keras

    if kind == "own class":
        model = own_class(configured=False)
    else:
        pixels = keras.Input((4,))
        model = keras.Model(pixels, keras.layers.Dense(CLASSES)(pixels), name="own")
        model.spare = keras.layers.Dense(1)
        model.spare.build((None, CLASSES))
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with worker.connected(Codistillation()):
        try:
            model.fit(*batch(worker.rank), verbose=0)
        except InvalidArgument as error:
            return str(error)
    return ""


def nothing_taught(worker: Worker) -> list[list[str]]:
    """Return the warnings of three trainings: too short, long enough, of no step."""
    x, y = batch(worker.rank)
    found = []
    with worker.connected(Codistillation(every=2, burn_in=3)) as communicator:
        for epochs in (4, 5, 0):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = build(worker.rank, "logits")
                own = [together(communicator)]
                model.fit(x, y, batch_size=8, epochs=epochs, callbacks=own, verbose=0)
            found.append([str(each.message) for each in caught if "taught" in str(each.message)])
    return found


def together(communicator: Any) -> Any:
    """Return a callback that lets the workers begin each step together."""
    import keras

    class Together(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            communicator.barrier()

    return Together()


def refused_loss(worker: Worker) -> str:
    """Return why a model is refused whose own loss does not learn from Keras that it is trained."""
    import keras

    class Own(keras.Sequential):  # type: ignore[misc]  # Keras has no types
        def compute_loss(
            self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None
        ) -> Any:
            return super().compute_loss(x, y, y_pred, sample_weight)

    x, y = batch(worker.rank)
    with worker.connected(Codistillation()):
        model = Own([keras.layers.Input((4,)), *build(worker.rank, "logits").layers])
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        try:
            model.fit(x, y, verbose=0)
        except InvalidArgument as error:
            return str(error)
    return ""


def own_train_steps(worker: Worker) -> tuple[str, list[str]]:
    """Return the error of a train step that calls its loss without x, and what one without says."""
    import keras

    class WithoutInput(keras.Sequential):  # type: ignore[misc]  # Keras has no types
        def train_step(self, data: Any) -> Any:
            x, y = data
            return {"loss": self.compute_loss(y=y, y_pred=self(x, training=True))}

    class WithoutLoss(keras.Sequential):  # type: ignore[misc]  # Keras has no types
        def train_step(self, data: Any) -> Any:
            return {"loss": keras.ops.mean(self(data[0], training=True))}

    def fit(kind: Any) -> None:
        model = kind([keras.layers.Input((4,)), *build(worker.rank, "logits").layers])
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(*batch(worker.rank), epochs=2, verbose=0)

    error = ""
    with worker.connected(Codistillation(every=1, burn_in=0)):
        try:
            fit(WithoutInput)
        except InvalidArgument as raised:
            error = str(raised)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit(WithoutLoss)
    return error, [text for each in caught if "codistillation" in (text := str(each.message))]


def no_longer_kept(worker: Worker) -> int:
    """Return the number of published arrays that are kept after four trainings."""
    x, y = batch(worker.rank)
    with worker.connected(Codistillation(every=1, burn_in=0)) as communicator:
        for _ in range(4):
            build(worker.rank, "logits").fit(x, y, batch_size=8, verbose=0)
        return len(communicator._home._published)
