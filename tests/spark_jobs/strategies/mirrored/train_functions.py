"""Functions that workers of a gang run, in processes of their own."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import socket
import threading
import time
import warnings
from typing import Any

import numpy as np

from spark_jobs.strategies.mirrored.batches import Parts
from spark_jobs.strategies.mirrored.one_address import addresses_of_host
from spark_jobs.strategies.settings import Mirrored
from tests.spark_jobs.strategies.gang import Worker

BATCH = 64


def digits(samples: int) -> tuple[Any, Any]:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return (pixels / 16).astype("float32")[:samples], labels[:samples]


def network(normalized: bool | None = None, name: str = "norm") -> Any:
    """Return a small network with equal weights in each call.

    Args:
        normalized: Whether its batch normalization is synchronized; None for none.
        name: The name of that layer.
    """
    import keras

    keras.utils.set_random_seed(7)
    norm = (
        []
        if normalized is None
        else [keras.layers.BatchNormalization(synchronized=normalized, name=name)]
    )
    layers = [keras.layers.Input((64,)), keras.layers.Dense(32, activation="relu"), *norm]
    return keras.Sequential([*layers, keras.layers.Dense(10)])


def compiled(model: Any, optimizer: str = "sgd", at_once: int = 1) -> Any:
    """Compile a model for the digits, with a number of steps per execution; return it."""
    import keras

    made = {
        "sgd": keras.optimizers.SGD(0.1, momentum=0.9),
        "adam": keras.optimizers.Adam(1e-3),
        "lamb": keras.optimizers.Lamb(1e-3),
        "muon": keras.optimizers.Muon(1e-3),
    }
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(made[optimizer], loss, metrics=["accuracy"], steps_per_execution=at_once)
    return model


def trained(
    worker: Worker, optimizer: str, normalized: bool | None, samples: int
) -> dict[str, Any]:
    """Return all that `fit`, `evaluate` and `predict` make of digits; the user's warnings, too."""
    with warnings.catch_warnings(record=True) as seen, worker.mirrored():
        warnings.simplefilter("always")
        found = fitted(optimizer, normalized, samples)
        told = [str(item.message) for item in seen if item.category is UserWarning]
        return {**found, "warnings": told}


def fitted(optimizer: str, normalized: bool | None, samples: int) -> dict[str, Any]:
    """Return all that `fit`, `evaluate` and `predict` make of digits, under any strategy."""
    images, labels = digits(samples)
    model = compiled(network(normalized), optimizer)
    history = model.fit(
        images,
        labels,
        batch_size=BATCH,
        verbose=0,
        validation_data=(images[:101], labels[:101]),
    ).history
    return {
        "weights": model.get_weights(),
        "history": history,
        "evaluated": model.evaluate(images, labels, batch_size=BATCH, verbose=0),
        "predicted": model.predict(images[:65], batch_size=BATCH, verbose=0),
    }


def trained_with(worker: Worker) -> dict[str, dict[str, Any]]:
    """Return the weights, and the loss of training and validation, of several ways to compile."""
    with worker.mirrored():
        import keras

        def mean(labels: Any, predicted: Any) -> Any:
            each = keras.losses.sparse_categorical_crossentropy(labels, predicted, from_logits=True)
            return keras.ops.mean(each)

        sgd, losses = keras.optimizers.SGD, keras.losses
        usual = losses.SparseCategoricalCrossentropy(from_logits=True)
        rates = keras.optimizers.schedules.CosineDecay(0.01, 9, warmup_target=0.1, warmup_steps=2)
        # The norm of a gradient is about 1.5 here.
        made = {
            "clipnorm": (sgd(0.1, clipnorm=0.5), usual),
            "global_clipnorm": (sgd(0.1, global_clipnorm=0.5), usual),
            "clipvalue": (sgd(0.1, clipvalue=0.01), usual),
            "one number": (sgd(0.1), mean),
            "accumulated": (sgd(rates, gradient_accumulation_steps=2, global_clipnorm=0.5), usual),
            "averaged": (sgd(rates, use_ema=True, ema_overwrite_frequency=2), usual),
            "accumulated and scaled": (
                keras.optimizers.LossScaleOptimizer(sgd(0.1, gradient_accumulation_steps=2)),
                usual,
            ),
        }
        images, labels = digits(4 * BATCH)
        found = {}
        for name, (optimizer, loss) in made.items():
            model = network()
            model.compile(optimizer, loss)
            found[name] = trained_on(model, images, labels)
        keras.utils.set_random_seed(7)
        layers = [keras.layers.Embedding(17, 4), keras.layers.Flatten(), keras.layers.Dense(10)]
        model = keras.Sequential([keras.layers.Input((64,)), *layers])
        model.compile(sgd(0.1, clipnorm=0.01), usual)
        return {**found, "embedding": trained_on(model, 16 * images, labels)}


def trained_on(model: Any, images: Any, labels: Any) -> dict[str, Any]:
    """Train a model, which was compiled; return its weights and its losses."""
    fitted = model.fit(
        images, labels, batch_size=BATCH, verbose=0, validation_data=(images, labels)
    )
    losses = [fitted.history[name][0] for name in ("loss", "val_loss")]
    return {"weights": model.get_weights(), "losses": losses}


def trained_with_an_infinite_gradient(worker: Worker) -> dict[str, Any]:
    """Train with a scaled loss whose gradient is infinite for the second of four batches."""
    with worker.mirrored():
        import keras

        images, labels = digits(4 * BATCH)
        images[2 * BATCH - 1] = np.inf  # in the part of the last worker
        optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.1), initial_scale=1024
        )
        model = network()
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(images, labels, batch_size=BATCH, verbose=0, shuffle=False)
        return {
            "weights": model.get_weights(),
            "scale": float(optimizer.dynamic_scale.numpy()),
            "steps": int(optimizer.iterations.numpy()),
        }


def warned_of_weights(worker: Worker) -> dict[str, list[str]]:
    """Return the warnings of `fit` for losses that weigh the entries of a batch in several ways."""
    with worker.mirrored():
        import keras

        def network(masked: bool) -> Any:
            embedding = keras.layers.Embedding(17, 4, mask_zero=masked)
            return keras.Sequential([keras.layers.Input((64,)), embedding, keras.layers.Dense(1)])

        kinds = {
            "mask": (True, "sum_over_batch_size"),
            "mask of a sum": (True, "sum"),
            "no mask": (False, "sum_over_batch_size"),
            "sum of weights": (False, "mean_with_sample_weight"),
        }
        images, _ = digits(BATCH)
        found = {}
        for name, (masked, reduction) in kinds.items():
            model = network(masked)
            model.compile(loss=keras.losses.MeanSquaredError(reduction))
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                model.fit(16 * images, images[..., None], verbose=0)
            found[name] = [str(item.message) for item in seen if item.category is UserWarning]
        return found


def trained_by_own_loop(worker: Worker) -> list[Any]:
    """Return the weights after 20 steps of a loop as TensorFlow's guide writes it."""
    with worker.mirrored():
        import keras
        import tensorflow as tf

        strategy = tf.distribute.get_strategy()
        images, labels = digits(20 * BATCH)
        dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH)
        model, optimizer = network(), keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)
        losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

        @tf.function
        def step(batch: Any) -> None:
            def replica(images: Any, labels: Any) -> None:
                with tf.GradientTape() as tape:
                    each = losses(labels, model(images, training=True))
                    loss = tf.nn.compute_average_loss(each, global_batch_size=BATCH)
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

            strategy.run(replica, args=batch)

        for batch in strategy.experimental_distribute_dataset(dataset):
            step(batch)
        return model.get_weights()


def trained_on_dataset(worker: Worker, kind: str) -> dict[str, Any]:
    """Train on data whose length only its end shows; return what each worker has seen of it."""
    with worker.mirrored():
        import keras
        import tensorflow as tf

        images, labels = digits(333)
        numbers = tf.data.Dataset.range(333).shuffle(333)
        if kind == "filtered":
            numbers = numbers.filter(lambda number: number < 303)
        dataset = numbers.map(lambda n: (tf.gather(images, n), tf.gather(labels, n)))
        dataset = dataset.batch(BATCH)
        if kind == "generator":
            dataset = (
                (images[first : first + BATCH], labels[first : first + BATCH])
                for first in range(0, 333, BATCH)
            )
        model = compiled(network())

        class Steps(keras.callbacks.Callback):
            steps = 0

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                self.steps += 1

        counted = Steps()
        epochs = 1 if kind == "generator" else 2
        model.fit(dataset, epochs=epochs, verbose=0, callbacks=[counted])
        return {"steps": counted.steps, "weights": model.get_weights()}


def batches_of_a_pydataset(worker: Worker) -> dict[str, list[list[int]]]:
    """Return the numbers of the batches that each of two epochs has trained on, in order."""
    with worker.mirrored():
        import keras

        class Numbers(keras.utils.PyDataset):
            def __len__(self) -> int:
                return 6

            def __getitem__(self, index: int) -> Any:
                return np.full((4, 1, 1), 2.0**index, "float32"), np.zeros((4, 1), "float32")

        class Seen(keras.callbacks.Callback):
            def __init__(self) -> None:
                super().__init__()
                self.sums: list[list[int]] = []

            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.sums.append([0])

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                self.sums[-1].append(round(logs["loss"] * (batch + 1)))  # of the epoch's means

        found = {}
        for workers, shuffle in itertools.product((1, 2), (False, True)):
            layer = keras.layers.Dense(1, kernel_initializer="ones")
            flat = keras.layers.Flatten()
            model = keras.Sequential([keras.layers.Input((1, 1)), flat, layer])
            model.compile(keras.optimizers.SGD(0.0), keras.losses.MeanAbsoluteError())
            seen = Seen()
            data = Numbers(workers=workers)
            model.fit(data, epochs=2, shuffle=shuffle, verbose=0, callbacks=[seen])
            batches = [np.diff(sums).tolist() for sums in seen.sums]
            found[f"workers={workers}, shuffle={shuffle}"] = batches
        # A model of batches of one size, which is that of this worker's parts.
        inputs = keras.layers.Input(batch_shape=(4 // worker.size, 1, 1))
        layers = [inputs, keras.layers.GRU(1, stateful=True)]
        stateful = keras.Sequential(layers)
        stateful.compile("sgd", "mse")
        stateful.fit(Numbers(), verbose=0)
        return found


def seen_in_epochs(worker: Worker) -> list[list[int]]:
    """Return this worker's samples of two epochs, of shuffled arrays and of shuffled data sets."""
    with worker.mirrored():
        import scipy.sparse
        import tensorflow as tf
        from keras.src.backend.tensorflow.trainer import TFEpochIterator

        strategy = tf.distribute.get_strategy()
        numbers = np.arange(101)
        sparse = scipy.sparse.csr_matrix(numbers[:, None])
        ragged = tf.RaggedTensor.from_row_lengths(numbers, np.ones(101, int))
        arrays = [
            TFEpochIterator(x=x, batch_size=8, shuffle=True, distribute_strategy=strategy)
            for x in (numbers, sparse, ragged)
        ]
        parts = [tf.data.Dataset.range(50), tf.data.Dataset.range(50, 101)]
        datasets = [
            tf.data.Dataset.range(101).shuffle(101),
            tf.data.Dataset.sample_from_datasets(parts, rerandomize_each_iteration=True),
        ]
        found = []
        for source in (
            *(each._get_iterator() for each in arrays),
            *(strategy.experimental_distribute_dataset(each.batch(8)) for each in datasets),
        ):
            for _ in range(2):
                batches = [strategy.experimental_local_results(batch) for batch in source]
                found.append([number for (batch,) in batches for number in _whole_numbers(batch)])
        return found


def _whole_numbers(batch: Any) -> list[int]:
    import tensorflow as tf

    if isinstance(batch, tf.SparseTensor):
        batch = tf.sparse.to_dense(batch)
    elif isinstance(batch, tf.RaggedTensor):
        batch = batch.values
    return [int(number) for number in np.ravel(batch)]


def iterators_of_data(worker: Worker) -> list[str]:
    """Return the types of TensorFlow's iterators of data that are distributed in several ways."""
    with worker.mirrored():
        import tensorflow as tf

        strategy = tf.distribute.get_strategy()
        dataset, options = tf.data.Dataset.range(8).batch(4), tf.data.Options()
        off = tf.data.experimental.AutoShardPolicy.OFF
        options.experimental_distribute.auto_shard_policy = off
        distributed = (
            strategy.experimental_distribute_dataset(dataset),
            strategy.experimental_distribute_dataset(dataset.with_options(options)),
            strategy.distribute_datasets_from_function(lambda context: dataset),
        )
        return [type(iter(made)._iterators[0]._iterator).__name__ for made in distributed]


def silence_of_dead(worker: Worker) -> float:
    """Return the seconds without a sign of life after which TensorFlow takes a worker for dead."""
    with worker.mirrored():
        from tensorflow.python.eager import context

        config = context.context().config.experimental.coordination_config
        return config.heartbeat_timeout_in_ms / 1000


def numbers_drawn(worker: Worker) -> list[list[float]]:
    """Return random numbers of a worker that had other ones before, also those of data sets."""
    random.seed(worker.rank)
    np.random.seed(worker.rank)
    with worker.mirrored():
        import tensorflow as tf

        numbers = tf.data.Dataset.random().take(3)
        few = tf.data.Dataset.range(200).rejection_resample(lambda x: x % 2, [0.9, 0.1])
        return [
            [random.random(), np.random.random()],
            [int(number) for number in numbers],
            [int(number) for _, number in few],
        ]


def numbers_of_variables(worker: Worker) -> list[float]:
    """Return what `float` and `int` read from an optimizer's variables."""
    with worker.mirrored():
        optimizer = compiled(network()).optimizer
        return [float(optimizer.learning_rate), int(optimizer.iterations)]


def stopped_by_one(worker: Worker, when: str) -> dict[str, Any]:
    """Let one worker's callback stop `fit` in its second epoch."""
    with worker.mirrored():
        import keras

        class Stop(keras.callbacks.Callback):
            epoch = 0

            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.epoch = epoch

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                if when == "batch" and worker.rank == 1 and self.epoch == 1 and batch == 2:
                    self.model.stop_training = True

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                if when == "epoch" and worker.rank == 1 and epoch == 1:
                    self.model.stop_training = True

        images, labels = digits(5 * BATCH)
        model = compiled(network())
        given = keras.callbacks.CallbackList([Stop()], add_history=True, model=model)
        callbacks = given if when == "epoch" else [Stop()]
        fitted = model.fit(
            images, labels, batch_size=BATCH, epochs=4, verbose=0, callbacks=callbacks
        )
        evaluated = model.evaluate(images, labels, verbose=0)
        return {
            "epochs": len(fitted.history["loss"]),
            "evaluated": evaluated,
            "given": [type(each).__name__ for each in given.callbacks],
        }


def own_train_step(worker: Worker) -> dict[str, list[Any]]:
    """Return what `fit` makes of numbers that only a user's own step returns."""
    with worker.mirrored():
        import keras
        import tensorflow as tf

        class Own(keras.Sequential):
            def train_step(self, data: Any) -> Any:
                super().train_step(data)
                samples = tf.cast(tf.shape(data[0])[0], tf.float32)
                pair = tf.stack([samples, 2 * samples])
                return {"samples": samples, "pair": pair, "more": {"negative": -samples}}

        images, labels = digits(65)
        model = compiled(Own(network().layers))
        fitted = model.fit(images, labels, batch_size=65, epochs=2, verbose=0, shuffle=False)
        return {
            name: [np.asarray(value).tolist() for value in values]
            for name, values in fitted.history.items()
        }


def collectives_of_steps(worker: Worker) -> list[int]:
    """Return how many of TensorFlow's collective operations epochs of 5 and 25 steps take."""
    with worker.mirrored():
        import keras
        import tensorflow as tf

        keys = tf.distribute.get_strategy().extended._collective_keys
        counts = []

        class Count(keras.callbacks.Callback):
            def on_train_begin(self, logs: Any = None) -> None:
                self.before = self.count()

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                counts.append(self.count() - self.before)
                self.before = self.count()

            def count(self) -> int:
                return sum(n for group in keys._instance_key_table.values() for n in group.values())

        model = compiled(network())
        for steps in (5, 25):
            images, labels = digits(steps * BATCH)
            model.fit(images, labels, batch_size=BATCH, verbose=0, callbacks=[Count()])
        return counts


def killed(worker: Worker) -> str:
    """Let worker 1 be killed in `fit`; return the error of the other one."""
    with worker.mirrored():
        import keras

        class Kill(keras.callbacks.Callback):
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                if worker.rank == 1 and batch == 3:
                    os.kill(os.getpid(), signal.SIGKILL)

        images, labels = digits(20 * BATCH)
        try:
            compiled(network()).fit(images, labels, verbose=0, epochs=50, callbacks=[Kill()])
        except Exception as error:
            return type(error).__name__
        return "nothing"


def unchecked(worker: Worker) -> list[str]:
    """Return what `fit` and a custom loop say in a version of Keras that was not checked."""
    import keras

    from spark_jobs.strategies.mirrored import keras_versions

    keras_versions.CHECKED = {"another": ("3.10.0", "3.15.1")}
    keras.__version__ = "3.99.0"
    with worker.mirrored():
        model = compiled(network())
        found = []
        for call in (model.fit, model.evaluate):
            try:
                call(*digits(BATCH), verbose=0)
            except Exception as error:
                found.append(f"{type(error).__name__}: {error}")
    return found


def several_steps_at_once(worker: Worker) -> str:
    """Return what `fit` says to several steps in one execution."""
    with worker.mirrored():
        try:
            compiled(network(), at_once=4).fit(*digits(BATCH), verbose=0)
        except Exception as error:
            return str(error)
    return ""


def answers_of_port(worker: Worker) -> dict[str, bool]:
    """Return by which addresses of this host TensorFlow's server answers."""
    port = int(worker.members[worker.rank].rpartition(":")[2])
    found = {}
    with worker.mirrored():
        for address in addresses_of_host():
            with socket.create_connection((address, port), timeout=10) as connection:
                connection.settimeout(2 if worker.rank == 0 else 0.5)
                connection.sendall(
                    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
                )
                try:
                    found[address] = bool(connection.recv(9))
                except TimeoutError:
                    found[address] = False
        worker.collectives.meet()  # neither ends before the other has asked
    return found


def parts(worker: Worker) -> dict[str, Any]:
    """Return the parts of batches of several kinds, for 1 and 2 replicas a worker."""
    import tensorflow as tf

    told: list[int] = []
    numbers = tf.data.Dataset.range(9).batch(4)
    kinds = {
        "numbers": numbers,
        "structure": numbers.map(lambda n: ({"a": n, "b": (n, n + 1)}, n)),
        "ragged": numbers.map(lambda n: tf.RaggedTensor.from_row_lengths(n, tf.ones_like(n))),
        "sparse": numbers.map(lambda n: tf.sparse.from_dense(tf.stack([n, n], axis=1))),
    }

    def listed(dataset: Any) -> list[Any]:
        def plain(value: Any) -> Any:
            if isinstance(value, tf.SparseTensor):
                value = tf.sparse.to_dense(value)
            return value.to_list() if isinstance(value, tf.RaggedTensor) else value.numpy().tolist()

        return [tf.nest.map_structure(plain, element) for element in dataset]

    found: dict[str, Any] = {
        name: [listed(Parts(tf, 2).of(dataset, first, 1)) for first in range(2)]
        for name, dataset in kinds.items()
    }
    double = Parts(tf, 4).of(numbers, 2, 2)
    found["two replicas"] = listed(double), int(double.cardinality())
    trained = [Parts(tf, 2, told.append).of(numbers, first, 1) for first in range(2)]
    found["trained"] = [listed(dataset) for dataset in trained]
    found["three replicas"] = listed(Parts(tf, 3, told.append).of(numbers, 0, 1))
    found["told"] = told
    unequal = numbers.map(lambda n: (n, n[1:]))
    try:
        listed(Parts(tf, 2).of(unequal, 0, 1))
    except tf.errors.InvalidArgumentError as error:
        found["unequal"] = str(error)
    static = Parts(tf, 2).of(numbers.repeat().take(8).batch(2, drop_remainder=True), 0, 1)
    found["static"] = static.element_spec.shape.as_list()[0]
    return found


def warnings_of_slow(
    worker: Worker, slow_in: str, others: float, slow: float, epochs: int = 1
) -> list[str]:
    """Return the warnings of a training whose workers sleep in each step, worker 1 longer.

    It ends at the first warning: on a busy host some epochs may show too little.

    Args:
        worker: The worker.
        slow_in: Where worker 1 takes longer: in "data" or in "computing".
        others: Seconds for which each worker sleeps in either.
        slow: Seconds for which worker 1 sleeps there.
        epochs: The most epochs.
    """
    seconds = {"data": others, "computing": others}
    if worker.rank == 1:
        seconds[slow_in] = slow
    with warnings.catch_warnings(record=True) as seen, worker.mirrored():
        warnings.simplefilter("always")
        import keras
        import tensorflow as tf

        def slept(where: str, values: Any) -> Any:
            def sleep(values: Any) -> Any:
                time.sleep(seconds[where])
                return values

            computed = tf.numpy_function(sleep, [values], tf.float32, stateful=True)
            return tf.ensure_shape(computed, values.shape)

        class Compute(keras.layers.Layer):
            def call(self, images: Any) -> Any:
                return slept("computing", images)

        steps = max(18, int(3.5 / (others + slow)))  # alike in all workers
        numbers = tf.data.Dataset.from_tensor_slices(np.ones((2 * steps, 1), np.float32))
        numbers = numbers.batch(2).map(lambda batch: (slept("data", batch), batch))
        model = keras.Sequential(
            [keras.layers.Input((1,)), Compute(), keras.layers.Dense(1, use_bias=False)]
        )
        model.compile(keras.optimizers.SGD(1e-3), "mse")

        def found() -> list[str]:
            return [str(item.message) for item in seen if item.category is UserWarning]

        class Found(keras.callbacks.Callback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                model.stop_training = model.stop_training or bool(found())

        model.fit(numbers, epochs=epochs, verbose=0, shuffle=False, callbacks=[Found()])
        return found()


def trained_unequally(worker: Worker, how: str) -> str:
    """Return the error of worker 1, which takes part in fewer steps than worker 0.

    Args:
        worker: The worker.
        how: In what it differs: "batches" of an epoch, or "epochs" of the training.
    """
    from spark_jobs.communicator.membership import MembersDisagree

    def end_with_the_other() -> None:
        """As the driver does: TensorFlow need not notice the end of the other one."""
        with contextlib.suppress(EOFError):
            worker.collectives._connections[0].recv()
        os._exit(0)

    if worker.rank == 0:
        threading.Thread(target=end_with_the_other, daemon=True).start()
    try:
        with worker.connected(Mirrored()):
            import tensorflow as tf

            strategy = tf.distribute.get_strategy()
            fewer = how == "batches" and worker.rank == 1
            images, labels = digits((3 if fewer else 5) * BATCH)
            own = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH)
            data = strategy.distribute_datasets_from_function(lambda context: own)
            epochs = 1 if how == "epochs" and worker.rank == 1 else 2
            compiled(network()).fit(
                data, epochs=epochs, steps_per_epoch=len(own), verbose=0, shuffle=False
            )
    except MembersDisagree as error:
        return str(error)
    return "nothing"
