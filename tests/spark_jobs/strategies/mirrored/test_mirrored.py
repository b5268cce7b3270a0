"""Whole trainings of one and two workers."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import pytest

from tests.spark_jobs.strategies.mirrored import train_functions as functions
from tests.spark_jobs.strategies.mirrored.train_functions import BATCH

CHECK = [pytest.mark.slow, pytest.mark.contract]


def difference(some, others):
    return max(np.abs(one - other).max() for one, other in zip(some, others, strict=True))


def both(gangs, function, *args):
    """Return what one worker returns, and what each of two returns."""
    (one,) = gangs.values(function, 1, *args)
    return one, *gangs.values(function, 2, *args)


MUON = pytest.mark.skipif(
    tuple(map(int, version("keras").split(".")[:2])) < (3, 13),
    reason="its Muon asks TensorFlow's variables for a path",
)


@pytest.mark.parametrize(
    ("optimizer", "normalized"),
    [
        ("sgd", None),
        pytest.param("adam", None, marks=CHECK),
        pytest.param("lamb", None, marks=pytest.mark.slow),
        pytest.param("muon", None, marks=[pytest.mark.slow, MUON]),
        pytest.param("sgd", True, marks=CHECK),
    ],
)
def test_two_workers_train_the_model_of_one(gangs, optimizer, normalized):
    one, first, second = both(gangs, functions.trained, optimizer, normalized, 20 * BATCH)
    assert difference(one["weights"], first["weights"]) < 1e-5
    assert difference(first["weights"], second["weights"]) == 0
    for name, values in one["history"].items():
        assert first["history"][name] == second["history"][name]
        assert first["history"][name] == pytest.approx(values, abs=1e-5)
    assert first["evaluated"] == pytest.approx(one["evaluated"], abs=1e-5)
    assert np.allclose(first["predicted"], one["predicted"], atol=1e-4)
    assert first["warnings"] == []


@pytest.mark.slow
@pytest.mark.contract
def test_two_workers_clip_and_accumulate_gradients_and_reduce_losses_as_one(gangs):
    one, first, second = both(gangs, functions.trained_with)
    for name, found in first.items():
        assert difference(one[name]["weights"], found["weights"]) < 1e-5, name
        assert difference(found["weights"], second[name]["weights"]) == 0, name
        assert found["losses"] == pytest.approx(one[name]["losses"], abs=1e-5), name


@pytest.mark.slow
@pytest.mark.contract
def test_all_workers_skip_a_step_in_which_the_gradient_of_one_is_infinite(gangs):
    one, first, second = both(gangs, functions.trained_with_an_infinite_gradient)
    assert difference(one["weights"], first["weights"]) < 1e-5
    assert difference(first["weights"], second["weights"]) == 0
    for found in (one, first, second):
        assert (found["scale"], found["steps"]) == (512, 3)


@pytest.mark.slow
@pytest.mark.contract
def test_two_workers_train_the_model_of_one_in_an_own_loop(gangs):
    one, first, second = both(gangs, functions.trained_by_own_loop)
    assert difference(one, first) < 1e-5
    assert difference(first, second) == 0


@pytest.mark.slow
@pytest.mark.contract
def test_a_last_batch_with_fewer_samples_than_workers_is_trained_on_as_by_one(gangs):
    one, first, second = both(gangs, functions.trained, "sgd", True, 5 * BATCH + 1)
    assert difference(one["weights"], first["weights"]) < 1e-5
    assert difference(first["weights"], second["weights"]) == 0
    assert first["evaluated"] == pytest.approx(one["evaluated"], abs=1e-5)
    assert first["warnings"] == []


@pytest.mark.slow
@pytest.mark.contract
def test_an_uneven_last_batch_and_unsynchronized_normalization_are_warned_of(gangs):
    one, first, second = both(gangs, functions.trained, "sgd", False, 2 * BATCH + 3)
    assert one["warnings"] == []
    normalization, uneven = first["warnings"]
    assert "'norm'" in normalization
    assert "BatchNormalization(synchronized=True)" in normalization
    assert "a batch of 3 samples is not divided by 2 workers" in uneven
    assert "drop_remainder" in uneven
    assert first["warnings"] == second["warnings"]


@pytest.mark.slow
@pytest.mark.contract
def test_a_loss_that_divides_by_the_weights_of_each_part_is_warned_of(gangs):
    first, second = gangs.values(functions.warned_of_weights, 2)
    assert first == second
    assert first["mask of a sum"] == first["no mask"] == []
    for name, cause in (("mask", "a mask of the model's output"), ("sum of weights", "mean_with")):
        (warning,) = first[name]
        assert warning.startswith(cause)
        assert "the result depends on the number of workers" in warning


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize(("kind", "steps"), [("shuffled", 12), ("filtered", 10), ("generator", 6)])
def test_data_of_any_length_is_trained_on_to_its_end(gangs, kind, steps):
    first, second = gangs.values(functions.trained_on_dataset, 2, kind)
    assert first["steps"] == second["steps"] == steps
    assert difference(first["weights"], second["weights"]) == 0


@pytest.mark.slow
@pytest.mark.contract
def test_an_epoch_has_each_batch_of_a_pydataset_once(gangs):
    for found in both(gangs, functions.batches_of_a_pydataset):
        for name, epochs in found.items():
            batches = epochs if "shuffle=False" in name else map(sorted, epochs)
            assert list(batches) == [[1, 2, 4, 8, 16, 32]] * 2, name


@pytest.mark.slow
@pytest.mark.contract
def test_an_epoch_of_all_workers_has_each_sample_once_and_another_order_than_the_last(gangs):
    first, second = gangs.values(functions.seen_in_epochs, 2)
    for own, others in zip(first, second, strict=True):
        assert sorted(own + others) == list(range(101))
    assert len({tuple(epoch) for epoch in first}) == len(first) == 10


@pytest.mark.slow
@pytest.mark.contract
def test_iterators_may_be_deleted_before_their_end(gangs):
    """`OwnedMultiDeviceIterator` crashes the process then, in a third of all trainings or so."""
    for types in gangs.values(functions.iterators_of_data, 2):
        assert types == ["OwnedIterator"] * 3


@pytest.mark.slow
@pytest.mark.contract
def test_all_workers_draw_the_same_random_numbers(gangs):
    first, second = gangs.values(functions.numbers_drawn, 2)
    assert first == second
    assert all(first)


@pytest.mark.slow
def test_variables_of_an_optimizer_are_read_as_by_one_worker(gangs):
    one = gangs.values(functions.numbers_of_variables, 1)
    assert gangs.values(functions.numbers_of_variables, 2) == one * 2


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("when", ["epoch", "batch"])
def test_all_workers_leave_fit_if_a_callback_of_one_asks(gangs, when):
    first, second = gangs.values(functions.stopped_by_one, 2, when)
    assert first == second
    assert first["epochs"] == 2
    assert first["given"] == ["Stop", "History"]  # unchanged, for the next fit


@pytest.mark.slow
@pytest.mark.contract
def test_numbers_of_an_own_train_step_are_averaged_over_the_workers(gangs):
    first, second = gangs.values(functions.own_train_step, 2)
    assert first == second
    assert first == {
        "samples": [32.5, 32.5],
        "pair": [[32.5, 65.0], [32.5, 65.0]],
        "negative": [-32.5, -32.5],
    }


@pytest.mark.slow
@pytest.mark.contract
def test_a_step_of_fit_exchanges_the_gradients_alone(gangs):
    few, many = gangs.values(functions.collectives_of_steps, 2)[0]
    assert many - few == 20


@pytest.mark.slow
@pytest.mark.contract
def test_a_worker_that_is_silent_on_a_busy_host_is_not_taken_for_dead(gangs):
    assert gangs.values(functions.silence_of_dead, 2) == [600.0, 600.0]


@pytest.mark.slow
@pytest.mark.contract
def test_the_end_of_a_worker_is_an_error_in_the_other(gangs):
    first, second = gangs.ended(functions.killed, 2)
    assert second.code == -9
    assert first.value in {"UnavailableError", "InternalError", "AbortedError", "CancelledError"}


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("how", ["batches", "epochs"])
def test_a_worker_that_makes_fewer_steps_fails_and_ends_the_wait_of_the_others(gangs, how):
    """TensorFlow would wait for its gradients, and it for the others' end, for ever."""
    _, second = gangs.values(functions.trained_unequally, 2, how)
    assert second.startswith("worker 1 waits for the other workers after ")
    assert "but worker 0 has begun another one, in which it waits for worker 1" in second


@pytest.mark.slow
@pytest.mark.contract
def test_fit_is_refused_in_a_version_of_keras_that_was_not_checked(gangs):
    for found in gangs.values(functions.unchecked, 2):
        assert len(found) == 2
        for message in found:
            assert message.startswith("UncheckedKeras: model.fit over several workers was checked")
            assert "this is 3.99.0" in message


@pytest.mark.slow
@pytest.mark.contract
def test_several_steps_in_one_execution_are_refused(gangs):
    for message in gangs.values(functions.several_steps_at_once, 2):
        assert message.startswith("steps_per_execution: expected 1 on several workers, got 4 steps")


@pytest.mark.slow
@pytest.mark.contract
def test_the_port_of_tensorflow_answers_at_the_address_of_the_worker_only(gangs):
    for answers in gangs.values(functions.answers_of_port, 2):
        assert [address for address, answered in answers.items() if answered] == ["127.0.0.1"]
        assert len(answers) > 1
