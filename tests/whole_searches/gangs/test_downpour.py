"""Trials whose workers train one model out of step, on a real local Spark."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

import experiment

DOWNPOUR = experiment.Downpour(fetch_every=2, push_every=2)


def digits_model(rate):
    import keras

    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(rate), loss, metrics=["accuracy"])
    return model


def apart(model):
    """Return by how much the workers' weights differ."""
    low, high = (experiment.all_reduce(model.get_weights(), op) for op in ("min", "max"))
    return max(float((b - a).max()) for a, b in zip(low, high, strict=True))


def train(rate, epochs=2):
    """Train on this worker's part of the digits."""
    from sklearn.datasets import load_digits

    x, y = experiment.shard(load_digits(return_X_y=True))
    model = digits_model(rate)
    # So many steps that the model learns enough whoever of the workers is slow.
    fitted = model.fit(
        x / 16, y, batch_size=8, epochs=epochs, callbacks=experiment.keras_callbacks(), verbose=0
    )
    return {
        "accuracy": fitted.history["accuracy"][-1],
        "samples": len(x),
        "apart": apart(model),
        "epochs": len(fitted.epoch),
    }


def train_with_checkpoints(folder):
    """Train two epochs, saved; rank 1 dies in its second one, the first time."""
    import keras
    from sklearn.datasets import load_digits

    class Die(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if experiment.rank() == 1 and epoch == 1:
                while not Path(folder, "saved").exists():
                    time.sleep(0.01)
                died = Path(folder, "died")
                if not died.exists():
                    died.touch()
                    os.kill(os.getpid(), signal.SIGKILL)

    class Saved(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if experiment.rank() == 0:
                Path(folder, "saved").touch()

    x, y = experiment.shard(load_digits(return_X_y=True))
    model = digits_model(0.1)
    backup = keras.callbacks.BackupAndRestore(experiment.checkpoint_dir())
    fitted = model.fit(x / 16, y, epochs=2, callbacks=[backup, Saved(), Die()], verbose=0)
    return {"apart": apart(model), "epochs": len(fitted.epoch)}


@pytest.mark.slow
@pytest.mark.contract
def test_a_search_whose_workers_train_out_of_step(sparks, logdir):
    """Without a warning of an open port, as there is none."""
    result = experiment.launch(
        sparks.get("local[2]"),
        train,
        {"rate": [0.1, 0.5]},
        workers_per_trial=2,
        strategy=DOWNPOUR,
        optimization_key="accuracy",
        logdir=logdir,
        verbose=0,
    )
    assert [trial.status for trial in result.trials] == ["finished"] * 2
    for trial in result.trials:
        assert trial.metrics["samples"] == 899
        assert trial.metrics["apart"] == 0
        assert trial.value > 0.5
    curves = result.curves()
    for name in ("downpour/staleness", "downpour/waiting", "loss"):
        assert list(curves[curves["metric"] == name]["step"]) == [0, 1] * 2
    manifest = json.loads(Path(result.logdir, "manifest.json").read_text())
    assert manifest["strategy"] == {
        "type": "downpour",
        "fetch_every": 2,
        "push_every": 2,
        "rule": "downpour",
        "moving_rate": None,
    }


@pytest.mark.slow
@pytest.mark.contract
def test_a_rule_that_stops_the_trial_ends_fit_on_all_workers(sparks, logdir):
    """It judges rank 0 alone, and the calls after `fit` need both workers."""
    trial = experiment.distributed_training(
        sparks.get("local[2]"),
        train,
        {"rate": 0.1, "epochs": 100_000},
        workers=2,
        strategy="downpour",
        optimization_key="accuracy",
        stopping=experiment.Threshold(lower=2.0),
        logdir=logdir,
        verbose=0,
    )
    assert trial.status == "stopped"
    assert trial.metrics["epochs"] < 100_000
    assert trial.metrics["apart"] == 0


@pytest.mark.slow
@pytest.mark.contract
def test_a_trial_that_has_lost_a_worker_goes_on_from_its_checkpoint(sparks, logdir, tmp_path):
    trial = experiment.distributed_training(
        sparks.get("local[2]"),
        train_with_checkpoints,
        {"folder": str(tmp_path)},
        workers=2,
        strategy=DOWNPOUR,
        retry_on=("lost executor", "machine", "exit"),
        optimization_key="apart",
        direction="min",
        logdir=logdir,
        verbose=0,
    )
    assert (trial.status, trial.value) == ("finished", 0)
    assert trial.attempt == 2
    assert trial.metrics["epochs"] < 2  # rank 0 may have saved its second one, too


@pytest.mark.slow
@pytest.mark.contract
def test_models_that_learn_from_each_other(sparks, logdir):
    trial = experiment.distributed_training(
        sparks.get("local[2]"),
        train,
        {"rate": 0.1, "epochs": 3},
        workers=2,
        strategy=experiment.Codistillation(every=2, burn_in=4),
        optimization_key="accuracy",
        logdir=logdir,
        verbose=0,
    )
    assert trial.status == "finished"
    assert trial.metrics["samples"] == 899
    assert trial.metrics["apart"] > 0  # each has a model of its own
