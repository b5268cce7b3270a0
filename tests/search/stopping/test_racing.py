"""Racing of repeats by Student's and by Wilcoxon's test."""

import math
import sys
from statistics import fmean, variance

import pytest
from scipy.stats import t

from search.direction import Direction
from search.errors import InvalidArgument
from search.stopping.racing import StudentRacing, WilcoxonRacing, mean
from tests.benchmarks.searches.racing import race


def judge(direction=Direction.MAX, **arguments):
    return WilcoxonRacing(**arguments).start(direction)


def student(direction=Direction.MAX, **arguments):
    """Return a judge that knows the noise: the mean of trial 0 is 0.88, 0.02 above two others."""
    it = StudentRacing(**arguments).start(direction)
    for trial, values in enumerate(KNOWN):
        assert raced(it, trial, [direction.weight * value for value in values]) is None
    return it


def raced(it, trial, values):
    """Report repeats until the trial is stopped or has all; return the reason."""
    for step, value in enumerate(values):
        if (reason := it.report(trial, step, value)) is not None:
            it.ended(trial, "stopped")
            return reason
    it.ended(trial, "finished")
    return None


KNOWN = [
    [0.9, 0.8, 0.95, 0.85, 0.9],
    [0.88, 0.8, 0.91, 0.83, 0.88],
    [0.9, 0.78, 0.93, 0.81, 0.88],
]
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
def test_with_the_noise_of_other_trials_two_repeats_are_enough(direction):
    worse = [direction.weight * value for value in (0.82, 0.73, 0.9)]
    assert raced(student(direction), 3, worse).startswith(
        "step 1: worse than trial 0 in 2 repeats (p = "
    )
    at_once = student(direction, n_startup_steps=1)
    assert "step 0: worse than trial 0 in 1 repeat (p = " in raced(at_once, 3, worse)
    close = [direction.weight * value for value in (0.89, 0.8, 0.94, 0.84, 0.9)]
    assert raced(student(direction), 3, close) is None


def test_p_is_students_with_the_median_of_the_variances_before():
    """Of two variances with four degrees of freedom each, of which a median keeps half."""
    noise = variance([-0.02, 0.0, -0.04, -0.02, -0.02]) / (1 - 2 / (9 * 4)) ** 3
    assert variance([0.0, -0.02, -0.02, -0.04, -0.02]) == pytest.approx(noise * (1 - 2 / 36) ** 3)
    p = t.cdf(-0.05 * math.sqrt(2) / math.sqrt(noise), 4)
    assert raced(student(), 3, [0.85, 0.75]) == (
        f"step 1: worse than trial 0 in 2 repeats (p = {p:.2g})"
    )


def test_a_trial_whose_own_differences_vary_more_is_judged_by_these():
    it = student()
    values = [0.6, 0.79, 0.95, 0.86, 0.91]  # a bad first repeat
    assert raced(it, 3, values) is None


def test_no_trial_is_stopped_by_the_noise_between_the_best_and_its_twins():
    it = StudentRacing().start(Direction.MAX)
    good = [0.9, 0.8, 0.95, 0.85, 0.9, 0.88]
    assert raced(it, 0, good) is None
    for trial in (1, 2):
        assert raced(it, trial, [value - 1e-7 * i for i, value in enumerate(good)]) is None
    assert raced(it, 3, [0.879, 0.785, 1.0, 0.95, 0.98, 0.97]) is None


def test_exact_twins_of_the_best_do_not_show_that_there_is_no_noise():
    it = StudentRacing().start(Direction.MAX)
    for trial in range(4):
        assert raced(it, trial, KNOWN[0]) is None
    assert raced(it, 4, [0.88, 0.78, 0.98, 0.92, 0.96]) is None


def test_a_trial_whose_mean_difference_is_an_advantage_is_not_stopped():
    """Though most of its repeats are worse, and its own mean is below that of all repeats."""
    it = judge()
    raced(it, 0, [0.0] * 8 + [10.0] * 8)
    assert raced(it, 1, [5.0, *(-0.1 - i / 100 for i in range(7))]) is None


@pytest.mark.parametrize("unit", [1, 0.1])
def test_trials_that_are_worse_by_the_same_amount_in_each_repeat_are_stopped(unit):
    """Whether the numbers are exact or rounded."""
    it = StudentRacing().start(Direction.MAX)
    for trial, quality in enumerate([9, 1, 2]):
        assert raced(it, trial, [unit * (quality + step**2) for step in range(4)]) is None
    assert "in 2 repeats (p = 0" in raced(it, 3, [unit * (3 + step**2) for step in range(4)])


def test_a_repeat_without_a_value_is_left_out():
    it = student()
    assert raced(it, 3, [None, 0.79, 0.95, float("nan"), 0.89]) is None
    it = student()
    for step, value in enumerate([float("nan"), 0.74, 0.88]):
        reason = it.report(3, step, value)
    assert "worse than trial 0 in 3 repeats" in reason
    assert it.estimate(3) == pytest.approx(fmean(KNOWN[0]) - 0.065)


@pytest.mark.parametrize("direction", Direction)
def test_the_value_of_a_stopped_trial_is_the_best_mean_and_the_mean_difference(direction):
    for it in (student(direction), judge(direction, p_threshold=0.3)):
        sign = direction.weight
        if not isinstance(it, type(student())):
            raced(it, 0, [sign * value for value in KNOWN[0]])
        assert it.estimate(3) is None
        for step, value in enumerate([0.85, 0.75]):
            reason = it.report(3, step, sign * value)
        assert reason is not None
        assert it.estimate(3) == pytest.approx(sign * (fmean(KNOWN[0]) - 0.05))
        it.ended(3, "stopped")
        assert it.estimate(3) is None


@pytest.mark.parametrize("direction", Direction)
def test_a_trial_that_another_rule_stops_has_an_estimate_too(direction):
    """Its first repeats may be easier than the others, as folds are."""
    it, sign = judge(direction), direction.weight
    assert it.report(1, 0, sign * 9.0) is None
    assert it.estimate(1) is None  # nothing to compare with
    it.ended(1, "stopped")
    raced(it, 0, [sign * value for value in (4.0, 2.0, 0.0)])
    assert it.report(2, 0, sign * 3.5) is None
    assert it.estimate(2) == pytest.approx(sign * 1.5)


def test_the_smallest_numbers_are_compared():
    it = StudentRacing(n_startup_steps=1).start(Direction.MAX)
    raced(it, 0, [0.0, 0.0, 0.0])
    for trial in (1, 2):
        raced(it, trial, [-2.2e-162, 0.0, 2.2e-162])
    assert "p = 0" in raced(it, 3, [-1.0])


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
def test_five_repeats_find_as_much_with_two_thirds_of_them():
    """All five are too few to find it in 95 of 100 searches."""
    races = [race(seed, rules=[StudentRacing()], repeats=5) for seed in range(100)]
    without = [race(seed, rules=[], repeats=5) for seed in range(100)]
    assert sum(it.found for it in races) >= sum(it.found for it in without) - 2
    assert fmean(it.share for it in races) <= 0.7


def test_penalties_as_large_as_a_float_can_be_are_compared():
    it = judge(Direction.MIN)
    raced(it, 0, [1.0] * 6)
    assert "worse than trial 0" in raced(it, 1, [sys.float_info.max] * 6)
    it = judge(Direction.MIN)
    raced(it, 0, [sys.float_info.max] * 6)
    assert raced(it, 1, [1.0] * 6) is None


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_mean_of_three_of_the_largest_floats_is_that_float(sign):
    """A third of it is rounded up."""
    assert mean([sign * sys.float_info.max] * 3) == sign * sys.float_info.max


def test_infinite_numbers_have_an_infinite_mean_or_none():
    assert mean([math.inf, 1.0, sys.float_info.max, sys.float_info.max]) == math.inf
    assert math.isnan(mean([math.inf, -math.inf, 1.0]))


def test_one_trial_of_penalties_hides_no_other_from_the_test():
    it = student(Direction.MIN)
    for step, value in enumerate([-1.0, -1.0, -1.0, -1.0, sys.float_info.max]):
        it.report(3, step, value)
    it.ended(3, "finished")  # the request to stop came too late
    assert raced(it, 4, [-0.89, -0.8, -0.95, -0.83, -0.88]) is None
    assert "worse than trial 0 in 2 repeats" in raced(it, 5, [-0.7, -0.6])
    assert raced(it, 6, [sys.float_info.max, sys.float_info.max]) is not None
