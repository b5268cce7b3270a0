import pytest

from search.grid import GridSearch, PointSearch
from search.space.spaces import Choice, Float, Integer, Space
from tests.experiment.runs import make_spec


def grid(**lists):
    space = Space.of_grid(lists)
    return make_spec("launch", GridSearch(space), space)


def points(*rows):
    return make_spec("launch", PointSearch(rows), None, rows)


def test_the_columns_of_a_space_are_its_domains_in_order():
    space = Space.of_bounds({"lr": [0.1, 0.5], "units": [8, 64], "act": ["relu", "tanh"]})
    search = make_spec("random_search", PointSearch([]), space)
    assert search.columns == {
        "lr": Float(0.1, 0.5),
        "units": Integer(8, 64),
        "act": Choice(["relu", "tanh"]),
    }
    assert list(search.columns) == ["lr", "units", "act"]
    assert search.as_text == ()


def test_the_columns_of_points_are_all_their_names_and_have_no_domain():
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
        ([1, 2**53], False),
        ([1, 2**53 + 1], True),
        ([1, 10**400], True),
        ([2**60, 10**400], False),
        ([1, 1e300], False),
        ([0.5, float("inf")], True),
        ([0.5, float("nan")], True),
    ],
    ids=str,
)
def test_values_of_several_types_are_shown_as_text(values, mixed):
    expected = ("x",) if mixed else ()
    assert grid(plain=[1], x=values).as_text == expected
    assert points(*[{"plain": 1, "x": value} for value in values]).as_text == expected


def test_hyperparameters_of_several_types_are_named_in_order():
    assert grid(b=[1, "1"], fine=[1], a=[None, 2]).as_text == ("b", "a")


def test_a_name_that_some_points_lack_is_not_shown_as_text_for_that():
    assert points({"a": 1}, {"b": "x"}, {"a": 2.5, "b": "y"}).as_text == ()
    assert points({"a": 1}, {"b": "x"}, {"a": "2", "b": "y"}).as_text == ("a",)


def test_a_long_range_is_not_expanded():
    search = grid(seed=range(10**12), act=["relu", 1])
    assert search.columns["seed"] == Choice(range(10**12))
    assert search.as_text == ("act",)
    assert search.fixed == ()


@pytest.mark.parametrize(
    "values", [range(0, 10**17, 10**15), range(2**53, 2**53 + 2), range(-(2**60), 2**60, 2**55)]
)
def test_a_range_with_numbers_that_a_column_cannot_hold_is_shown_as_text(values):
    assert grid(seed=values).as_text == ("seed",)


@pytest.mark.parametrize("values", [range(1), range(-5, 5), range(2**53 + 1)])
def test_a_range_of_numbers_that_a_column_can_hold_is_shown_as_numbers(values):
    assert grid(seed=values).as_text == ()


@pytest.mark.parametrize(
    "domain",
    [
        Float(0.5, 0.5),
        Float(0.5, 0.5, log=True),
        Integer(3, 3),
        Choice(["a"]),
        Choice([float("nan")]),
        Choice(range(7, 8)),
        Choice([[1, 2]]),
    ],
)
def test_a_domain_with_one_value_is_fixed(domain):
    space = Space({"x": domain, "y": Integer(1, 2)})
    assert make_spec("random_search", PointSearch([]), space).fixed == ("x",)


@pytest.mark.parametrize(
    "domain", [Float(0.5, 0.6), Integer(3, 4), Choice(["a", "b"]), Choice([1, True])]
)
def test_a_domain_with_several_values_is_not_fixed(domain):
    assert make_spec("random_search", PointSearch([]), Space({"x": domain})).fixed == ()


def test_a_hyperparameter_with_the_same_value_in_all_points_is_fixed():
    search = points({"b": 1, "c": [1], "a": "x"}, {"a": "x", "b": 2, "c": [1]})
    assert search.fixed == ("c", "a")


def test_a_name_that_some_points_lack_is_not_fixed():
    assert points({"a": 1}, {"a": 1, "b": 2}).fixed == ("a",)
    assert points({"b": 2, "a": 1}, {"a": 1}).fixed == ("a",)
    assert points({}, {"a": None}).fixed == ()


@pytest.mark.parametrize(
    ("values", "fixed"),
    [
        ([1], True),
        ([1, 1, 1], True),
        ([float("nan"), float("nan")], True),
        ([1, 1, 2], False),
        ([1, True], False),
        ([1, 1.0], False),
        ([(1,), [1]], False),
        ([None, "None"], False),
    ],
    ids=str,
)
def test_values_of_points_are_the_same_if_their_types_are_too(values, fixed):
    assert points(*[{"x": value} for value in values]).fixed == (("x",) if fixed else ())


def test_nothing_is_fixed_without_points():
    assert points().fixed == ()
    assert points({}).fixed == ()


def test_a_hyperparameter_that_only_some_trials_have_is_conditional_and_not_fixed():
    space = Space(
        {
            "region": Choice(["eu"]),
            "opt": Choice(["adam", "sgd"]),
            "momentum": Float(0.9, 0.9, when={"opt": "sgd"}),
        }
    )
    search = make_spec("random_search", PointSearch([]), space)
    assert search.conditional == ("momentum",)
    assert search.fixed == ("region",)
    assert points({"a": 1}, {"b": 2}).conditional == ()
