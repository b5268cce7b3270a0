"""The loss towards other models' predictions, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, log_expit, log_softmax, softmax

from search.errors import InvalidArgument
from spark_jobs.strategies.codistillation.cross_entropy import cross_entropy_of

OWN, ONE, ANOTHER = np.random.default_rng(0).normal(size=(3, 5, 4))  # logits


def keras_module():
    import keras

    return keras


def probabilities(kind, logits):
    return softmax(logits, axis=1) if kind == "categorical" else expit(logits)


def expected(kind, target, logits):
    if kind == "categorical":
        return -(target * log_softmax(logits, axis=1)).sum(axis=1).mean()
    return -(target * log_expit(logits) + (1 - target) * log_expit(-logits)).mean()


@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("kind", ["categorical", "binary"])
def test_the_loss_is_towards_the_mean_of_the_models_that_teach(kind, from_logits):
    keras = keras_module()
    made = {"categorical": "CategoricalCrossentropy", "binary": "BinaryCrossentropy"}[kind]
    loss = cross_entropy_of(keras, getattr(keras.losses, made)(from_logits=from_logits))
    teaches_nothing = np.full_like(OWN, np.nan)  # its weights may be any
    models = [OWN, ONE, teaches_nothing, ANOTHER]
    predicted = models if from_logits else [probabilities(kind, each) for each in models]
    own, *others = (keras.ops.convert_to_tensor(each, "float64") for each in predicted)
    counted = keras.ops.convert_to_tensor([1.0, 0.0, 1.0])
    mean = (probabilities(kind, ONE) + probabilities(kind, ANOTHER)) / 2
    found = float(loss.towards(keras, others, counted, own))
    assert found == pytest.approx(expected(kind, mean, OWN), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "settings", "found"),
    [
        ("categorical_crossentropy", None, ("categorical", False)),
        ("sparse_categorical_crossentropy", None, ("categorical", False)),
        ("binary_crossentropy", None, ("binary", False)),
        ("CategoricalCrossentropy", {}, ("categorical", False)),
        ("SparseCategoricalCrossentropy", {"from_logits": True}, ("categorical", True)),
        ("BinaryCrossentropy", {"from_logits": True}, ("binary", True)),
    ],
)
def test_the_loss_is_that_which_the_model_was_compiled_with(name, settings, found):
    keras = keras_module()
    known = getattr(keras.losses, name)
    if settings is None:
        assert cross_entropy_of(keras, name) == cross_entropy_of(keras, known) == found
    else:
        assert cross_entropy_of(keras, known(**settings)) == found


@pytest.mark.parametrize(
    ("name", "settings", "got"),
    [
        ("CategoricalCrossentropy", {"axis": 1}, "axis=1, ignore_class=None"),
        ("SparseCategoricalCrossentropy", {"ignore_class": 0}, "axis=-1, ignore_class=0"),
    ],
)
def test_a_loss_over_another_axis_or_without_a_class_is_refused(name, settings, got):
    keras = keras_module()
    with pytest.raises(InvalidArgument) as raised:
        cross_entropy_of(keras, getattr(keras.losses, name)(**settings))
    assert str(raised.value) == (
        "loss: expected a cross-entropy over the last axis and all classes, for 'codistillation', "
        f"got {got}; leave axis and ignore_class out: the loss towards the other models has neither"
    )


def test_a_certain_prediction_of_16_bits_has_a_finite_loss():
    """1 - epsilon is 1 in these: so is a probability above 0.998."""
    keras = keras_module()
    loss = cross_entropy_of(keras, "binary_crossentropy")
    own = keras.ops.convert_to_tensor([[1.0], [0.0]], "bfloat16")
    found = loss.towards(keras, [own], keras.ops.ones(1), own)
    assert float(found) == pytest.approx(0, abs=1e-5)
