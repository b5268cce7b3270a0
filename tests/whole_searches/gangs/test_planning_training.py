"""A training is measured on a real local Spark, and its number of workers is planned."""

from __future__ import annotations

import json
import warnings

import pytest

import experiment
from experiment.results.result import SearchFailed
from search.errors import InvalidArgument

MIRRORED = experiment.Mirrored(unprotected=True)


def fit(batches, epochs=1, as_dataset=False, optimizer="SGD"):
    """Fit a layer of 65 x 10 numbers to random images in batches of 16."""
    import keras
    import numpy as np
    import tensorflow as tf

    images, labels = np.random.rand(16 * batches, 64), np.zeros(16 * batches)
    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(getattr(keras.optimizers, optimizer)(0.25), loss)
    if as_dataset:
        dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(16)
        model.fit(dataset, epochs=epochs, verbose=0)
    else:
        model.fit(images, labels, batch_size=16, epochs=epochs, verbose=0)
    raise AssertionError("the training went on after its steps were measured")


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("as_dataset", [False, True])
def test_a_training_is_measured_and_ends_after_its_first_steps(sparks, tmp_path, as_dataset):
    plan = experiment.plan_training(
        sparks.get("local[2]"),
        fit,
        {"batches": 20, "epochs": 1000, "as_dataset": as_dataset},
        workers=(1, 2, 4),
        steps=10,
        strategy=MIRRORED,
        logdir=tmp_path,
        verbose=0,
    )
    assert plan.batch_size == 16
    assert plan.learning_rate == 0.25
    assert plan.gradient_bytes == 65 * 10 * 4
    assert plan.step_seconds > 0
    assert plan.exchange.gradients > 0
    assert [speed.workers for speed in plan.speeds] == [1, 2, 4]
    assert plan.speeds[1].larger_rate == 0.5
    assert plan.speeds[1].step_seconds == pytest.approx(
        plan.step_seconds / 2 + plan.exchange.seconds(2)
    )


def fit_in_half_precision():
    """Fit as above, in a process in which Keras is to compute in 16 bits."""
    import keras

    assert keras.config.dtype_policy().name == "mixed_bfloat16"
    fit(20, epochs=1000, optimizer="Adam")


@pytest.mark.slow
@pytest.mark.contract
def test_a_training_is_measured_in_the_precision_of_the_call(sparks, tmp_path):
    # Each executor of CI may have a processor without arithmetic of bfloat16, which is warned of.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is probably slower")
        plan = experiment.plan_training(
            sparks.get("local[2]"),
            fit_in_half_precision,
            workers=(1, 2),
            steps=10,
            precision="mixed_bfloat16",
            strategy=MIRRORED,
            logdir=tmp_path,
            verbose=0,
        )
    assert plan.gradient_bytes == 65 * 10 * 4  # those of weights in 32 bits
    assert plan.exchange.gradients > 0
    assert plan.speeds[1].larger_rate == pytest.approx(0.25 * 2**0.5)  # as Adam needs it
    runs = [json.loads(path.read_text()) for path in tmp_path.glob("*/manifest.json")]
    assert {run["name"]: run["precision"] for run in runs} == {
        "fit_in_half_precision": "mixed_bfloat16",
        "seconds_of_exchange": None,
    }


def must_not_run():
    raise AssertionError("the training began")


@pytest.mark.parametrize(
    ("master", "strategy", "refused"),
    [("local[2]", None, "strategy: "), ("local[1]", MIRRORED, "workers: ")],
)
def test_what_forbids_two_workers_is_said_before_the_training(
    sparks, tmp_path, master, strategy, refused
):
    with pytest.raises(InvalidArgument, match=f"^{refused}"):
        experiment.plan_training(
            sparks.get(master), must_not_run, strategy=strategy, logdir=tmp_path, verbose=0
        )


@pytest.mark.slow
def test_a_training_with_too_few_batches_fails_with_a_reason(sparks, tmp_path):
    with pytest.raises(SearchFailed, match=r"model\.fit has at least 5 batches"):
        experiment.plan_training(
            sparks.get("local[2]"),
            fit_of_two_batches,
            workers=[1],
            strategy=MIRRORED,
            logdir=tmp_path,
            verbose=0,
        )


def fit_of_two_batches():
    """Fit two batches only, and end as usual."""
    try:
        fit(2)
    except AssertionError:
        return 0.0
