import collections
import contextlib
import datetime
import decimal
import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.errors import InvalidArgument
from search.values import decode_hook, encode_hook, from_json, plain_value, to_json
from tests.properties import examples

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([math.inf, -math.inf, math.nan, -0.0])
    | st.text()
)
keys = st.text(max_size=5) | st.sampled_from(["float", "tuple", "dict"])


def nested(children):
    lists = st.lists(children, max_size=4)
    return lists | lists.map(tuple) | st.dictionaries(keys, children, max_size=4)


values = st.recursive(scalars, nested, max_leaves=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(keys, children, max_size=3)
        | st.builds(lambda key, child: {key: child}, keys, children)
        | st.builds(lambda pairs: {"dict": [pairs]}, st.lists(children, max_size=3))
    ),
    max_leaves=12,
)


def nest(depth, value=0):
    for _ in range(depth):
        value = [value]
    return value


def through_json(value):
    return from_json(json.loads(json.dumps(to_json(value), allow_nan=False)))


@given(values)
@examples(200)
def test_values_survive_their_round_trip(value):
    # The repr distinguishes tuples and lists, 1, 1.0 and True, 0.0 and -0.0, and shows NaN.
    assert repr(through_json(value)) == repr(value)


@given(values)
@examples(100)
def test_plain_values_stay_as_they_are(value):
    assert repr(plain_value("x", value)) == repr(value)


@pytest.mark.parametrize(
    "value",
    [
        (64, 32),
        [(64,), [32], ()],
        math.inf,
        -math.inf,
        {"max_norm": math.inf, "layers": (64, 32), "more": {"a": [None, True]}},
        {"tuple": [1, 2]},
        {"float": "inf"},
        {"dict": [["a", 1]]},
        {"": {}},
        {"b": 1, "a": 2},
        10**30,
        5e-324,
        1.7976931348623157e308,
        "ß\u202e\U0001f40d\x00",
    ],
)
def test_examples_survive_their_round_trip(value):
    arrived = through_json(value)
    assert arrived == value
    assert repr(arrived) == repr(value)


def test_nan_survives_its_round_trip():
    assert math.isnan(through_json(math.nan))


def test_form_in_json_is_as_documented():
    assert to_json((1, (2,))) == {"tuple": [1, {"tuple": [2]}]}
    assert to_json([math.inf, -math.inf]) == [{"float": "inf"}, {"float": "-inf"}]
    assert to_json(math.nan) == {"float": "nan"}
    assert to_json({"a": {"b": ()}}) == {"dict": [["a", {"dict": [["b", {"tuple": []}]]}]]}
    assert to_json([None, True, 3, 0.5, "x"]) == [None, True, 3, 0.5, "x"]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.float16(0.5), 0.5),
        (np.int8(-3), -3),
        (np.int64(2**40), 2**40),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.bool_(True), True),
        (np.str_("adam"), "adam"),
        (np.float64("inf"), math.inf),
        (np.array(5), 5),
        (np.array([1, 2]), [1, 2]),
        (np.array([[0.5], [1.5]]), [[0.5], [1.5]]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array([]), []),
        ([np.int64(1), (np.float64(2.0),)], [1, (2.0,)]),
        ({"a": np.arange(2), "b": {"c": np.bool_(False)}}, {"a": [0, 1], "b": {"c": False}}),
    ],
)
def test_numpy_becomes_plain_python(value, plain):
    result = plain_value("x", value)
    assert repr(result) == repr(plain)
    assert type(result) is type(plain)


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(object(), id="object"),
        pytest.param(test_nan_survives_its_round_trip, id="function"),
        int,
        b"bytes",
        bytearray(b"bytes"),
        1j,
        np.complex128(1j),
        np.bytes_(b"x"),
        np.datetime64("2020-01-01"),
        pytest.param(np.array([object()]), id="array of an object"),
        datetime.date(2020, 1, 1),
        decimal.Decimal(1),
        {1, 2},
        frozenset(),
        range(3),
        Point(1, 2),
        collections.OrderedDict(a=1),
        {1: "a"},
        {None: "a"},
        {"a": 1, ("b",): 2},
        pytest.param([[[object()]]], id="object in lists"),
        ({"a": {"b": b""}},),
        pytest.param((item for item in [1]), id="generator"),
    ],
    ids=repr,
)
def test_values_without_a_form_in_json_are_refused(value):
    with pytest.raises(InvalidArgument) as caught:
        plain_value("bounds['x']", value)
    assert caught.value.name == "bounds['x']"
    assert "expected None, a bool, a number, a string, or lists" in str(caught.value)
    assert "of type " in caught.value.got
    assert caught.value.hint


@pytest.mark.parametrize("value", ["\ud800", "a\udfffb", ["\udc80"], {"a": ("\ud800",)}])
def test_lone_surrogates_are_refused(value):
    with pytest.raises(InvalidArgument, match=r"^x: expected text that UTF-8 can hold, got '"):
        plain_value("x", value)


def test_values_may_be_32_deep_and_no_deeper():
    assert plain_value("x", nest(32)) == nest(32)
    assert through_json(nest(32)) == nest(32)
    with pytest.raises(InvalidArgument, match=r"^x: "):
        plain_value("x", nest(33))


def test_too_deep_dicts_and_tuples_are_refused():
    value = 0
    for _ in range(20):
        value = {"a": (value,)}
    with pytest.raises(InvalidArgument, match=r"^x: "):
        plain_value("x", value)


def test_a_list_that_holds_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(InvalidArgument, match=r"^x: "):
        plain_value("x", loop)


@given(json_values)
@examples(200)
def test_from_json_of_garbage_raises_value_error_or_nothing(garbage):
    with contextlib.suppress(ValueError):
        from_json(garbage)


@pytest.mark.parametrize(
    "garbage",
    [
        {},
        {"float": "1.5"},
        {"float": "infinity"},
        {"float": 1.5},
        {"float": None},
        {"tuple": "ab"},
        {"tuple": None},
        {"tuple": {"a": 1}},
        {"dict": {"a": 1}},
        {"dict": [1]},
        {"dict": ["ab"]},
        {"dict": [["a"]]},
        {"dict": [["a", 1, 2]]},
        {"dict": [[1, "a"]]},
        {"dict": [[None, 1]]},
        {"dict": [["a", {}]]},
        {"set": [1]},
        {"a": 1},
        [1, {"tuple": [{"dict": 3}]}],
    ],
)
def test_from_json_refuses_what_to_json_never_makes(garbage):
    with pytest.raises(ValueError, match="not a "):
        from_json(garbage)


@pytest.mark.parametrize("value", [object(), 1j])
def test_the_hooks_of_msgspec_refuse_every_other_type_by_its_name(value):
    said = f"^{type(value).__name__} has no form in JSON$"
    with pytest.raises(NotImplementedError, match=said):
        msgspec.json.encode({"x": value}, enc_hook=encode_hook)
    with pytest.raises(NotImplementedError, match=said):
        msgspec.json.decode(b"{}", type=type(value), dec_hook=decode_hook)
