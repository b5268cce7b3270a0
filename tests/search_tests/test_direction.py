import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search import Direction, InvalidArgument

BOTH = pytest.mark.parametrize("direction", list(Direction))
NO_NUMBERS = (None, math.nan)
scores = st.none() | st.floats() | st.integers(-3, 3).map(float)


def itself(score):
    return score


@pytest.mark.parametrize(
    ("text", "direction"),
    [("max", Direction.MAX), ("min", Direction.MIN), (Direction.MIN, Direction.MIN)],
)
def test_parse_reads_names_and_directions(text, direction):
    assert Direction.parse(text) is direction


@pytest.mark.parametrize(
    "value",
    [
        "MAX",
        "Min",
        "maximize",
        " max",
        "max\n",
        "",
        "up",
        None,
        True,
        1,
        -1.0,
        b"max",
        ["max"],
        max,
    ],
)
def test_parse_refuses_everything_else(value):
    with pytest.raises(InvalidArgument) as caught:
        Direction.parse(value)
    assert caught.value.name == "direction"
    assert caught.value.expected == "'max' or 'min'"
    assert caught.value.got == repr(value)


def test_weight_turns_the_search_into_a_maximisation():
    assert Direction.MAX.weight == 1.0
    assert Direction.MIN.weight == -1.0


def test_better_follows_the_direction():
    assert Direction.MAX.better(2.0, 1.0)
    assert not Direction.MAX.better(1.0, 2.0)
    assert Direction.MIN.better(1.0, 2.0)
    assert not Direction.MIN.better(2.0, 1.0)


@BOTH
def test_better_is_strict(direction):
    assert not direction.better(1.0, 1.0)
    assert not direction.better(0.0, -0.0)


@BOTH
@pytest.mark.parametrize("number", [-1e308, -1.0, 0.0, 1e308, math.inf, -math.inf])
@pytest.mark.parametrize("missing", NO_NUMBERS)
def test_missing_scores_lose_to_every_number(direction, number, missing):
    assert direction.better(number, missing)
    assert not direction.better(missing, number)


@BOTH
@pytest.mark.parametrize("one", NO_NUMBERS)
@pytest.mark.parametrize("other", NO_NUMBERS)
def test_no_missing_score_beats_another(direction, one, other):
    assert not direction.better(one, other)


@given(one=scores, other=scores)
@settings(max_examples=100, deadline=None)
def test_never_both_are_better(one, other):
    for direction in Direction:
        assert not (direction.better(one, other) and direction.better(other, one))


@given(one=st.floats(), other=st.floats())
@settings(max_examples=100, deadline=None)
def test_directions_mirror_each_other(one, other):
    assert Direction.MAX.better(one, other) == Direction.MIN.better(-one, -other)


@given(one=scores, other=scores)
@settings(max_examples=100, deadline=None)
def test_merits_ascend_with_what_is_better(one, other):
    for direction in Direction:
        if direction.better(one, other) and not math.isinf(one):
            assert direction.merit(one) > direction.merit(other)


@BOTH
@pytest.mark.parametrize("missing", NO_NUMBERS)
def test_missing_scores_have_the_least_merit(direction, missing):
    assert direction.merit(missing) == -math.inf
    assert direction.merit(1.5) == 1.5 * direction.weight


def test_best_of_negative_numbers():
    numbers = [-3.0, -1.0, -2.0]
    assert Direction.MAX.best(numbers, itself) == -1.0
    assert Direction.MIN.best(numbers, itself) == -3.0


@BOTH
def test_best_of_a_tie_is_the_first(direction):
    items = [("a", None), ("b", 1.0), ("c", 1.0), ("d", math.nan), ("e", 1.0)]
    assert direction.best(items, lambda item: item[1]) == ("b", 1.0)


@BOTH
@pytest.mark.parametrize("numbers", [[], [None], [math.nan, None, math.nan]])
def test_best_without_any_number_is_none(direction, numbers):
    assert direction.best(numbers, itself) is None


@BOTH
def test_best_takes_an_iterator(direction):
    assert direction.best(iter([None, 4.0, math.nan]), itself) == 4.0


@given(st.lists(scores, max_size=20))
@settings(max_examples=100, deadline=None)
def test_best_is_the_first_of_the_extreme_numbers(values):
    numbers = [score for score in values if score is not None and not math.isnan(score)]
    items = list(enumerate(values))
    for direction, extreme in ((Direction.MAX, max), (Direction.MIN, min)):
        best = direction.best(items, lambda item: item[1])
        if numbers:
            assert best == (values.index(extreme(numbers)), extreme(numbers))
        else:
            assert best is None


@pytest.mark.parametrize("score", [None, math.nan])
@pytest.mark.parametrize("direction", Direction)
def test_what_is_no_number_reaches_nothing_and_nothing_reaches_no_target(direction, score):
    assert not direction.reaches(score, 0.0)
    assert not direction.reaches(0.0, None)
    assert not direction.reaches(None, None)


def test_a_target_is_reached_by_what_is_as_good_or_better():
    assert [Direction.MAX.reaches(score, 0.5) for score in (0.4, 0.5, 0.6)] == [False, True, True]
    assert [Direction.MIN.reaches(score, 0.5) for score in (0.4, 0.5, 0.6)] == [True, True, False]
