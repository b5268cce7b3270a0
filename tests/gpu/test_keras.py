"""Trials of Keras on a real GPU: half precision, the largest batch, and a strategy."""

from __future__ import annotations

import pytest

from spark_jobs.slot.gpus.devices import gpu_share
from spark_jobs.slot.gpus.nvml import Gpus

pytestmark = pytest.mark.gpu


def dtypes_and_place(backend):
    """A train function: what the model of a trial computes in, keeps, and computes on."""
    import keras
    import numpy as np

    model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(8)])
    model.compile("adam", "mse")
    model.fit(np.ones((64, 16)), np.ones((64, 8)), verbose=0)
    kernel = model.layers[0].kernel.value
    device = kernel.device.type if backend == "torch" else next(iter(kernel.devices())).platform
    return {
        "loss": 0.0,
        "half": float(model.layers[0].compute_dtype == "float16"),
        "scaled": float(type(model.optimizer).__name__ == "LossScaleOptimizer"),
        "single": float("float32" in str(kernel.dtype)),
        "on_gpu": float(device in ("cuda", "gpu")),
    }


def largest_batch(least, most):
    """A train function: the largest batch of a network that takes 4 to 12 MiB per sample."""
    import numpy as np

    from experiment.large_batches.batch_size import auto_batch_size  # needs no Spark

    def build():
        import keras

        layers = [keras.layers.Input((1,)), keras.layers.Dense(1 << 20), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("sgd", "mse")
        return model

    data = np.ones((most, 1), "float32"), np.ones((most, 1), "float32")
    found = auto_batch_size(build, data, least=least, seconds=0.1)
    return {
        "loss": 0.0,
        "largest": float(found.largest),
        "by_gpu_memory": float(found.limit == "gpu memory"),
        "advice": float("gpu memory" in found.advice),
    }


class Alone:
    """The collective calls of the only worker of a gang."""

    rank = 0

    def all_reduce(self, arrays, op="mean"):
        return list(arrays)

    def broadcast(self, arrays, root=0):
        return list(arrays)

    def meet(self):
        pass

    def begin_step(self):
        pass


def distributed():
    """A train function: the only worker of a gang trains with the strategy for JAX."""
    import socket

    import numpy as np

    from spark_jobs.strategies.on_jax.on_jax import on_jax
    from spark_jobs.strategies.settings import Jax

    with socket.create_server(("127.0.0.1", 0)) as server:
        members = [f"127.0.0.1:{server.getsockname()[1]}"]
    with on_jax(Jax(), Alone(), members=members):
        import keras

        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        history = model.fit(np.ones((64, 4)), np.ones((64, 1)), epochs=50, verbose=0).history
        platforms = {device.platform for device in model.weights[0].value.devices()}
        spread = type(keras.distribution.distribution()).__name__ == "DataParallel"
    first, *_, last = history["loss"]
    return {
        "loss": last,
        "learnt": float(last < first),
        "on_gpu": float(platforms == {"gpu"}),
        "spread": float(spread),
    }


def test_a_trial_computes_in_float16_on_its_gpu(start, keras_backend):
    run = start(dtypes_and_place, backend=keras_backend, precision="mixed_float16", key="loss")
    outcome = run(backend=keras_backend)
    assert outcome.status == "finished", outcome.error
    expected = {"loss": 0, "half": 1, "scaled": 1, "single": 1, "on_gpu": 1}
    assert outcome.metrics == expected


def test_float16_is_refused_to_a_trial_without_a_gpu(start, keras_backend):
    run = start(dtypes_and_place, gpus=(), backend=keras_backend, precision="mixed_float16")
    outcome = run(backend=keras_backend)
    assert "without a GPU float16 is slower than float32" in outcome.error.message


def test_the_largest_batch_fits_into_the_trials_share_of_the_gpu(start, keras_backend):
    with Gpus(["0"]) as gpus:
        share = gpu_share(["0"], 16).fraction * gpus.use()["0"].total
    least = int(0.3 * share / (4 << 20))
    run = start(largest_batch, trials=16, backend=keras_backend, key="loss")
    outcome = run(least=least, most=16 * least)
    assert outcome.status == "finished", outcome.error
    assert outcome.metrics["by_gpu_memory"] == outcome.metrics["advice"] == 1.0
    assert outcome.metrics["largest"] < 4 * least


def test_a_worker_trains_on_its_gpu_with_the_strategy_for_jax(start, keras_backend):
    if keras_backend != "jax":
        pytest.skip("jax finds no gpu")
    outcome = start(distributed, backend="jax", key="loss")()
    assert outcome.status == "finished", outcome.error
    assert outcome.metrics.items() >= {"learnt": 1, "on_gpu": 1, "spread": 1}.items()
