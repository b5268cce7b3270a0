"""The speed on several workers follows from measured parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.planning.training_plan import Exchange, training_plan

SECONDS = st.floats(1e-6, 10)
NUMBERS = st.lists(st.integers(1, 64), min_size=1, max_size=5, unique=True).map(sorted)


EXCHANGE = Exchange(nothing=0.002, gradients=0.02)


def plan_of(workers=(1, 2, 4), exchange=EXCHANGE, **measured):
    return training_plan(
        workers,
        **{
            "step_seconds": 0.2,
            "gradient_bytes": 4_000_000,
            "exchange": exchange,
            "batch_size": 64,
            "learning_rate": 0.1,
            **measured,
        },
    )


def test_one_worker_exchanges_nothing():
    assert Exchange(nothing=0.1, gradients=1.0).seconds(1) == 0


def test_the_exchange_of_two_is_the_measured_one():
    assert Exchange(nothing=0.002, gradients=0.02).seconds(2) == pytest.approx(0.02)


def test_the_exchange_of_four_sends_half_as_much_in_three_times_as_many_messages():
    # 6 messages of 0.001 s, and 6/4 of all bytes, where two workers send all of them.
    assert Exchange(nothing=0.002, gradients=0.02).seconds(4) == pytest.approx(0.006 + 1.5 * 0.018)


def test_an_exchange_of_all_that_seems_quicker_than_one_of_nothing_is_that_of_messages():
    assert Exchange(nothing=0.004, gradients=0.003).seconds(2) == pytest.approx(0.004)


def test_the_speeds_are_those_of_computing_in_parts_and_of_the_exchange():
    one, two, four = plan_of().speeds
    assert (one.step_seconds, one.speedup, one.busy, one.larger_speedup) == (0.2, 1, 1, 1)
    assert two.step_seconds == pytest.approx(0.12)
    assert two.speedup == pytest.approx(0.2 / 0.12)
    assert two.busy == pytest.approx(0.1 / 0.12)
    assert two.larger_speedup == pytest.approx(2 * 0.2 / 0.22)
    assert (four.larger_batch, four.larger_rate) == (256, 0.4)


def test_the_rate_of_an_adaptive_optimizer_grows_with_the_square_root_of_the_batch():
    *_, four = plan_of(rule="sqrt").speeds
    assert (four.larger_batch, four.larger_rate) == (256, 0.2)


def test_what_is_not_known_is_left_out():
    (two,) = plan_of([2], batch_size=None, learning_rate=None).speeds
    assert two.larger_batch is None
    assert two.larger_rate is None


def test_the_largest_number_whose_workers_are_busy_pays():
    assert [s.busy >= 0.7 for s in plan_of().speeds] == [True, True, False]
    assert plan_of().workers == 2


def test_if_none_pays_the_smallest_number_is_named():
    plan = plan_of([2, 4], step_seconds=0.001)
    assert plan.workers == 2
    assert repr(plan).splitlines()[-1] == (
        "2 workers with the same batch, the fewest asked for: computing takes less than 70% of "
        "each step"
    )


def test_a_plan_is_a_table_with_its_advice():
    assert repr(plan_of([1, 2])).splitlines() == [
        "measured: a step of 64 samples takes 0.2 s on one worker, gradients have 4 MB, two "
        "workers exchange them in 0.02 s:",
        "  workers  same batch: s a step  speed  busy  larger batch  rate  speed",
        "        1                   0.2   1.00  100%            64   0.1   1.00",
        "        2                  0.12   1.67   83%           128   0.2   1.82",
        "2 workers with the same batch: computing takes at least 70% of each step",
    ]
    text = repr(plan_of([1], exchange=None, batch_size=None, learning_rate=None))
    assert text.startswith("measured: a step takes 0.2 s on one worker, gradients have 4 MB:")
    assert repr(plan_of()).splitlines()[-1] == (
        "2 workers with the same batch: with more, computing takes less than 70% of each step"
    )


def test_a_notebook_shows_the_same_numbers():
    shown = plan_of()._repr_html_()
    assert "1.67" in shown
    assert "2 workers with the same batch" in shown


@given(NUMBERS, SECONDS, SECONDS, SECONDS)
def test_no_number_is_faster_than_its_workers_together(workers, step, nothing, gradients):
    exchange = Exchange(nothing=nothing, gradients=gradients)
    plan = plan_of(workers, exchange, step_seconds=step)
    for speed in plan.speeds:
        assert 0 < speed.busy <= 1
        assert speed.speedup <= speed.workers * (1 + 1e-9)
        assert speed.larger_speedup <= speed.workers * (1 + 1e-9)
    assert plan.workers in workers
    assert repr(plan)
