"""The arithmetic of a plan, against slots that are played through."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.planning.waves import idle_when_equal, idle_when_exponential, waves

few = st.integers(1, 40)


def span(times, slots):
    """Return when the last of some trials ends; whoever is free takes the next one."""
    free = [0.0] * slots
    for seconds in times:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


@given(few, few, few)
def test_waves_are_trials_one_after_the_other(trials, batch, slots):
    sizes = [min(batch, trials - first) for first in range(0, trials, batch)]
    assert waves(trials, batch, slots) == sum(span([1.0] * size, slots) for size in sizes)


@given(few, few)
def test_trials_of_the_same_length_leave_the_rest_of_the_last_wave_idle(batch, slots):
    busy = batch / (slots * span([1.0] * batch, slots))
    assert idle_when_equal(batch, slots) == pytest.approx(1 - busy)


@given(few, few)
def test_shares_are_shares_and_one_slot_never_waits(batch, slots):
    for idle in (idle_when_equal, idle_when_exponential):
        assert -1e-12 <= idle(batch, slots) < 1
        assert idle(batch, 1) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("batch", "slots"), [(1, 1), (2, 2), (10, 4), (10, 10), (4, 10), (50, 8)])
def test_trials_of_exponential_length_idle_as_the_formula_says(batch, slots):
    times = np.random.default_rng(0).exponential(size=(20_000, batch))
    mean = np.mean([span(some, slots) for some in times])
    assert idle_when_exponential(batch, slots) == pytest.approx(
        1 - batch / (slots * mean), abs=0.01
    )
