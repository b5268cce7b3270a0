"""The loss towards other models' predictions, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, log_expit, log_softmax, softmax

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
