import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from search.direction import Direction, Directions, non_dominated, read_direction
from search.errors import InvalidArgument
from search.trial import Outcome, Trial
from tests.properties import examples
from tests.search.fakes import outcome

BOTH = pytest.mark.parametrize("direction", list(Direction))
NO_NUMBERS = (None, math.nan)
scores = st.none() | st.floats() | st.integers(-3, 3).map(float)


def itself(score):
    return score


@pytest.mark.parametrize(
    ("text", "direction"),
    [
        ("max", Direction.MAX),
        ("min", Direction.MIN),
        (Direction.MIN, Direction.MIN),
        ("maximize", Direction.MAX),
        ("minimize", Direction.MIN),
    ],
)
def test_parse_reads_names_and_directions(text, direction):
    assert Direction.parse(text) is direction


@pytest.mark.parametrize(
    "value",
    [
        "MAX",
        "Min",
        "maximise",
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
@examples(100)
def test_never_both_are_better(one, other):
    for direction in Direction:
        assert not (direction.better(one, other) and direction.better(other, one))


@given(one=st.floats(), other=st.floats())
@examples(100)
def test_directions_mirror_each_other(one, other):
    assert Direction.MAX.better(one, other) == Direction.MIN.better(-one, -other)


@given(one=scores, other=scores)
@examples(100)
def test_merits_ascend_with_what_is_better(one, other):
    for direction in Direction:
        if direction.better(one, other) and not math.isinf(one):
            assert direction.merit(one) > direction.merit(other)


@BOTH
@pytest.mark.parametrize("missing", NO_NUMBERS)
def test_missing_scores_have_the_lowest_merit(direction, missing):
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
@examples(100)
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
def test_only_numbers_reach_a_target_and_none_reaches_a_missing_one(direction, score):
    assert not direction.reaches(score, 0.0)
    assert not direction.reaches(0.0, None)
    assert not direction.reaches(None, None)


def test_values_as_good_or_better_reach_a_target():
    assert [Direction.MAX.reaches(score, 0.5) for score in (0.4, 0.5, 0.6)] == [False, True, True]
    assert [Direction.MIN.reaches(score, 0.5) for score in (0.4, 0.5, 0.6)] == [True, True, False]


# Several objectives

BOTH_WAYS = Directions.parse({"accuracy": "max", "latency": "min"})
few = st.integers(-2, 2).map(float)  # so that many are equal, and many dominate others
numbers_of = st.dictionaries(st.sampled_from(["a", "b", "c"]), few | st.just(math.nan), min_size=2)
goals = st.permutations(["a", "b", "c"]).flatmap(
    lambda names: st.tuples(*[st.sampled_from(Direction)] * 3).map(
        lambda each: Directions(dict(zip(names, each, strict=True)))
    )
)


def several(values, trial=0):
    return Outcome(trial, "finished", values=values)


def dominates(goal, item, other):
    """The definition, one objective after the other."""
    if any(math.isnan(item.values.get(name, math.nan)) for name in goal.names):
        return False
    if any(math.isnan(other.values.get(name, math.nan)) for name in goal.names):
        return True
    pairs = [(d, item.values[n], other.values[n]) for n, d in goal.by_name.items()]
    no_worse = not any(direction.better(theirs, ours) for direction, ours, theirs in pairs)
    return no_worse and any(direction.better(ours, theirs) for direction, ours, theirs in pairs)


def test_a_mapping_is_read_as_several_objectives_in_their_order():
    goal = read_direction({"latency": "min", "accuracy": Direction.MAX})
    assert goal == Directions({"latency": Direction.MIN, "accuracy": Direction.MAX})
    assert goal.names == ("latency", "accuracy")
    assert goal.weights == (-1.0, 1.0)
    assert goal.to_json() == {"latency": "min", "accuracy": "max"}
    assert read_direction(goal.to_json()) == goal
    assert read_direction("min") is Direction.MIN
    assert read_direction("min").to_json() == "min"


@pytest.mark.parametrize(
    ("value", "name", "expected", "got"),
    [
        ({}, "direction", "at least two objectives", "{}"),
        ({"a": "max"}, "direction", "at least two objectives", "{'a': 'max'}"),
        ({"a": "max", "b": "up"}, "direction['b']", "'max' or 'min'", "'up'"),
        ({"a": "max", "b": None}, "direction['b']", "'max' or 'min'", "None"),
        ({"a": "max", "": "min"}, "direction", "names of objectives", "''"),
        ({"a": "max", 1: "min"}, "direction", "names of objectives", "1"),
        ({"a": "max", "b" * 201: "min"}, "direction", "names of objectives", "'bbb"),
        ({"a": "max", "\ud800": "min"}, "direction", "names of objectives", "'\\ud800'"),
        (["max", "min"], "direction", "'max' or 'min'", "['max', 'min']"),
    ],
)
def test_unusable_objectives_are_refused(value, name, expected, got):
    with pytest.raises(InvalidArgument) as caught:
        read_direction(value)
    assert caught.value.name == name
    assert expected in caught.value.expected
    assert caught.value.got.startswith(got)


def test_a_single_named_objective_is_refused_with_a_hint():
    with pytest.raises(InvalidArgument, match="optimization_key"):
        read_direction({"loss": "min"})


@given(goal=goals, values=st.lists(numbers_of, max_size=25))
def test_the_front_is_that_of_brute_force(goal, values):
    items = [several(value, trial) for trial, value in enumerate(values)]
    front = goal.front(items)
    expected = [
        item
        for item in items
        if goal.scores(item) is not None
        and not any(dominates(goal, other, item) for other in items)
    ]
    assert sorted(item.trial for item in front) == [item.trial for item in expected]
    first = goal.names[0]
    merits = [goal.by_name[first].merit(item.values[first]) for item in front]
    assert merits == sorted(merits, reverse=True)


@given(goal=goals, values=st.lists(numbers_of, max_size=25))
def test_the_front_grows_item_by_item(goal, values):
    items = [several(value, trial) for trial, value in enumerate(values)]
    front = []
    for item in items:
        front = goal.joined(front, item)
    assert front == goal.front(items)


def test_items_that_lack_an_objective_are_never_on_the_front():
    lacking = [
        Outcome.failed(0, "user error", "boom"),
        several({"accuracy": 1.0}),
        several({"accuracy": 1.0, "latency": math.nan}),
        Outcome(0, "finished", 1.0),
    ]
    worst = several({"accuracy": -1e9, "latency": 1e9})
    assert BOTH_WAYS.front(lacking) == []
    assert BOTH_WAYS.front([*lacking, worst]) == [worst]
    for item in lacking:
        assert BOTH_WAYS.scores(item) is None
        assert BOTH_WAYS.joined([worst], item) == [worst]


def test_equal_items_are_all_on_the_front():
    items = [several({"accuracy": 0.5, "latency": 3.0}, trial) for trial in range(3)]
    assert BOTH_WAYS.front(items) == items


@pytest.mark.parametrize("direction", Direction)
def test_one_objective_has_a_front_of_its_best(direction):
    values = [1.0, 3.0, None, 3.0, -1.0, -1.0]
    items = [outcome(Trial(number, {}), value) for number, value in enumerate(values)]
    best = direction.best(items, lambda item: item.value)
    assert direction.front(items) == [best]
    assert direction.front(items[2:3]) == direction.front([]) == []
    assert direction.joined([], items[2]) == []
    assert direction.joined([best], items[5]) == direction.joined([best], items[3]) == [best]


@given(
    arrays.arrays(
        float,
        st.tuples(st.integers(0, 30), st.integers(1, 3)),
        elements=st.integers(-3, 3).map(float),
    )
)
@examples(150)
def test_rows_are_not_dominated_if_no_other_is_better_and_none_before_is_equal(rows):
    found = non_dominated(rows)
    for number, row in enumerate(rows):
        no_worse = (rows >= row).all(axis=1)
        better = no_worse & (rows > row).any(axis=1)
        first = np.flatnonzero(no_worse & ~better)[0] == number
        assert found[number] == (not better.any() and first)
