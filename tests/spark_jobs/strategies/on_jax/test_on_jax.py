"""Whole trainings of one and two workers with Keras on JAX."""

from __future__ import annotations

import os
import runpy

import numpy as np
import pytest

from search.errors import InvalidArgument
from spark_jobs.strategies.on_jax.on_jax import check_backend
from tests.spark_jobs.strategies.on_jax import train_functions as functions


def difference(some, others):
    return max(np.abs(one - other).max() for one, other in zip(some, others, strict=True))


def test_the_backend_is_selected_by_an_import(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    # An import in this module would select it for all tests of the process.
    runpy.run_module("spark_jobs.strategies.on_jax.selected")
    assert os.environ["KERAS_BACKEND"] == "jax"


def test_another_backend_is_refused():
    check_backend("jax")
    with pytest.raises(InvalidArgument, match="KERAS_BACKEND: expected 'jax', for strategy 'jax'"):
        check_backend("tensorflow")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def one(jax_gangs, folder):
    """What one worker makes of several trainings."""
    (found,) = jax_gangs.values(functions.everything, 1, folder)
    return found


@pytest.fixture(scope="module")
def two(jax_gangs, folder):
    """What each of two workers makes of them."""
    return jax_gangs.values(functions.everything, 2, folder)


@pytest.fixture(scope="module")
def halves(jax_gangs, folder):
    """What each of two workers makes of a model that is cut over them."""
    return jax_gangs.values(functions.cut, 2, folder)


def check_same(training, one, found):
    """Check that a training of a worker among several is that of one worker alone."""
    own, others = one[training], found[training]
    assert difference(own["weights"], others["weights"]) < 1e-5
    for name, values in own["history"].items():
        assert others["history"][name] == pytest.approx(values, abs=1e-5)
    assert others["evaluated"] == pytest.approx(own["evaluated"], abs=1e-5)
    assert np.allclose(own["predicted"], others["predicted"], atol=1e-4)


def check_other_ways(one, found):
    """Check the same of a data set, of single batches and of saved weights."""
    own, others = one["other ways"], found["other ways"]
    assert difference(own["weights"], others["weights"]) < 1e-5
    assert difference(others["weights"], others["loaded"]) == 0
    assert others["loss"] == pytest.approx(own["loss"], abs=1e-5)
    assert np.allclose(own["single"], others["single"], atol=1e-4)


@pytest.mark.slow
@pytest.mark.contract
def test_two_workers_train_the_model_of_one(one, two):
    for found in two:
        check_same("adam", one, found)
        check_same("sgd", one, found)  # with batch normalization and an uneven batch
        check_other_ways(one, found)
        assert np.allclose(one["called"], found["called"], atol=1e-4)
    first, second = two
    assert difference(first["sgd"]["weights"], second["sgd"]["weights"]) == 0
    assert first["sgd"]["history"] == second["sgd"]["history"]


@pytest.mark.slow
@pytest.mark.contract
def test_own_steps_and_loops_of_two_workers_train_the_model_of_one(jax_gangs):
    (one,) = jax_gangs.values(functions.own_ways, 1)
    first, second = jax_gangs.values(functions.own_ways, 2)
    for way in ("step", "loop"):
        assert difference(one[way], first[way]) < 1e-5
        assert difference(first[way], second[way]) == 0


@pytest.mark.slow
def test_optimizers_for_large_batches_train_the_model_of_one(jax_gangs):
    (one,) = jax_gangs.values(functions.of_large_batches, 1)
    for found in jax_gangs.values(functions.of_large_batches, 2):
        check_same("lamb", one, found)
        check_same("muon", one, found)


@pytest.mark.slow
def test_a_model_that_is_cut_over_two_workers_is_trained_as_by_one(one, halves):
    for found in halves:
        check_same("adam", one, found)
        check_other_ways(one, found)


@pytest.mark.slow
@pytest.mark.contract
def test_each_worker_has_one_half_of_a_model_that_is_cut(halves):
    for found in halves:
        weights = [(64, 16), (16,), (32, 5), (5,)]
        of_optimizer = [(), (), *weights]  # steps, learning rate, momenta
        assert found["parts"] == [*weights, *of_optimizer]


@pytest.mark.slow
@pytest.mark.contract
def test_a_layout_that_cuts_no_weight_of_a_model_is_refused(halves):
    for found in halves:
        assert found["refused"].startswith("layout: expected an expression that matches one of ")
        assert "/last/kernel" in found["refused"]


@pytest.mark.slow
@pytest.mark.contract
def test_all_workers_leave_fit_if_a_callback_of_one_asks(two):
    assert [found["seen"]["epochs"] for found in two] == [2, 2]


@pytest.mark.slow
@pytest.mark.contract
def test_no_port_answers_at_another_address_than_the_worker_s(two):
    assert [found["seen"]["listens"] for found in two] == [
        {"127.0.0.1", "::ffff:127.0.0.1"},  # JAX's server, and Gloo
        {"127.0.0.1"},
    ]


@pytest.mark.slow
@pytest.mark.contract
def test_all_workers_draw_the_same_random_numbers(two):
    first, second = (found["drawn"] for found in two)
    assert first == second
    assert first["orders"][0] != first["orders"][1]


@pytest.mark.slow
@pytest.mark.contract
def test_a_worker_whose_data_end_earlier_does_not_wait_for_ever(jax_gangs):
    """Keras begins one more step to find the end of data of unknown length."""
    first, _ = jax_gangs.ended(functions.ended_earlier, 2)  # the other one ends as JAX ends it
    assert first.value.startswith("worker 0 waits for the other workers after 4 steps that ")


@pytest.mark.slow
@pytest.mark.contract
def test_the_end_of_a_worker_is_an_error_in_the_other(jax_gangs):
    first, second = jax_gangs.ended(functions.killed, 2)
    assert second.code == -9
    assert first.value is None or "Connection" in first.value or "closed" in first.value, first


@pytest.mark.slow
@pytest.mark.contract
def test_a_process_in_which_jax_has_run_is_refused(jax_gangs):
    for ended in jax_gangs.ended(functions.late, 2):
        assert ended.code == 1
        assert "preload: expected modules that run no operation of JAX" in ended.value
