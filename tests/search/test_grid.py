import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.errors import InvalidArgument, NothingAllowed
from search.grid import GridSearch, PointSearch
from search.space.spaces import Choice, Float, Integer, Space, read_points
from tests.properties import examples

lists = st.lists(st.integers(-5, 5) | st.sampled_from(["a", None, (1, 2)]), min_size=1, max_size=4)
grids = st.dictionaries(st.text("abcdef", min_size=1), lists, min_size=1, max_size=4)

ONE_RANGE = {"a": range(10**9)}
THREE_LISTS = {name: list(range(1000)) for name in "abc"}


def all_asked(searcher):
    return [trial.params for trial in iter(searcher.ask, None)]


@given(grids)
@examples(60)
def test_points_come_in_the_order_of_itertools_product(values):
    grid = GridSearch(Space.of_grid(values))
    product = [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]
    assert grid.total == len(product)
    assert [grid.point(number) for number in range(grid.total)] == product
    asked = all_asked(grid)
    assert asked == product
    assert all(list(params) == list(values) for params in asked)


def test_last_name_changes_fastest():
    grid = GridSearch(Space.of_grid({"z": [1, 2], "a": ["x", "y"]}))
    assert all_asked(grid) == [
        {"z": 1, "a": "x"},
        {"z": 1, "a": "y"},
        {"z": 2, "a": "x"},
        {"z": 2, "a": "y"},
    ]


@pytest.mark.fault(45)
@pytest.mark.parametrize(
    ("values", "points"),
    [
        (ONE_RANGE, {2: (2,), 5 * 10**8: (5 * 10**8,), 10**9 - 1: (10**9 - 1,)}),
        (THREE_LISTS, {2: (0, 0, 2), 500_007_009: (500, 7, 9), 10**9 - 1: (999, 999, 999)}),
    ],
    ids=["one range", "three lists"],
)
def test_a_billion_points_cost_no_memory(values, points):
    tracemalloc.start()
    try:
        grid = GridSearch(Space.of_grid(values))
        asked = [grid.ask() for _ in range(3)]
        found = {number: tuple(grid.point(number).values()) for number in points}
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert grid.total == 10**9
    assert not grid.finished
    assert peak < 50 * 2**20
    assert found == points
    assert tuple(asked[2].params.values()) == points[2]


def test_a_point_in_the_middle_has_the_digits_of_its_number():
    grid = GridSearch(Space.of_grid({"a": range(10), "b": range(10), "c": range(10)}))
    assert grid.point(472) == {"a": 4, "b": 7, "c": 2}


def test_reading_points_does_not_advance_the_search():
    grid = GridSearch(Space.of_grid({"a": [1, 2, 3]}))
    grid.point(2)
    assert grid.ask().params == {"a": 1}


def test_repeated_values_are_repeated_points():
    assert all_asked(GridSearch(Space.of_grid({"a": [1, 1]}))) == [{"a": 1}, {"a": 1}]


def test_a_space_of_choices_is_a_grid():
    assert GridSearch(Space({"a": Choice([1, 2]), "b": Choice(["x", "y"])})).total == 4


@pytest.mark.parametrize("domain", [Float(0.0, 1.0), Integer(1, 3)], ids=repr)
def test_grids_refuse_everything_but_lists(domain):
    with pytest.raises(InvalidArgument) as caught:
        GridSearch(Space({"a": Choice([1]), "b": domain}))
    assert caught.value.name == "args_dict['b']"
    assert caught.value.got == repr(domain)


def test_points_of_a_list_come_unchanged():
    points = [{"a": 1}, {"b": 2, "a": 3}, {"a": 1}]
    searcher = PointSearch(points)
    assert searcher.total == 3
    assert all_asked(searcher) == points


def test_changes_of_a_point_do_not_reach_its_trial_which_cannot_be_changed():
    points = [{"a": 1}]
    trial = PointSearch(points).ask()
    points[0]["a"] = 2
    assert trial.params == {"a": 1}
    with pytest.raises(TypeError):
        trial.params["a"] = 2


def small(params):
    return params["batch"] * params["units"] <= 128


def test_a_constraint_leaves_points_of_a_grid_out():
    lists = {"batch": [16, 32, 64], "units": [2, 4, 8]}
    searcher = GridSearch(Space.of_grid(lists, small))
    expected = [
        params
        for params in (
            dict(zip(lists, row, strict=True)) for row in itertools.product(*lists.values())
        )
        if small(params)
    ]
    assert searcher.total == len(expected) == 6
    assert all_asked(searcher) == expected
    assert searcher.finished


def test_a_constraint_leaves_points_of_a_list_out():
    points = [{"batch": 16, "units": 8}, {"batch": 64, "units": 8}]
    assert read_points(points, small) == points[:1]


@pytest.mark.parametrize(
    ("constraint", "kind", "got"),
    [
        (lambda p: False, NothingAllowed, "none among 6 points"),
        (lambda p: p["z"], InvalidArgument, "KeyError: 'z', for {'x': 1, 'y': 4}"),
        (lambda p: p["x"], InvalidArgument, "1, for {'x': 1, 'y': 4}"),
        (5, InvalidArgument, "5"),
    ],
)
def test_a_constraint_that_cannot_be_met_is_refused(constraint, kind, got):
    lists = {"x": [1, 2, 3], "y": [4, 5]}
    points = [{"x": x, "y": y} for x in lists["x"] for y in lists["y"]]
    for read in (
        lambda: GridSearch(Space.of_grid(lists, constraint)),
        lambda: read_points(points, constraint),
    ):
        with pytest.raises(kind) as caught:
            read()
        assert caught.value.name == "constraint"
        assert caught.value.got.startswith(got)


def test_a_grid_too_large_for_its_constraint_is_refused():
    with pytest.raises(InvalidArgument, match="at most 10,000,000 points with a constraint"):
        GridSearch(Space.of_grid(THREE_LISTS, small))
