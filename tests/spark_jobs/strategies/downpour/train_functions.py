"""What workers of a gang run under `Downpour`; see `tests.spark_jobs.strategies.gang`."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import numpy as np

from search.errors import ExperimentError, InvalidArgument
from spark_jobs.strategies.settings import Downpour
from spark_jobs.strategies.sharding import part_of
from tests.spark_jobs.strategies.gang import Worker

BATCH = 16
STEPS = 4
"""Steps of each of two workers in an epoch."""


def digits(worker: Worker) -> tuple[Any, Any]:
    """Return the worker's part of the first digits."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    samples = STEPS * BATCH * worker.size
    found = (pixels[:samples] / 16).astype("float32"), labels[:samples]
    return part_of(found, worker.rank, worker.size)


def build(seed: int = 0, *, normalized: bool = False, momentum: float = 0.0) -> Any:
    import keras

    keras.utils.set_random_seed(seed)
    norm = [keras.layers.BatchNormalization(name="norm")] if normalized else []
    layers = [keras.layers.Input((64,)), *norm, keras.layers.Dense(8, activation="relu")]
    model = keras.Sequential([*layers, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=momentum), loss)
    return model


def curves() -> Any:
    """Return a callback that keeps the logs of each epoch, like that of `keras_callbacks`."""
    import keras

    class Curves(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_begin(self, logs: Any = None) -> None:
            self.logs: list[dict[str, float]] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.logs.append(dict(logs))

    return Curves()


def alone_and_together(worker: Worker, settings: dict[str, Any]) -> dict[str, Any]:
    """Train the same model by itself, then with the others, which begin with other weights."""
    x, y = digits(worker)
    options = {"batch_size": BATCH, "epochs": 2, "verbose": 0, "shuffle": False}
    single = build()
    initial = single.get_weights()
    single.fit(x, y, **options)
    with worker.connected(Downpour(**settings)):
        model = build(worker.rank)
        kept = curves()
        history = model.fit(x, y, callbacks=[kept], **options).history
    return {
        "initial": initial,
        "alone": single.get_weights(),
        "together": model.get_weights(),
        "curves": kept.logs,
        "history": list(history),
    }


def one_that_is_slow(worker: Worker, folder: str) -> list[int]:
    """Let rank 1 wait in a step until rank 0 has made all of its own; return the epochs."""
    import keras

    done = Path(folder, "done")
    epochs = 3

    class Wait(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            while worker.rank == 1 and not done.exists():
                time.sleep(0.01)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if worker.rank == 0 and epoch == epochs - 1:
                done.touch()

    x, y = digits(worker)
    with worker.connected(Downpour(fetch_every=1, push_every=1)):
        options = {"batch_size": BATCH, "epochs": epochs, "verbose": 0, "callbacks": [Wait()]}
        return list(build().fit(x, y, **options).epoch)


def left_by_an_error(worker: Worker) -> str:
    """Let rank 1 leave `fit` by an error that it catches, and meet rank 0 after its training.

    Returns:
        The error of the worker.
    """
    import keras

    class Left(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if worker.rank == 1:
                raise ZeroDivisionError

    x, y = digits(worker)
    try:
        with worker.connected(Downpour()) as communicator:
            with contextlib.suppress(ZeroDivisionError):
                build().fit(x, y, batch_size=BATCH, verbose=0, callbacks=[Left()])
            communicator.meet()  # as after each repeat
    except ExperimentError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def stopped_by_one(worker: Worker, stopping: int, when: str) -> dict[str, Any]:
    """Let a callback of one worker end `fit`; the others would train for ever."""
    import keras

    class Stop(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._stop(self.epoch == 1 and batch == 1, "batch")

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._stop(epoch == 1, "epoch")

        def _stop(self, here: bool, kind: str) -> None:
            if worker.rank == stopping and here and kind == when:
                self.model.stop_training = True

    x, y = digits(worker)
    with worker.connected(Downpour()):
        model = build()
        fitted = model.fit(x, y, batch_size=BATCH, epochs=1_000_000, verbose=0, callbacks=[Stop()])
    return {"epochs": len(fitted.epoch), "weights": model.get_weights()}


def normalized(worker: Worker) -> dict[str, Any]:
    """Return the moving statistics of batch normalization before the end of `fit`, and after."""
    import keras

    own = []

    class Keep(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            layer = self.model.get_layer("norm")
            own[:] = [np.array(layer.moving_mean), np.array(layer.moving_variance)]

    x, y = digits(worker)
    with worker.connected(Downpour()):
        model = build(normalized=True)
        model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, callbacks=[Keep()])
    layer = model.get_layer("norm")
    return {
        "own": own,
        "after": [np.array(layer.moving_mean), np.array(layer.moving_variance)],
        "weights": model.get_weights(),
    }


def frozen(worker: Worker) -> list[Any]:
    """Return the weights of a layer that is not trained, before `fit` and after it."""
    x, y = digits(worker)
    with worker.connected(Downpour()):
        model = build()
        model.layers[0].trainable = False
        model.compile("sgd", model.loss)
        before = model.layers[0].get_weights()
        model.fit(x, y, batch_size=BATCH, verbose=0)
    return [before, model.layers[0].get_weights()]


def rounded(worker: Worker) -> list[float]:
    """Return the weights, of 16 bits, to which a change of each worker is added in the first step.

    Nothing is learnt: in the other steps the workers only exchange their weights.
    """
    import keras

    x, y = digits(worker)
    with worker.connected(Downpour(fetch_every=1, push_every=1)) as communicator:

        class Change(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if batch == 0:
                    changed = [1 - 1 / 256, 1 + 1 / 64, 1.0][worker.rank]
                    self.model.set_weights([np.full((64, 1), changed)])
                else:
                    communicator.barrier()

        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", dtype="bfloat16")
        model = keras.Sequential([keras.layers.Input((64,)), dense])
        model.compile(keras.optimizers.SGD(0.0), "mse")
        model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[Change()])
        return [float(number) for number in np.unique(model.get_weights()[0])]


def fitted_in_other_ways(worker: Worker) -> list[Any]:
    """Return the weights after a `fit` with several steps in one call, then with Keras' own list.

    A callback that sets weights at the end of `fit` comes after the others have been waited for.
    """
    import keras

    class Own(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_end(self, logs: Any = None) -> None:
            for weights in self.model.weights:
                weights.assign(keras.ops.full(weights.shape, worker.rank + 1.0))

    class Model(keras.Sequential):  # type: ignore[misc]  # Keras has no types
        def fit(self, *args: Any, **kwargs: Any) -> Any:
            return super().fit(*args, **kwargs)

    x, y = digits(worker)
    found = []
    with worker.connected(Downpour(fetch_every=2, push_every=3, rule="downpour")):
        model = Model(build(momentum=0.9).layers)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(), loss, steps_per_execution=2)
        model.fit(x, y, BATCH, 2, verbose=0)
        found.append(model.get_weights())
        given = keras.callbacks.CallbackList([Own()], add_history=True, model=model, epochs=2)
        history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, callbacks=given)
        found.append(model.get_weights())
    return [*found, sorted(history.history)]


def restored(worker: Worker) -> list[Any]:
    """Return the final weights if a callback restores others, and nothing is learnt from them."""
    import keras

    class Restore(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_begin(self, logs: Any = None) -> None:
            for weights in self.model.weights:
                weights.assign(keras.ops.ones(weights.shape))

    x, y = digits(worker)
    with worker.connected(Downpour()):
        model = build(worker.rank)
        model.optimizer.learning_rate = 0.0
        model.fit(x, y, batch_size=BATCH, epochs=4, verbose=0, callbacks=[Restore()])
        return model.get_weights()


def built_by_fit(worker: Worker, data: str) -> list[Any]:
    """Train a model that has no weights before `fit`; return those after it."""
    with worker.connected(Downpour()):
        import keras

        seen = []
        count = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: seen.append(batch)
        )
        x, y = digits(worker)
        model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(10)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        batches = [(x[start : start + BATCH], y[start : start + BATCH]) for start in (0, BATCH)]
        if data == "generator":
            model.fit((batch for batch in batches), verbose=0, callbacks=[count])
        else:
            model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[count])
        assert seen == list(range(2 if data == "generator" else STEPS))
        return model.get_weights()


def own_step(worker: Worker) -> list[Any]:
    """Train a model with a step of its own, and without `call`, as an autoencoder's may be."""
    with worker.connected(Downpour()):
        import keras
        import tensorflow as tf

        class Own(keras.Model):  # type: ignore[misc]  # Keras has no types
            def __init__(self) -> None:
                super().__init__()
                self.part = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(1)])

            def train_step(self, batch: Any) -> dict[str, Any]:
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(self.part(batch[0]) ** 2)
                weights = self.trainable_weights
                self.optimizer.apply_gradients(
                    zip(tape.gradient(loss, weights), weights, strict=True)
                )
                return {"loss": loss}

        model = Own()
        model.compile("sgd")
        model.fit(*digits(worker), batch_size=BATCH, verbose=0)
        return model.get_weights()


def own_weights(worker: Worker) -> list[Any]:
    """Train a model that makes a weight of its own when Keras builds it, beside a built layer."""
    with worker.connected(Downpour()):
        import keras

        class Own(keras.Model):  # type: ignore[misc]  # Keras has no types
            def __init__(self) -> None:
                super().__init__()
                self.part = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(10)])

            def build(self, shape: Any) -> None:
                self.shift = self.add_weight(shape=(10,))

            def call(self, x: Any) -> Any:
                return self.part(x) + self.shift

        model = Own()
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(*digits(worker), batch_size=BATCH, verbose=0)
        return model.get_weights()


def complex_weights(worker: Worker) -> list[complex]:
    """Return the complex numbers of a model that does not train them."""
    with worker.connected(Downpour()):
        import keras

        class Constant(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
            def build(self, shape: Any) -> None:
                self.number = self.add_weight(shape=(), dtype="complex64", trainable=False)
                self.number.assign(1 + 2j)
                super().build(shape)

            def call(self, x: Any) -> Any:
                return x

        model = keras.Sequential([keras.layers.Input((64,)), Constant(), keras.layers.Dense(10)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(*digits(worker), verbose=0)
        return [complex(w) for w in model.get_weights() if np.iscomplexobj(w)]


def no_longer_kept(worker: Worker) -> int:
    """Return the number of chunks that are kept after two trainings."""
    x, y = digits(worker)
    with worker.connected(Downpour()) as communicator:
        for _ in range(2):
            build().fit(x, y, batch_size=BATCH, verbose=0)
        return len(communicator._home._chunks)


def refused(worker: Worker) -> list[str]:
    """Return why optimizers that average their weights are refused, one of them in another."""
    import keras

    x, y = digits(worker)
    averaging = keras.optimizers.SGD(0.1, use_ema=True)
    found = []
    with worker.connected(Downpour()):
        for optimizer in (averaging, keras.optimizers.LossScaleOptimizer(averaging)):
            model = build()
            model.optimizer = optimizer
            try:
                model.fit(x, y, batch_size=BATCH, verbose=0)
            except InvalidArgument as error:
                found.append(str(error))
    return found


def adapted_by_rank_0(worker: Worker) -> Any:
    """Return the predictions of a model with a layer that rank 0 alone has adapted to the data."""
    import keras

    x, y = digits(worker)
    adapted = keras.layers.Normalization()
    model = keras.Sequential([keras.layers.Input((64,)), adapted, keras.layers.Dense(1)])
    if worker.rank == 0:
        adapted.adapt(x)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    with worker.connected(Downpour()):
        model.fit(x, y, batch_size=BATCH, verbose=0)
    return keras.ops.convert_to_numpy(model(np.ones((1, 64))))
