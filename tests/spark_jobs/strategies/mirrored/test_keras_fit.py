"""What is refused in `model.fit` of several workers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from spark_jobs.strategies.mirrored.keras_fit import problem_of_backend

REFUSED = (
    "KERAS_BACKEND: expected 'tensorflow', for strategy 'mirrored', got 'jax'; pass strategy='jax' "
    "for Keras on JAX, or 'downpour', which trains with each backend"
)

ON_JAX = """
import numpy as np
from spark_jobs.strategies.mirrored.keras_fit import corrected_fit

def train(call):
    try:
        call(np.ones((4, 1)), np.ones((4, 1)))
    except Exception as error:
        return str(error)

with corrected_fit(None, None, None):
    import keras

    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    print(train(model.fit))
    print(train(model.train_on_batch))
print(train(model.train_on_batch))
"""


def test_other_backends_of_keras_are_refused():
    assert problem_of_backend("tensorflow") is None
    assert str(problem_of_backend("jax")) == REFUSED


@pytest.mark.slow
@pytest.mark.contract
def test_a_model_on_another_backend_is_not_trained_by_each_worker_for_itself():
    pytest.importorskip("jax", reason="needs the extra jax")
    ended = subprocess.run(
        [sys.executable, "-c", ON_JAX],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"KERAS_BACKEND": "jax"},
    )
    assert ended.stdout.splitlines() == [REFUSED, REFUSED, "None"]
