"""Trials whose workers train one model with Keras on JAX, on a real local Spark."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

import experiment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.contract,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs the extra jax"),
]


def train(lost):
    """Train on digits; let worker 1 be killed within `fit` if it is to be lost."""
    import os
    import signal

    import jax
    import keras
    from sklearn.datasets import load_digits

    class Lose(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if lost and batch == 3 and experiment.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    pixels, labels = experiment.shard(load_digits(return_X_y=True))
    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    model.fit(
        pixels[:640] / 16,
        labels[:640],
        batch_size=64,
        callbacks=[Lose(), *experiment.keras_callbacks()],
        verbose=0,
    )
    evaluated = model.evaluate(pixels / 16, labels, verbose=0)
    return {
        "loss": evaluated,
        "steps": model.optimizer.iterations,
        "processes": jax.process_count(),
    }


@pytest.fixture(scope="module")
def result(sparks, tmp_path_factory):
    return experiment.launch(
        sparks.get("local[2]"),
        train,
        {"lost": [False, True]},
        workers_per_trial=2,
        # Spark's own ports have a password in tests, so the open ones must be allowed.
        strategy=experiment.Jax(unprotected=True),
        retries=0,
        seed=1,  # from some first weights ten steps lead no further than a guess
        optimization_key="loss",
        direction="min",
        logdir=tmp_path_factory.mktemp("runs"),
        verbose=0,
    )


def test_the_workers_train_one_model(result):
    trained = result.trials[0]
    assert trained.status == "finished", trained
    assert trained.value < 2.3
    assert trained.metrics["steps"] == 10
    assert trained.metrics["processes"] == 2
    manifest = json.loads(Path(result.logdir, "manifest.json").read_text())
    assert manifest["strategy"]["type"] == "jax"


def test_a_lost_worker_ends_the_trial_and_is_named(result):
    lost = result.trials[1]
    assert lost.status == "failed"
    assert lost.error.kind == "exit"
    assert re.match(r"worker 1 of 2, on \S+: signal 9 \(SIGKILL\)", lost.error.message)
