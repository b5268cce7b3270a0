"""Whole trainings of two workers out of step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.spark_jobs.strategies.downpour import train_functions as functions

CHECK = [pytest.mark.slow, pytest.mark.contract]
NEVER = 1_000


def assert_close(some, others, atol=1e-6):
    for one, other in zip(some, others, strict=True):
        np.testing.assert_allclose(one, other, atol=atol)


def changes(found):
    return [after - before for after, before in zip(found["alone"], found["initial"], strict=True)]


@pytest.mark.slow
@pytest.mark.contract
def test_the_shared_weights_are_the_sum_of_what_the_workers_have_learnt(gangs):
    """Without an exchange before the end each worker learns what it learns alone."""
    settings = {"fetch_every": NEVER, "push_every": NEVER}
    first, second = gangs.values(functions.alone_and_together, 2, settings)
    both = zip(first["initial"], changes(first), changes(second), strict=True)
    assert_close(first["together"], [sum(parts) for parts in both])
    for one, other in zip(first["together"], second["together"], strict=True):
        np.testing.assert_array_equal(one, other)
    for logs in first["curves"]:
        assert (logs["downpour/staleness"], logs["downpour/waiting"]) == (0, 0)
    assert first["history"] == ["loss"]


@pytest.mark.slow
@pytest.mark.contract
def test_elastic_averaging_moves_the_shared_weights_by_each_worker_in_turn(gangs):
    settings = {"fetch_every": NEVER, "push_every": NEVER, "rule": "easgd", "moving_rate": 0.5}
    first, second = gangs.values(functions.alone_and_together, 2, settings)
    one, other = (np.concatenate([c.ravel() for c in changes(found)]) for found in (first, second))
    moved = [a - b for a, b in zip(first["together"], first["initial"], strict=True)]
    flat = np.concatenate([part.ravel() for part in moved])
    # Each part of the vector has met the workers in an order of its own, or both at once.
    orders = [one / 2 + (other - one / 2) / 2, other / 2 + (one - other / 2) / 2, (one + other) / 2]
    assert np.min([np.abs(flat - expected) for expected in orders], axis=0).max() < 1e-6


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"fetch_every": 1, "push_every": 2}, marks=CHECK),
        pytest.param({"rule": "easgd", "fetch_every": 2, "push_every": 2}, marks=CHECK),
    ],
    ids=str,
)
def test_after_fit_all_workers_have_the_same_weights(gangs, settings):
    first, second = gangs.values(functions.alone_and_together, 2, settings)
    for one, other in zip(first["together"], second["together"], strict=True):
        np.testing.assert_array_equal(one, other)
    for logs in (*first["curves"], *second["curves"]):
        assert logs["downpour/staleness"] >= 0
        assert 0 < logs["downpour/waiting"] <= 1


@pytest.mark.slow
@pytest.mark.contract
def test_a_slow_worker_delays_no_other_one(gangs, tmp_path):
    """The slow one goes on only after the other has made all of its steps."""
    assert gangs.values(functions.one_that_is_slow, 2, str(tmp_path)) == [[0, 1, 2]] * 2


@pytest.mark.slow
@pytest.mark.contract
def test_a_worker_that_has_left_fit_by_an_error_ends_the_wait_of_the_others(gangs):
    """It waited for them after its repeat, and they for it at the end of `fit`, for ever."""
    first, second = gangs.values(functions.left_by_an_error, 2)
    assert second.startswith("MembersDisagree: worker 1 waits for the other workers after 0 steps")
    assert first.startswith("GangBroken: worker 1 at ")


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize(("stopping", "when"), [(0, "epoch"), (1, "batch")])
def test_all_workers_end_fit_if_a_callback_of_one_asks(gangs, stopping, when):
    found = gangs.values(functions.stopped_by_one, 2, stopping, when)
    assert found[stopping]["epochs"] == 2
    assert found[1 - stopping]["epochs"] >= 2
    for one, other in zip(*(each["weights"] for each in found), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.contract
def test_moving_statistics_are_averaged_at_the_end(gangs):
    first, second = gangs.values(functions.normalized, 2)
    means = [(a + b) / 2 for a, b in zip(first["own"], second["own"], strict=True)]
    assert any(np.any(a != b) for a, b in zip(first["own"], second["own"], strict=True))
    for found in (first, second):
        assert_close(found["after"], means)


@pytest.mark.slow
@pytest.mark.contract
def test_weights_that_are_not_trained_stay_the_same_bits(gangs):
    for before, after in gangs.values(functions.frozen, 3):
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.contract
def test_what_a_worker_rounds_is_not_sent_as_a_change(gangs):
    """The sum is 1 + 3/256, which bfloat16 rounds to 1 + 1/64."""
    assert gangs.values(functions.rounded, 3) == [[1 + 1 / 64]] * 3


@pytest.mark.slow
@pytest.mark.contract
def test_fit_may_be_called_in_any_way(gangs):
    first, second = gangs.values(functions.fitted_in_other_ways, 2)
    for one, other in zip(first[0], second[0], strict=True):
        np.testing.assert_array_equal(one, other)
    for found in (first, second):
        assert all(np.all(weights == 1) for weights in found[1])  # those of rank 0
        assert found[2] == ["loss"]


def test_a_checkpoint_that_a_callback_restores_counts_once(gangs):
    for weights in gangs.values(functions.restored, 2):
        assert all(np.all(each == 1) for each in weights)


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("data", ["arrays", "generator"])
def test_a_model_that_fit_builds_has_shared_weights_and_misses_no_batch(gangs, data):
    first, second = gangs.values(functions.built_by_fit, 2, data)
    assert len(first) == 4
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("function", [functions.own_step, functions.own_weights])
def test_a_model_of_an_own_class_has_shared_weights(gangs, function):
    first, second = gangs.values(function, 2)
    assert len(first) == (3 if function is functions.own_weights else 2)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_complex_weights_stay_complex(gangs):
    assert gangs.values(functions.complex_weights, 2) == [[1 + 2j]] * 2


@pytest.mark.slow
@pytest.mark.contract
def test_a_training_that_has_ended_takes_no_memory(gangs):
    assert gangs.values(functions.no_longer_kept, 2) == [0, 0]


@pytest.mark.slow
@pytest.mark.contract
def test_optimizers_that_average_their_weights_are_refused(gangs):
    message = (
        "optimizer: expected one with use_ema=False, for 'downpour', got 'SGD' with use_ema=True; "
        "leave use_ema out: at the end of fit Keras sets the weights to their moving average "
        "before a worker sends its last change, so the shared weights would go back by every "
        "worker's lag"
    )
    assert gangs.values(functions.refused, 2) == [[message] * 2] * 2


@pytest.mark.slow
@pytest.mark.contract
def test_an_adapted_layer_computes_with_the_weights_of_rank_0(gangs):
    first, second = gangs.values(functions.adapted_by_rank_0, 2)
    np.testing.assert_array_equal(first, second)
