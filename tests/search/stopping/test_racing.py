"""Racing of repeats by Student's and by Wilcoxon's test."""

import math
import sys
from statistics import fmean, variance

import pytest
from scipy.stats import t

from search.direction import Direction
from search.errors import InvalidArgument
from search.stopping.racing import StudentRacing, WilcoxonRacing
from tests.benchmarks.searches.racing import race


def judge(direction=Direction.MAX, **arguments):
    return WilcoxonRacing(**arguments).start(direction)


def student(direction=Direction.MAX, **arguments):
    """Return a judge that knows the noise: the mean of trial 0 is 0.88, 0.02 above trial 1."""
    it = StudentRacing(**arguments).start(direction)
    for trial, values in enumerate(([0.9, 0.8, 0.95, 0.85, 0.9], [0.88, 0.8, 0.91, 0.83, 0.88])):
        assert raced(it, trial, [direction.weight * value for value in values]) is None
    return it


def raced(it, trial, values):
    """Report repeats until the trial is stopped or has all; return the reason."""
    for step, value in enumerate(values):
        if (reason := it.report(trial, step, value)) is not None:
            it.ended(trial, "stopped")
            return reason
    it.ended(trial)
    return None


GOOD = [0.9, 0.8, 0.95, 0.85, 0.9, 0.88]


@pytest.mark.parametrize("direction", Direction)
def test_a_trial_that_is_worse_in_every_repeat_is_stopped(direction):
    sign = direction.weight
    it = judge(direction)
    assert raced(it, 0, [sign * value for value in GOOD]) is None
    reason = raced(it, 1, [sign * (value - 0.1 - i / 100) for i, value in enumerate(GOOD)])
    assert reason == "step 3: worse than trial 0 in 4 repeats (p = 0.062)"


def test_a_better_trial_finishes_and_is_the_best_from_then_on():
    it = judge()
    raced(it, 0, GOOD)
    assert raced(it, 1, [value + 0.01 for value in GOOD]) is None
    assert "worse than trial 1 " in raced(it, 2, [value - 0.01 * i for i, value in enumerate(GOOD)])


def test_an_equal_trial_finishes():
    it = judge()
    raced(it, 0, GOOD)
    assert raced(it, 1, GOOD) is None


def test_a_trial_whose_mean_is_no_worse_than_the_best_is_not_stopped():
    it = judge()
    raced(it, 0, [1.0, 2.0, 3.0, 4.0, -100.0])
    assert raced(it, 1, [0.0, 1.0, 2.0, 3.0, 4.0]) is None


def test_nothing_is_stopped_before_a_trial_has_finished():
    it = judge()
    assert [it.report(0, step, -1.0) for step in range(9)] == [None] * 9
    it.ended(0, "failed")
    assert [it.report(1, step, -2.0) for step in range(9)] == [None] * 9


def test_a_repeat_without_a_value_is_the_worst():
    it = judge()
    raced(it, 0, GOOD)
    assert raced(it, 1, [float("nan")] * 6) is not None
    assert raced(it, 2, [None, *(value - 0.1 for value in GOOD[1:])]) is not None


def test_a_repeat_that_is_reported_again_counts_once_and_ended_trials_not_at_all():
    it = judge(n_startup_steps=1, p_threshold=0.3)
    raced(it, 0, GOOD)
    assert it.report(1, 0, 0.1) is None
    assert it.report(1, 0, 0.1) is None
    assert it.report(1, 1, 0.1) is not None
    assert it.report(1, 1, 0.1) is not None
    it.ended(1, "stopped")
    assert it.report(1, 2, 0.1) is None


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [
        (WilcoxonRacing, {"p_threshold": 0}),
        (WilcoxonRacing, {"n_startup_steps": 0}),
        (StudentRacing, {"p_threshold": 1.5}),
    ],
)
def test_arguments_are_checked(rule, arguments):
    with pytest.raises(InvalidArgument, match=next(iter(arguments))):
        rule(**arguments)


@pytest.mark.parametrize("direction", Direction)
def test_with_the_noise_of_finished_trials_one_repeat_may_be_enough(direction):
    assert raced(student(direction), 2, [direction.weight * 0.8] * 5) == (
        "step 0: worse than trial 0 in 1 repeat (p = 0.0015)"
    )
    assert raced(student(direction), 2, [direction.weight * 0.87] * 5) is None


def test_p_is_students_with_the_variance_that_finished_trials_had():
    noise = variance([-0.02, 0.0, -0.04, -0.02, -0.02]) / (1 - 2 / (9 * 4)) ** 3
    reason = raced(student(), 2, [0.87, 0.77, 0.0])
    p = t.cdf(-0.03 * math.sqrt(2) / math.sqrt(noise), 4)
    assert reason == f"step 1: worse than trial 0 in 2 repeats (p = {p:.2g})"


def test_nothing_is_stopped_while_the_noise_is_unknown():
    it = StudentRacing().start(Direction.MAX)
    assert raced(it, 0, GOOD) is None
    assert raced(it, 1, GOOD) is None  # equal in all repeats, which tells nothing
    assert raced(it, 2, [value - 0.5 for value in GOOD]) is None
    assert raced(it, 3, [value - 0.5 for value in [*GOOD[:-1], 0.8]]) is None
    assert raced(it, 4, [value - 0.5 for value in GOOD]) is not None


def test_a_repeat_without_a_value_stops_a_trial():
    it = StudentRacing().start(Direction.MAX)
    assert raced(it, 0, [float("nan")] * 3) is None
    assert raced(it, 1, GOOD) is None
    assert "in 2 repeats (p = 0)" in raced(it, 2, [0.9, None])


RACES = [race(seed, rules=[StudentRacing()], repeats=10) for seed in range(20)]
WITHOUT = [race(seed, rules=[], repeats=10) for seed in range(20)]


def test_a_race_finds_what_all_repeats_would_have_found_with_half_of_them():
    assert [it.found for it in RACES] == [it.found for it in WITHOUT]
    assert fmean(it.share for it in RACES) <= 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "repeats", "right", "share"),
    [
        (StudentRacing(), 10, 0.95, 0.5),
        (StudentRacing(), 20, 0.95, 0.5),
        (WilcoxonRacing(), 20, 0.95, 0.5),
    ],
)
def test_the_best_configuration_is_found_with_at_most_half_of_the_repeats(
    rule, repeats, right, share
):
    races = [race(seed, rules=[rule], repeats=repeats) for seed in range(100)]
    assert fmean(it.found for it in races) >= right
    assert fmean(it.share for it in races) <= share


@pytest.mark.slow
def test_five_repeats_find_as_much_with_about_half_of_them():
    """All five are too few to find it in 95 of 100 searches."""
    races = [race(seed, rules=[StudentRacing()], repeats=5) for seed in range(100)]
    without = [race(seed, rules=[], repeats=5) for seed in range(100)]
    assert sum(it.found for it in races) >= sum(it.found for it in without) - 2
    assert fmean(it.share for it in races) <= 0.55


def test_penalties_as_large_as_a_float_can_be_are_compared():
    it = judge(Direction.MIN)
    raced(it, 0, [1.0] * 6)
    assert "worse than trial 0" in raced(it, 1, [sys.float_info.max] * 6)
    it = judge(Direction.MIN)
    raced(it, 0, [sys.float_info.max] * 6)
    assert raced(it, 1, [1.0] * 6) is None


def test_one_trial_of_penalties_hides_no_other_from_the_test():
    it = student(Direction.MIN)
    for step, value in enumerate([-1.0, -1.0, -1.0, -1.0, sys.float_info.max]):
        it.report(2, step, value)
    it.ended(2)  # the request to stop came too late
    assert raced(it, 3, [-0.87, -0.79, -0.95, -0.83, -0.88]) is None
    assert "worse than trial 0 in 1 repeat" in raced(it, 4, [sys.float_info.max])
    assert "worse than trial 0 in 1 repeat" in raced(it, 5, [-0.7])
