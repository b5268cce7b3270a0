"""Returned values survive their round trip, and no bytes decode to other objects."""

import collections
import datetime
import enum
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spark_jobs.calls.plain_values import PLAIN, NotPlain, decode, encode


def dtypes():
    plain = [
        hnp.boolean_dtypes(),
        hnp.integer_dtypes(),
        hnp.unsigned_integer_dtypes(),
        hnp.floating_dtypes(),
        hnp.complex_number_dtypes(),
        hnp.datetime64_dtypes(),
        hnp.timedelta64_dtypes(),
        hnp.byte_string_dtypes(),
        hnp.unicode_string_dtypes(),
    ]
    return st.one_of(plain)


def arrays():
    shapes = hnp.array_shapes(min_dims=0, min_side=0, max_side=4)
    return hnp.arrays(dtypes(), shapes).map(lambda array: array.T)


def numpy_scalars():
    return arrays().filter(lambda a: a.size and a.dtype.kind not in "SU").map(lambda a: a.flat[0])


def text():
    return st.text(st.characters(codec="utf-8"))


def keys():
    return st.none() | st.booleans() | st.integers() | st.floats() | text() | st.binary()


def values():
    zones = st.none() | st.just(datetime.UTC)
    leaves = keys() | arrays() | numpy_scalars() | st.datetimes(timezones=zones)
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner)
            | st.lists(inner).map(tuple)
            | st.dictionaries(keys() | st.tuples(keys(), keys()), inner, max_size=4)
        ),
        max_leaves=12,
    )


def same(one, other):
    """Whether they are equal and of the same types at every depth; NaN equals NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        shaped = one.dtype == other.dtype and one.shape == other.shape
        return shaped and one.tobytes() == other.tobytes()
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


@given(values())
def test_values_survive_the_way_with_their_types(value):
    assert same(decode(encode(value)), value)


def test_arrays_can_be_written_to():
    array = decode(encode(np.zeros(3)))
    array[1] = 5
    assert array.tolist() == [0, 5, 0]


def test_strings_of_numpy_become_those_of_python():
    assert same(decode(encode([np.str_("a\0"), np.bytes_(b"b\0")])), ["a\0", b"b\0"])


class Colour(enum.IntEnum):
    RED = 1


Point = collections.namedtuple("Point", "x")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (object(), "object"),
        ({1}, "set"),
        (Colour.RED, f"{__name__}.Colour"),
        (Point(1), f"{__name__}.Point"),
        (collections.Counter(), "collections.Counter"),
        (print, "builtin_function_or_method"),
        (np.array([None]), "numpy.ndarray"),
        (np.zeros(1, [("a", "f8")]), "numpy.ndarray"),
        (np.ma.masked_array([1.0]), "numpy.ma.MaskedArray"),
    ],
)
def test_anything_else_is_refused_by_its_type(value, kind):
    with pytest.raises(NotPlain) as caught:
        encode({"deep": [(value,)]})
    message = str(caught.value)
    assert message.startswith(f"expected {PLAIN}; got ")
    assert message.endswith(f" of type {kind}")


def test_values_that_contain_themselves_are_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(NotPlain, match="nested"):
        encode(endless)


def test_text_that_utf_8_cannot_hold_is_refused():
    with pytest.raises(NotPlain, match="UTF-8"):
        encode("\ud800")


@given(
    st.binary()
    | st.tuples(values().map(encode), st.binary()).map(lambda parts: parts[0] + parts[1])
)
def test_any_bytes_decode_to_a_value_or_one_error(data):
    try:
        value = decode(data)
    except NotPlain:
        return
    assert same(decode(encode(value)), value)


@pytest.mark.parametrize(
    "tree",
    [
        {"array": ["|O", [1], b"12345678"]},
        {"array": ["<f8,<f8", [1], b"1234567812345678"]},
        {"array": ["<f8", [2], b"12345678"]},
        {"array": ["<f8", [-1, -1], b"12345678"]},
        {"array": ["<f8", [2**62, 0], b""]},
        {"array": ["<U0", [2**40], b""]},
        {"array": ["<f8", [True], b"12345678"]},
        {"scalar": ["|O", b"12345678"]},
        {"scalar": ["<f8", b"1234"]},
        {"int": "0x" + "g"},
        {"datetime": "yesterday"},
        {"dict": [1]},
        {"dict": [[1], 2]},
        {"dict": {"a": 1}},
        {"tuple": "ab"},
        {"object": []},
        {"tuple": [], "dict": []},
        {"scalar": ["<U1", b"\xff\xff\xff\xff"]},
        {},
        {1: 2},
        msgspec.msgpack.Ext(5, b"abc"),
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    ],
)
def test_trees_that_were_not_encoded_are_refused(tree):
    with pytest.raises(NotPlain):
        decode(msgspec.msgpack.encode(tree))


def test_bytes_nested_without_an_end_are_refused():
    with pytest.raises(NotPlain):
        decode(b"\x91" * 100_000)
    with pytest.raises(NotPlain):
        decode(b"\x91" * 100 + b"\xc0")
