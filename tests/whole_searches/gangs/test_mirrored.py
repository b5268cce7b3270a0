"""Trials whose workers train one model with `model.fit`, on a real local Spark."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import experiment

# Spark's own ports have a password in tests, so the open one must be allowed.
MIRRORED = experiment.Mirrored(unprotected=True)
BATCH = 64
SAMPLES = {"even": 5 * BATCH, "one left": 5 * BATCH + 1, "three left": 5 * BATCH + 3}


def train(samples, normalized=False, epochs=2):
    """Train on digits, the same way on one worker and on several; keep the weights."""
    import keras
    from sklearn.datasets import load_digits

    keras.utils.set_random_seed(7)
    pixels, labels = experiment.shard(load_digits(return_X_y=True))
    pixels = (pixels / 16).astype("float32")
    norm = [keras.layers.BatchNormalization(name="norm")] if normalized else []
    layers = [keras.layers.Input((64,)), keras.layers.Dense(16, activation="relu"), *norm]
    model = keras.Sequential([*layers, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
    fitted = model.fit(
        pixels[:samples],
        labels[:samples],
        batch_size=BATCH,
        epochs=epochs,
        validation_data=(pixels[-101:], labels[-101:]),
        callbacks=experiment.keras_callbacks(),
        verbose=0,
    )
    np.savez(Path(experiment.logdir(), "weights.npz"), *model.get_weights())
    return {
        "loss": model.evaluate(pixels, labels, verbose=0)[0],
        "epochs": len(fitted.epoch),
        "last": fitted.history["val_loss"][-1],
    }


def weights_of(trial):
    with np.load(Path(trial.logdir, "weights.npz")) as kept:
        return [kept[name] for name in kept.files]


def apart(some, others):
    """Return by how much the weights of two trials differ."""
    return max(
        np.abs(one - other).max()
        for one, other in zip(weights_of(some), weights_of(others), strict=True)
    )


def errors_of(trial, *folder):
    return Path(trial.logdir, *folder, "stderr.log").read_text()


@pytest.fixture(scope="module")
def runs(sparks, tmp_path_factory):
    """The same search on one and on two workers per trial, by the number of workers."""
    return {
        workers: experiment.launch(
            sparks.get("local[2]"),
            train,
            {"samples": list(SAMPLES.values())},
            workers_per_trial=workers,
            strategy=MIRRORED,
            optimization_key="loss",
            direction="min",
            logdir=tmp_path_factory.mktemp("runs"),
            verbose=0,
        )
        for workers in (1, 2)
    }


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("which", ["even", "one left"])
def test_fit_of_two_workers_gives_the_weights_of_one(runs, which):
    one, two = (runs[workers].trials[list(SAMPLES).index(which)] for workers in (1, 2))
    assert apart(one, two) < 1e-5
    for name, value in one.metrics.items():
        assert two.metrics[name] == pytest.approx(value, abs=1e-5)
    assert "not divided" not in errors_of(two)


def train_and_count(samples):
    return {**train(samples), "workers": experiment.world_size()}


@pytest.mark.slow
def test_fit_of_as_many_workers_as_there_are_slots_gives_the_weights_of_one(runs, sparks, logdir):
    result = experiment.launch(
        sparks.get("local[4]"),
        train_and_count,
        {"samples": [SAMPLES["even"]]},
        workers_per_trial=(2, 4),
        strategy=MIRRORED,
        optimization_key="loss",
        direction="min",
        logdir=logdir,
        verbose=0,
    )
    (trial,) = result.trials
    assert trial.status == "finished"
    workers = trial.metrics["workers"]
    assert 2 <= workers <= 4
    if BATCH % workers == 0:  # three do not divide a batch
        assert apart(runs[1].trials[0], trial) < 1e-5


@pytest.mark.slow
@pytest.mark.contract
def test_a_batch_that_the_workers_do_not_divide_is_trained_on_and_warned_of(runs):
    two = runs[2].trials[2]
    assert two.status == "finished"
    for folder in ((), ("workers", "1")):
        said = errors_of(two, *folder)
        assert "a batch of 3 samples is not divided by 2 workers" in said
        assert "drop_remainder=True" in said
    assert "not divided" not in errors_of(runs[1].trials[2])


@pytest.mark.slow
@pytest.mark.contract
def test_the_curves_of_a_trial_are_those_of_all_workers(runs):
    for run in runs.values():
        for trial in run.trials:
            assert [curve.name for curve in Path(trial.logdir).glob("*tfevents*")]
            assert trial.metrics["epochs"] == 2
    manifest = json.loads(Path(runs[2].logdir, "manifest.json").read_text())
    assert manifest["strategy"] == {
        "type": "mirrored",
        "communication": "auto",
        "unprotected": True,
    }
    assert json.loads(Path(runs[1].logdir, "manifest.json").read_text())["strategy"] is None


@pytest.mark.slow
def test_workers_leave_fit_together_if_a_rule_stops_the_trial(sparks, logdir):
    """The rule judges rank 0 alone; the evaluation after `fit` needs both workers.

    Without passwords in Spark the strategy is the default, and its port is told.
    """
    spark = sparks.get("local[2]", **{"spark.authenticate": "false"})
    with pytest.warns(UserWarning, match="any user of .* can ") as told:  # and of Spark's own
        trial = experiment.distributed_training(
            spark,
            train,
            {"samples": SAMPLES["even"], "normalized": True, "epochs": 500},
            workers=2,
            optimization_key="loss",
            direction="min",
            stopping=experiment.Threshold(upper=-1.0),
            logdir=logdir,
            verbose=0,
        )
    assert any("any user of this host can run TensorFlow" in str(one.message) for one in told)
    assert trial.status == "stopped"
    assert trial.metrics["epochs"] < 500
    assert trial.value > 0
    said = errors_of(trial)
    assert "'norm': batch normalization of each worker's part of a batch" in said
    assert "BatchNormalization(synchronized=True)" in said


@pytest.mark.slow
def test_fresh_interpreters_train_together_too(spark, logdir):
    trial = experiment.distributed_training(
        spark,
        train,
        {"samples": SAMPLES["even"]},
        workers=2,
        strategy=MIRRORED,
        optimization_key="loss",
        direction="min",
        isolation="spawn",
        logdir=logdir,
        verbose=0,
    )
    assert trial.status == "finished"


@pytest.mark.parametrize("strategy", [{}, {"strategy": "mirrored"}], ids=str)
def test_the_open_port_is_refused_where_sparks_ports_have_a_password(spark, logdir, strategy):
    """Before anything starts; by default, too, as the function imports Keras."""
    with pytest.raises(experiment.InvalidArgument) as refused:
        experiment.launch(
            spark, train, {"samples": [1]}, workers_per_trial=2, logdir=logdir, **strategy
        )
    assert str(refused.value).startswith(
        "strategy: expected one without an open port, since spark.authenticate is on, got "
    )
    assert not Path(logdir).exists()
