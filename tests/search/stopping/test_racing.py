"""Racing of repeats by Wilcoxon's test."""

import random
import sys
from statistics import fmean

import pytest

from search.direction import Direction
from search.errors import InvalidArgument
from search.stopping.racing import WilcoxonRacing


def judge(direction=Direction.MAX, **arguments):
    return WilcoxonRacing(**arguments).start(direction)


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


@pytest.mark.parametrize("arguments", [{"p_threshold": 0}, {"n_startup_steps": 0}])
def test_arguments_are_checked(arguments):
    with pytest.raises(InvalidArgument, match=next(iter(arguments))):
        WilcoxonRacing(**arguments)


def race(seed, configurations, repeats):
    """Race configurations; return whether the best was found, and the share of the repeats run.

    Each has a quality, each repeat a difficulty that all share, and each of the two a noise. The
    best is 0.5 better than the second, in standard deviations of the noise.
    """
    rng = random.Random(seed)
    qualities = [0.5, *(-rng.expovariate(0.7) for _ in range(configurations - 1))]
    rng.shuffle(qualities)
    difficulties = [rng.gauss(0, 2) for _ in range(repeats)]
    it, ran, means = judge(), 0, {}
    for trial, quality in enumerate(qualities):
        values = []
        for step in range(repeats):
            values.append(quality + difficulties[step] + rng.gauss(0, 0.5))
            ran += 1
            if it.report(trial, step, values[-1]) is not None:
                break
        else:
            means[trial] = fmean(values)
        it.ended(trial, "finished" if trial in means else "stopped")
    found = qualities[max(means, key=means.__getitem__)] == 0.5
    return found, ran / (configurations * repeats)


@pytest.mark.slow
def test_the_best_configuration_is_found_with_at_most_half_of_the_repeats():
    races = [race(seed, 30, 20) for seed in range(100)]
    assert sum(found for found, _ in races) >= 95
    assert fmean(share for _, share in races) <= 0.5


def test_penalties_as_large_as_a_float_can_be_are_compared():
    it = judge(Direction.MIN)
    raced(it, 0, [1.0] * 6)
    assert "worse than trial 0" in raced(it, 1, [sys.float_info.max] * 6)
    it = judge(Direction.MIN)
    raced(it, 0, [sys.float_info.max] * 6)
    assert raced(it, 1, [1.0] * 6) is None
