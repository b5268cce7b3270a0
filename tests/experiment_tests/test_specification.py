import pytest

from experiment.specification import Search
from search.grid import GridSearch, PointSearch
from search.space import Choice, Float, Integer, Space


def grid(**lists):
    space = Space.of_grid(lists)
    return Search("launch", GridSearch(space), space)


def points(*rows):
    return Search("launch", PointSearch(rows), None, rows)


def test_the_columns_of_a_space_are_its_domains_in_order():
    space = Space.of_bounds({"lr": [0.1, 0.5], "units": [8, 64], "act": ["relu", "tanh"]})
    search = Search("random_search", PointSearch([]), space)
    assert search.columns == {
        "lr": Float(0.1, 0.5),
        "units": Integer(8, 64),
        "act": Choice(["relu", "tanh"]),
    }
    assert list(search.columns) == ["lr", "units", "act"]
    assert search.as_text == ()


def test_the_columns_of_points_are_all_their_names_without_a_domain():
    search = points({"a": 1}, {"b": 2, "a": 3}, {}, {"c": 4})
    assert search.columns == {"a": None, "b": None, "c": None}
    assert list(search.columns) == ["a", "b", "c"]


def test_no_points_have_no_columns():
    assert points().columns == {}
    assert points().as_text == ()


@pytest.mark.parametrize(
    ("values", "mixed"),
    [
        ([1, 2], False),
        ([1, 2.5], False),
        ([0.1], False),
        ([True, False], False),
        (["a", "b"], False),
        ([None], False),
        ([[1], (2,)], False),
        (["a", None, [1]], False),
        ([True, 1], True),
        ([False, 0.0], True),
        ([1, "1"], True),
        ([1, None], True),
        ([0.5, [1]], True),
        ([True, "a"], True),
        ([1, 2, 3, "x"], True),
    ],
    ids=str,
)
def test_values_of_several_types_are_shown_as_text(values, mixed):
    expected = ("x",) if mixed else ()
    assert grid(plain=[1], x=values).as_text == expected
    assert points(*[{"plain": 1, "x": value} for value in values]).as_text == expected


def test_mixed_parameters_are_named_in_order():
    assert grid(b=[1, "1"], fine=[1], a=[None, 2]).as_text == ("b", "a")


def test_a_name_that_some_points_lack_is_not_mixed_for_that():
    assert points({"a": 1}, {"b": "x"}, {"a": 2.5, "b": "y"}).as_text == ()
    assert points({"a": 1}, {"b": "x"}, {"a": "2", "b": "y"}).as_text == ("a",)


def test_a_long_range_is_not_written_out():
    search = grid(seed=range(10**12), act=["relu", 1])
    assert search.columns["seed"] == Choice(range(10**12))
    assert search.as_text == ("act",)
