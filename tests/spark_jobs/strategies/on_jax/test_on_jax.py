"""Whole trainings of one and two workers with Keras on JAX."""

from __future__ import annotations

import importlib
import os

import numpy as np
import pytest

from search.errors import InvalidArgument
from spark_jobs.strategies.on_jax import selected
from spark_jobs.strategies.on_jax.on_jax import check_backend
from tests.spark_jobs.strategies.on_jax import train_functions as functions
from tests.spark_jobs.strategies.on_jax.train_functions import BATCH


def difference(some, others):
    return max(np.abs(one - other).max() for one, other in zip(some, others, strict=True))


def both(gangs, function, *args):
    """Return what one worker returns, and what each of two returns."""
    (one,) = gangs.values(function, 1, *args)
    return one, *gangs.values(function, 2, *args)


def test_the_backend_is_selected_by_an_import(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    importlib.reload(selected)
    assert os.environ["KERAS_BACKEND"] == "jax"


def test_another_backend_is_refused():
    check_backend("jax")
    with pytest.raises(InvalidArgument, match="KERAS_BACKEND: expected 'jax', for strategy 'jax'"):
        check_backend("tensorflow")


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize(
    ("optimizer", "normalized", "samples"),
    [("adam", None, 20 * BATCH), ("sgd", False, 20 * BATCH + 3)],
    ids=["adam", "sgd, batch normalization and an uneven batch"],
)
def test_two_workers_train_the_model_of_one(jax_gangs, optimizer, normalized, samples):
    one, first, second = both(jax_gangs, functions.trained, optimizer, normalized, samples)
    assert difference(one["weights"], first["weights"]) < 1e-5
    assert difference(first["weights"], second["weights"]) == 0
    for name, values in one["history"].items():
        assert first["history"][name] == second["history"][name]
        assert first["history"][name] == pytest.approx(values, abs=1e-5)
    assert first["evaluated"] == pytest.approx(one["evaluated"], abs=1e-5)
    assert np.allclose(first["predicted"], one["predicted"], atol=1e-4)
    assert np.array_equal(first["predicted"], second["predicted"])


@pytest.mark.slow
@pytest.mark.contract
def test_data_sets_single_batches_and_saved_weights_are_those_of_one_worker(jax_gangs, tmp_path):
    one, first, second = both(jax_gangs, functions.other_ways, str(tmp_path))
    for found in (first, second):
        assert difference(one["weights"], found["weights"]) < 1e-5
        assert difference(found["weights"], found["loaded"]) == 0
        assert found["loss"] == pytest.approx(one["loss"], abs=1e-5)
        for name in ("single", "called"):
            assert np.allclose(found[name], one[name], atol=1e-4)


@pytest.fixture(scope="module")
def two(jax_gangs):
    """What two workers see."""
    return jax_gangs.values(functions.observed, 2)


@pytest.mark.slow
@pytest.mark.contract
def test_all_workers_draw_the_same_random_numbers(two):
    first, second = two
    assert first["drawn"] == second["drawn"]
    assert first["orders"] == second["orders"]
    assert first["orders"][0] != first["orders"][1]


@pytest.mark.slow
@pytest.mark.contract
def test_all_workers_leave_fit_if_a_callback_of_one_asks(two):
    assert [found["epochs"] for found in two] == [2, 2]


@pytest.mark.slow
@pytest.mark.contract
def test_no_port_answers_at_another_address_than_the_worker_s(two):
    assert [found["listens"] for found in two] == [
        {"127.0.0.1", "::ffff:127.0.0.1"},  # JAX's server, and Gloo
        {"127.0.0.1"},
    ]


@pytest.mark.slow
@pytest.mark.contract
def test_the_end_of_a_worker_is_an_error_in_the_other(jax_gangs):
    first, second = jax_gangs.ended(functions.killed, 2)
    assert second.code == -9
    assert first.value is None or "Connection" in first.value or "closed" in first.value, first
