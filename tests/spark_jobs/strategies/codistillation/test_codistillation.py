"""Whole trainings of two workers whose models learn from each other."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.special import expit, log_expit, log_softmax, softmax

from search.errors import InvalidArgument
from spark_jobs.strategies.codistillation.codistillation import check_backend
from tests.spark_jobs.strategies.codistillation import train_functions as functions
from tests.spark_jobs.strategies.codistillation.train_functions import (
    CLASSES,
    RATE,
    WEIGHT,
    batch,
    matrix,
)


def batch_of_rank_0(kind):
    """Return the batch as the layer before the last one of a model gives it."""
    x, y = batch(0)
    return ((x - x.mean(axis=0)) / x.std(axis=0) if kind == "normalized" else x), y


def regression(weights_of_the_others, teachers=1, kind="logits"):
    """Return the weights of rank 0 after steps of softmax regression, and the last step's loss.

    Args:
        weights_of_the_others: The weight of the loss towards the initial models of the others, by
            step.
        teachers: The number of the others, from rank 1 on.
        kind: What the models predict, see `train_functions.build`.
    """
    x, y = batch_of_rank_0(kind)
    truth, weights = np.eye(CLASSES)[y], matrix(0)
    predicted = [softmax(x @ matrix(rank), axis=1) for rank in range(1, teachers + 1)]
    taught = np.mean(predicted, axis=0)
    last = 0.0
    for weight in weights_of_the_others:
        logits = x @ weights
        logs, predicted = log_softmax(logits, axis=1), softmax(logits, axis=1)
        last = -(truth * logs).sum(axis=1).mean() - weight * (taught * logs).sum(axis=1).mean()
        gradient = x.T @ (predicted - truth + weight * (predicted - taught)) / len(x)
        weights = weights - RATE * gradient
    return weights, last


def labelling(weights_of_the_other):
    """Return the same as `regression` for classes that are true or not, each by itself."""
    x, y = batch(0)
    truth, weights = np.eye(CLASSES)[y], matrix(0)
    taught = expit(x @ matrix(1))
    last = 0.0
    for weight in weights_of_the_other:
        logits = x @ weights
        last = _binary(truth, logits) + weight * _binary(taught, logits)
        predicted = expit(logits)
        gradient = x.T @ (predicted - truth + weight * (predicted - taught)) / truth.size
        weights = weights - RATE * gradient
    return weights, last


def _binary(target, logits):
    return -(target * log_expit(logits) + (1 - target) * log_expit(-logits)).mean()


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize(
    ("kind", "workers", "teachers", "floatx"),
    [
        ("logits", 2, 1, "float64"),
        ("probabilities", 2, 1, "float32"),
        ("logits", 3, 1, "float32"),
        ("logits", 3, 2, "float32"),
        ("normalized", 2, 1, "float32"),
        ("own class", 2, 1, "float32"),
    ],
)
def test_a_model_learns_from_the_labels_and_from_the_mean_of_the_other_models(
    gangs, tmp_path, kind, workers, teachers, floatx
):
    """Compared with softmax regression in NumPy; a worker that is no teacher publishes nothing."""
    call = functions.taught_in_the_third_step
    found, *_ = gangs.values(call, workers, str(tmp_path), kind, floatx, teachers)
    weights, last = regression([0, 0, WEIGHT], teachers, kind)
    np.testing.assert_allclose(found["weights"], weights, atol=1e-5)
    assert found["loss"] == pytest.approx(last, abs=1e-5)
    x, y = batch_of_rank_0(kind)
    own = -log_softmax(x @ weights, axis=1)[np.arange(len(y)), y].mean()
    assert found["val_loss"] == pytest.approx(own, abs=1e-5)
    assert found["evaluated"] == pytest.approx(own, abs=1e-5)


@pytest.mark.slow
@pytest.mark.contract
def test_a_functional_model_learns_labels_from_the_other_model(gangs, tmp_path):
    """By binary cross-entropy, compared with logistic regression in NumPy."""
    call = functions.taught_in_the_third_step
    found, *_ = gangs.values(call, 2, str(tmp_path), "labels", "float32", 1)
    weights, last = labelling([0, 0, WEIGHT])
    np.testing.assert_allclose(found["weights"], weights, atol=1e-5)
    assert found["loss"] == pytest.approx(last, abs=1e-5)


@pytest.mark.slow
@pytest.mark.contract
def test_a_worker_that_has_ended_goes_on_teaching(gangs, tmp_path):
    found, _ = gangs.values(functions.one_that_ends, 2, str(tmp_path))
    weights, _ = regression([0, WEIGHT, WEIGHT, WEIGHT])
    np.testing.assert_allclose(found, weights, atol=1e-5)


@pytest.mark.slow
@pytest.mark.contract
def test_other_losses_are_refused(gangs):
    for message in gangs.values(functions.refused, 2, "mse"):
        assert message == (
            "loss: expected one categorical or binary cross-entropy of keras.losses, for "
            "'codistillation', got 'mse'; compile the model with one"
        )


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("kind", ["own class", "spare layer"])
def test_a_model_that_keras_does_not_copy_is_refused(gangs, kind):
    for message in gangs.values(functions.refused_model, 2, kind):
        assert re.sub("<.*>", "a model", message) == (
            "model: expected one that keras.models.clone_model copies with all weights, for "
            "'codistillation', got a model; use keras.Sequential or a functional model, with a "
            "keras.layers.Input, or add get_config to a class of your own"
        )


def test_other_backends_of_keras_are_refused():
    check_backend("tensorflow")
    with pytest.raises(InvalidArgument) as raised:
        check_backend("jax")
    assert str(raised.value) == (
        "KERAS_BACKEND: expected 'tensorflow', for 'codistillation', got 'jax'; set "
        "KERAS_BACKEND=tensorflow before Keras is imported: other backends compile the loss with "
        "the weights that the other workers' models have at first"
    )


@pytest.mark.slow
@pytest.mark.contract
def test_a_training_in_which_nothing_is_taught_warns(gangs):
    warning = (
        "strategy 'codistillation': the other workers' models have taught nothing in the 4 steps "
        "of this fit, with every=2 and burn_in=3; lower these or train longer, and check that the "
        "other workers make at least as many steps as every"
    )
    assert gangs.values(functions.nothing_taught, 2) == [[[warning], [], []]] * 2


@pytest.mark.slow
@pytest.mark.contract
def test_a_loss_that_is_the_same_in_training_and_validation_is_refused(gangs):
    for message in gangs.values(functions.refused_loss, 2):
        assert message == (
            "compute_loss: expected one with an argument 'training', for 'codistillation', got "
            "(x, y, y_pred, sample_weight); add training=True to it, with which Keras tells "
            "training, to which the loss towards the other models is added, from validation"
        )


@pytest.mark.slow
@pytest.mark.contract
def test_a_train_step_that_learns_nothing_from_the_others_is_refused_or_warned_of(gangs):
    refused = (
        "compute_loss: expected the arguments x, y and y_pred in training, for 'codistillation', "
        "got no x; in a train_step of your own call self.compute_loss(x, y, y_pred), and in a "
        "test_step the same with training=False"
    )
    warned = (
        "strategy 'codistillation': the model has learnt nothing from the others, since its "
        "train_step has not called compute_loss; call self.compute_loss(x, y, y_pred) in it"
    )
    assert gangs.values(functions.own_train_steps, 2) == [(refused, [warned])] * 2


@pytest.mark.slow
@pytest.mark.contract
def test_the_weights_of_the_last_two_trainings_alone_are_kept(gangs):
    """A worker that is one training behind the others may still look for those before the last."""
    assert gangs.values(functions.no_longer_kept, 2) == [2, 2]
