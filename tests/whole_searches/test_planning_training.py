"""A training is measured on a real local Spark, and its number of workers is planned."""

from __future__ import annotations

import pytest

import experiment
from experiment.results.result import SearchFailed
from search.errors import InvalidArgument

MIRRORED = experiment.Mirrored(unprotected=True)


def fit(batches, epochs=1, as_dataset=False):
    """Fit a layer of 65 x 10 numbers to random images in batches of 16."""
    import keras
    import numpy as np
    import tensorflow as tf

    images, labels = np.random.rand(16 * batches, 64), np.zeros(16 * batches)
    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.25), loss)
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
    assert plan.speeds[1].step_seconds == pytest.approx(
        plan.step_seconds / 2 + plan.exchange.seconds(2)
    )


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
