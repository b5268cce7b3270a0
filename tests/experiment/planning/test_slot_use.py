"""The arithmetic of a plan, compared with simulated slots."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.planning.slot_use import idle_when_equal, idle_when_exponential, trials_per_slot

few = st.integers(1, 40)


def span(times, slots):
    """Return when the last trial ends; each free slot takes the next one."""
    free = [0.0] * slots
    for seconds in times:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


@given(few, few, few)
def test_trials_per_slot_count_those_that_run_one_after_the_other(trials, batch, slots):
    sizes = [min(batch, trials - first) for first in range(0, trials, batch)]
    assert trials_per_slot(trials, batch, slots) == sum(span([1.0] * size, slots) for size in sizes)


@given(few, few)
def test_idle_time_of_trials_of_the_same_length_is_that_of_slots_without_a_last_trial(batch, slots):
    busy = batch / (slots * span([1.0] * batch, slots))
    assert idle_when_equal(batch, slots) == pytest.approx(1 - busy)


@given(few, few)
def test_shares_are_shares_and_one_slot_never_waits(batch, slots):
    for idle in (idle_when_equal, idle_when_exponential):
        assert -1e-12 <= idle(batch, slots) < 1
        assert idle(batch, 1) == pytest.approx(0, abs=1e-12)


def test_a_batch_may_be_larger_than_any_float():
    assert trials_per_slot(10**330, 10**330, 2) == 5 * 10**329
    assert idle_when_equal(10**330, 3) == pytest.approx(0)
    assert idle_when_exponential(10**330, 3) == pytest.approx(0)


@pytest.mark.parametrize(("batch", "slots"), [(1, 1), (2, 2), (10, 4), (10, 10), (4, 10), (50, 8)])
def test_idle_time_of_trials_of_exponential_length_matches_the_formula(batch, slots):
    times = np.random.default_rng(0).exponential(size=(20_000, batch))
    mean = np.mean([span(some, slots) for some in times])
    assert idle_when_exponential(batch, slots) == pytest.approx(
        1 - batch / (slots * mean), abs=0.01
    )
