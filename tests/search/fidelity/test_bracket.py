import math
import random
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from search.direction import Direction
from search.fidelity.bracket import Bracket, bracket_sizes, halved, rungs_between
from tests.properties import examples


def test_rungs_are_a_reduction_apart():
    assert rungs_between(1, 81, 3) == [1, 3, 9, 27, 81]
    assert rungs_between(2, 100, 3) == [4, 11, 33, 100]
    assert rungs_between(1, 3, 2) == [2, 3]
    assert rungs_between(5, 20, 4) == [5, 20]


@given(low=st.integers(1, 20), ratio=st.integers(2, 30), reduction=st.integers(2, 6))
@examples(60)
def test_rungs_ascend_from_the_least_to_the_most(low, ratio, reduction):
    rungs = rungs_between(low, low * ratio, reduction)
    assert rungs == sorted(set(rungs))
    assert rungs[0] >= low
    assert rungs[-1] == low * ratio


def test_brackets_are_those_of_the_paper():
    """Table 1 of Li et al. 2018, for R = 81 and a reduction of 3."""
    assert bracket_sizes(5, 3) == [
        (0, [81, 27, 9, 3, 1]),
        (1, [34, 11, 3, 1]),
        (2, [15, 5, 1]),
        (3, [8, 2]),
        (4, [5]),
    ]


@given(rungs=st.integers(1, 30), reduction=st.integers(2, 9))
@example(rungs=11, reduction=3)
@examples(100)
def test_a_bracket_begins_with_the_exact_number_of_configurations(rungs, reduction):
    for first, sizes in bracket_sizes(rungs, reduction):
        further = rungs - 1 - first
        assert sizes[0] == math.ceil(Fraction(rungs * reduction**further, further + 1))


@pytest.mark.parametrize(("count", "sizes"), [(9, [9, 3, 1]), (2, [2, 1, 1]), (0, [0, 0, 0])])
def test_of_any_configurations_at_least_one_goes_on(count, sizes):
    assert halved(count, 3, 3) == sizes


def bracket(sizes=(9, 3, 1), first=0):
    return Bracket(first, sizes, 3, Direction.MAX)


def begun(ended, in_flight=0, **arguments):
    """Return a bracket with trials 0, 1, ... that have ended with these scores, and some more."""
    it = bracket(**arguments)
    for _ in range(len(ended) + in_flight):
        it.begin()
    for trial, score in enumerate(ended):
        it.ended(it.first, trial, score)
    return it


def test_a_trial_is_promoted_once_it_is_among_the_best_however_the_others_end():
    it = begun([5.0, 1.0, 4.0, 9.0, 2.0, 3.0], in_flight=3)
    assert it.promotion(2, certain=True) is None  # each of the three in flight may be better
    it.ended(0, 6, 0.0)
    assert it.promotion(2, certain=True) == (1, 3)
    it.promote(1, 3)
    assert it.promotion(2, certain=True) is None
    it.ended(0, 7, 0.0)
    assert it.promotion(2, certain=True) == (1, 0)


def test_the_best_so_far_may_be_promoted_before_that():
    it = begun([5.0, 1.0, 4.0], in_flight=6)
    assert it.promotion(2, certain=False) == (1, 0)
    it.promote(1, 0)
    assert it.promotion(2, certain=False) is None
    assert begun([5.0, 1.0], in_flight=7).promotion(2, certain=False) is None


def test_no_trial_is_promoted_above_the_highest_rung():
    it = begun([float(n) for n in range(9)], first=2)
    assert it.promotion(2, certain=True) is None
    assert it.promotion(3, certain=True) == (3, 8)


def test_failed_trials_are_not_promoted_and_leave_fewer():
    it = begun([None] * 7 + [1.0, 2.0])
    assert it.total == 9 + 2 + 1
    assert it.promotion(2, certain=True) == (1, 8)
    it = begun([None] * 9)
    assert it.promotion(2, certain=True) is None
    assert it.total == 9


def test_fewer_configurations_leave_fewer_promotions():
    it = begun([1.0, 2.0], in_flight=2)
    assert it.limit(0) == 0
    assert (it.room, it.total) == (0, 4 + 1 + 1)
    assert bracket().limit(100) == 9


@given(
    count=st.integers(1, 40),
    reduction=st.integers(2, 4),
    direction=st.sampled_from(Direction),
    eager=st.booleans(),
    rng=st.randoms(use_true_random=False),
)
@examples(80)
def test_a_bracket_ends_with_the_planned_numbers_in_any_order(
    count, reduction, direction, eager, rng: random.Random
):
    sizes = halved(count, 4, reduction)
    it = Bracket(0, sizes, reduction, direction)
    scores, out, trials, started = {}, [], 0, [0] * 4
    while True:
        promotion = it.promotion(3, certain=True) or (
            it.promotion(3, certain=False) if eager else None
        )
        if promotion is not None and rng.random() < 0.8:
            it.promote(*promotion)
            out.append((promotion[0], trials, scores[promotion[1]]))
        elif it.room and rng.random() < 0.7:
            it.begin()
            out.append((0, trials, rng.random()))
        elif out:
            rung, trial, score = out.pop(rng.randrange(len(out)))
            scores[trial] = score
            it.ended(rung, trial, score)
            continue
        elif promotion is None and not it.room:
            break
        else:
            continue
        started[out[-1][0]] += 1
        trials += 1
    assert started == sizes
    assert it.total == sum(sizes) == trials
