import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.tab.shown import as_python, shown_space, shown_value
from search.space.spaces import Choice, Space
from search.values import identity

LONG = "x" * 200

some_values = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 2**60, 0.5, math.inf, -math.inf, math.nan])
    | st.text("ab'\"\\\n\t\x1b ", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.lists(inner, max_size=2).map(tuple),
    max_leaves=3,
)
like_others = some_values | some_values.map(repr) | some_values.map(repr).map(repr)


@given(st.lists(like_others, max_size=10))
def test_different_values_are_shown_differently(values):
    different = {identity(value): shown_value(value) for value in values}
    shown = {(type(text), text) for text in different.values()}
    assert len(shown) == len(different)
    assert all(text.isprintable() for kind, text in shown if kind is str)


@pytest.mark.parametrize(
    "values",
    [
        [LONG + "1", LONG + "2", LONG],
        [[LONG, 1], [LONG, 2], f"[{LONG!r}, 1]"],
        [{"a": LONG, "b": 1}, {"a": LONG, "b": 2}],
        [10**300, 10**300 + 1, str(10**300)],
    ],
)
def test_long_values_that_begin_alike_are_different_choices(values):
    shown = shown_space(Space({"a": Choice(values)}))["a"]["values"]
    assert shown == [shown_value(value) for value in values]
    assert len(set(shown)) == len(values)
    assert all(len(text) < 220 for text in shown)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("adam", "adam"),
        ("2024-01-01", "2024-01-01"),
        ("32", "32"),  # a number is none of JSON's strings
        ("None", "'None'"),
        ("True", "'True'"),
        ("[1, 2]", "'[1, 2]'"),
        ("-inf", "'-inf'"),
        (str(2**60), f"'{2**60}'"),
        ("'a'", "\"'a'\""),
        ("", "''"),
        ("a\nb", r"'a\nb'"),
        (None, "None"),
        ([1, 2], "[1, 2]"),
        (LONG, LONG),
    ],
)
def test_a_text_that_could_be_another_value_has_quotes(value, text):
    assert shown_value(value) == text


@given(st.dictionaries(st.text("ab'\n", max_size=2), some_values | st.tuples(some_values)))
def test_hyperparameters_as_python_are_read_back(params):
    text = as_python(params)
    assert identity(eval(text)) == identity(params)  # also infinity and NaN, at any depth


def test_hyperparameters_as_python_have_a_line_each():
    params = {"layers": (8,), "units": (8, 9), "rates": {"a": math.inf, "b": [0.5]}}
    assert as_python(params) == (
        "{\n    'layers': (8,),\n    'units': (8, 9),\n"
        "    'rates': {'a': float('inf'), 'b': [0.5]},\n}"
    )
    assert as_python({}) == "{}"
