"""Messages about invalid domains that are written as dicts."""

from __future__ import annotations

import math

import pytest

from search.errors import InvalidArgument
from search.space.domain_dicts import read_domain
from search.space.domains import Choice, Integer


@pytest.mark.parametrize(
    ("given", "expected", "hint"),
    [
        ({"values": "abc"}, "a domain of type choice", "values is a list"),
        (
            {"low": 1, "high": 5, "log": 1},
            "a domain of type integer",
            "low and high are numbers, log is True or False",
        ),
        (
            {"type": "float", "low": 0.5},
            "a domain of type float",
            "low and high are numbers, log is True or False",
        ),
        (
            {"range": [0, 5]},
            "a domain of type choice",
            "range is a list of three integers: start, stop, step",
        ),
        (
            {"low": 1, "high": 5, "when": 3},
            "a domain of type integer",
            "not a condition: 3",
        ),
        (
            {"range": [1, 5, 2], "when": 3},
            "a domain of type choice",
            "not a condition: 3",
        ),
        (
            {"values": [1, 2], "when": 3},
            "a domain of type choice",
            "not a condition: 3",
        ),
    ],
)
def test_an_invalid_domain_is_shown_as_written(given, expected, hint):
    with pytest.raises(InvalidArgument) as caught:
        read_domain("bounds['x']", given)
    error = caught.value
    assert (error.name, error.expected, error.got) == ("bounds['x']", expected, repr(given))
    assert error.hint == hint


@pytest.mark.parametrize(
    ("given", "got", "hint"),
    [
        ({"type": "integer", "low": 1, "high": 5, "range": [1]}, "'range'", ""),
        ({"low": 1, "high": 5, "range": [1, 2, 1]}, "'low'", ""),
        (
            {"values": [1, 2], "range": [1, 3, 1]},
            "{'values': [1, 2], 'range': [1, 3, 1]}",
            "remove one of them",
        ),
        ({"low": 1, "high": 5, "lg": True}, "'lg'", "did you mean 'log'?"),
        ({"type": "choice", "rnge": [1, 3, 1]}, "'rnge'", "did you mean 'range'?"),
    ],
)
def test_an_unknown_key_is_refused_by_its_name(given, got, hint):
    with pytest.raises(InvalidArgument) as caught:
        read_domain("x", given)
    assert (caught.value.got, caught.value.hint) == (got, hint)


@pytest.mark.parametrize("values", [("a", "b"), range(1, 9, 2)])
def test_the_values_of_a_choice_may_be_any_that_the_class_takes(values):
    assert read_domain("x", {"values": values}) == Choice(values)


@pytest.mark.parametrize(
    "values",
    [
        [{"units": 3}, {"units": 4, "act": ["relu", (1, 2)]}, None],
        [[{"units": 3}], [], "b"],
        [{"tuple": 3}, {"dict": {}}],  # not the form in JSON of anything
    ],
)
def test_a_choice_of_dicts_is_written_as_its_values_are(values):
    assert read_domain("x", {"values": values}) == Choice(values)
    child = read_domain("x", {"low": 1, "high": 5, "when": {"layer": values[0]}})
    assert child == Integer(1, 5, when={"layer": values[0]})


def test_values_in_their_form_in_json_are_those_values():
    values = [{"tuple": [1, 2]}, {"float": "inf"}, {"dict": [["a", 1]]}]
    assert read_domain("x", {"values": values}) == Choice([(1, 2), math.inf, {"a": 1}])


def test_a_range_is_a_choice():
    assert read_domain("x", {"range": [1, 5, 2]}) == Choice(range(1, 5, 2))
    assert read_domain("x", {"low": 1, "high": 5}) == Integer(1, 5)
