import collections
import json
import math
import sys
import unicodedata

import msgspec
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from search.errors import InvalidArgument
from search.space.spaces import LARGEST_INTEGER, Choice, Float, Integer, Space, read_points
from tests.properties import examples

units = st.floats(0, 1) | st.sampled_from([0.0, 1.0, math.nextafter(1, 0), 5e-324, 0.5])
finite = st.floats(allow_nan=False, allow_infinity=False)
exact = st.integers(-LARGEST_INTEGER, LARGEST_INTEGER)


def bound(value):
    return Space.of_bounds({"x": value})["x"]


def grid(values):
    return list(Space.of_grid({"x": values})["x"].values)


def refusal(call, *args, **kwargs):
    with pytest.raises(InvalidArgument) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert message.startswith(f"{caught.value.name}: expected ")
    assert ", got " in message
    return caught.value


@st.composite
def float_domains(draw):
    if draw(st.booleans()):
        positive = st.floats(1e-150, 1e150)
        return Float(draw(positive), draw(positive), log=True)
    numbers = finite.filter(lambda number: number == 0 or abs(number) > 1e-300)
    return Float(draw(numbers), draw(numbers))


@st.composite
def integer_domains(draw):
    if draw(st.booleans()):
        positive = st.integers(1, 2**40) | st.integers(1, 10)
        return Integer(draw(positive), draw(positive), log=True)
    numbers = st.integers(-(2**49), 2**49) | st.integers(-5, 5)
    return Integer(draw(numbers), draw(numbers))


choices = st.lists(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False) | st.text(),
    min_size=1,
    max_size=20,
).map(Choice) | st.integers(1, 10**4).map(lambda length: Choice(range(length)))


@pytest.mark.fault(43)
@pytest.mark.parametrize(
    ("bounds", "domain"),
    [
        ([1, 9], Integer(1, 9)),
        ([9, 1], Integer(1, 9)),
        ([-3, 3], Integer(-3, 3)),
        ([0.1, 0.5], Float(0.1, 0.5)),
        ([-0.5, 0.5], Float(-0.5, 0.5)),
        ([0.5, -0.5], Float(-0.5, 0.5)),
        ([0, 0.5], Float(0.0, 0.5)),
        ([0.5, 0], Float(0.0, 0.5)),
        ([1, 2.5], Float(1.0, 2.5)),
        ([10**30, 0.0], Float(0.0, 1e30)),
    ],
)
def test_two_numbers_in_either_order_are_bounds(bounds, domain):
    assert bound(bounds) == domain


@given(first=exact, second=exact)
@examples(100)
def test_two_ints_are_an_integer_and_never_on_a_log_scale(first, second):
    domain = bound([first, second])
    assert domain == Integer(min(first, second), max(first, second))
    assert not domain.log
    assert type(domain.low) is type(domain.high) is int


@pytest.mark.parametrize("bounds", [[1, 10**6], [10**6, 1], [1000, 1], [1, 1000]])
def test_wide_and_reversed_ints_stay_linear(bounds):
    assert bound(bounds).log is False


@pytest.mark.parametrize(
    "bounds",
    [
        [0.005, 0.00005],
        [0.2, 0.1],
        [2, 1.5],
        [2.5, 1],
        [1.0, 1000.0],
        [0.001, 1.0],
        [0.001, 1],
        [1e-6, 1e-3],
        [1e-5, 1e-2],
        [3e-7, 3e-4],
        [3.0, 3000.0],
        [6e-07, 0.0006],
        [1, 2000.0],
        [1e-300, 1e300],
        [1e300, 1e-300],
        [5e-324, 1.0],
    ],
)
def test_positive_floats_far_apart_or_high_first_are_on_a_log_scale(bounds):
    assert bound(bounds) == Float(float(min(bounds)), float(max(bounds)), log=True)


@pytest.mark.parametrize(
    "bounds",
    [
        [0.1, 0.2],
        [0.0011, 1.0],
        [1.0, 999.9],
        [0.0, 1.0],
        [0, 1e6],
        [-1.0, 1e6],
        [1.0, 0.0],
        [1e6, -1.0],
        [-0.001, -10.0],
        [0.0, 5e-324],
    ],
)
def test_other_floats_are_on_a_linear_scale(bounds):
    assert bound(bounds) == Float(float(min(bounds)), float(max(bounds)), log=False)


@given(first=finite, second=finite)
@examples(200)
def test_scale_of_any_two_floats(first, second):
    domain = bound([first, second])
    low, high = min(first, second), max(first, second)
    assert (domain.low, domain.high) == (low, high)
    if low <= 0 or low == high:
        assert not domain.log
    elif first > second:
        assert domain.log
    else:
        ratio = math.log10(high) - math.log10(low)
        assume(abs(ratio - 3) > 1e-6)
        assert domain.log == (ratio > 3)


@pytest.mark.fault(43)
@pytest.mark.parametrize("value", [3, -3, 0, 0.5, -0.5, 0.0, 1e-300, 1e300])
def test_equal_bounds_are_a_constant(value):
    domain = bound([value, value])
    assert {domain.decode(unit) for unit in (0.0, 0.3, 0.5, 1.0)} == {value}
    assert type(domain.decode(0.5)) is type(value)
    assert domain.decode(domain.encode(value)) == value


@pytest.mark.parametrize(
    "values",
    [
        [True, False],
        [False, True],
        ["adam", "sgd"],
        ["sgd", "adam", "rmsprop"],
        [1, 2, 3],
        [0.1, 0.2, 0.4],
        [3, 1, 2],
        [1, 2.5, 3],
        [True, False, True],
        [1, "a", None],
        [None, True, 0.5, "x", (1, 2), [3], {"a": 4}],
        [math.inf, 1.0, 2.0],
    ],
)
def test_two_booleans_or_strings_or_more_than_two_values_are_a_choice(values):
    domain = bound(values)
    assert type(domain) is Choice
    assert list(domain.values) == values
    assert [type(value) for value in domain.values] == [type(value) for value in values]


@pytest.mark.parametrize(
    "domain",
    [Float(1.0, 5000.0), Float(0.1, 0.2, log=True), Integer(1, 8, log=True), Choice([5])],
)
def test_domain_objects_stay_as_they_are(domain):
    assert bound(domain) is domain


@pytest.mark.parametrize(
    ("values", "domain"),
    [
        ((1, 9), Integer(1, 9)),
        (range(1, 3), Integer(1, 2)),
        (np.array([1, 9]), Integer(1, 9)),
        ([np.int32(1), np.uint8(9)], Integer(1, 9)),
        ([np.array(1), np.array(9)], Integer(1, 9)),
        (np.array([0.25, 0.5]), Float(0.25, 0.5)),
        ([np.float32(0.25), 1], Float(0.25, 1.0)),
        (np.array([0.5, 0.25]), Float(0.25, 0.5, log=True)),
        (np.array(["a", "b"]), Choice(["a", "b"])),
        (np.array([True, False]), Choice([True, False])),
        (np.arange(4), Choice([0, 1, 2, 3])),
        (np.array([[1], [2], [3]]), Choice([[1], [2], [3]])),
        ({"a": 1, "b": 2}.keys(), Choice(["a", "b"])),
        (collections.deque([1, 9]), Integer(1, 9)),
    ],
    ids=repr,
)
def test_sequences_of_any_kind_are_read(values, domain):
    read = bound(values)
    assert read == domain
    assert repr(read) == repr(domain)


@pytest.mark.fault(44)
def test_generators_are_read_once():
    assert bound(number for number in (9, 1)) == Integer(1, 9)
    assert bound(iter(["a", "b", "c"])) == Choice(["a", "b", "c"])
    assert grid(number * 2 for number in range(3)) == [0, 2, 4]


@pytest.mark.fault(43)
@pytest.mark.parametrize(
    "value",
    [
        [math.nan, 1.0],
        [1.0, math.nan],
        [0.0, math.inf],
        [-math.inf, 0.0],
        [0, math.inf],
        [np.float64("nan"), 1.0],
        [10**400, 1.0],
    ],
    ids=repr,
)
def test_bounds_that_are_not_finite_are_refused(value):
    error = refusal(bound, value)
    assert error.name == "bounds['x']"
    assert error.expected == "a finite number as bound"


@pytest.mark.fault(43)
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((text, "two bounds or a list of choices") for text in ("0.1", "adam", b"ab", "")),
        ({1, 2}, "a list of values"),
        ({}, "a list, or a mapping with a type: float, integer or choice"),
    ],
)
def test_strings_sets_and_an_empty_dict_are_refused(value, expected):
    error = refusal(bound, value)
    assert (error.name, error.expected) == ("bounds['x']", expected)


@pytest.mark.parametrize("value", [5, 0.5, True, None, np.float64(0.5), np.array(5), len, Space])
def test_single_values_are_refused(value):
    error = refusal(bound, value)
    assert error.name == "bounds['x']"
    assert error.hint == "write [low, high], experiment.Float(low, high), or a list of choices"


@pytest.mark.parametrize("domain", [Float(0, 1), Integer(1, 3), Choice(["a", "b"])], ids=repr)
@pytest.mark.parametrize("listed", [list, tuple])
def test_a_domain_in_a_list_is_refused_with_the_domain_to_write(domain, listed):
    error = refusal(bound, listed([domain]))
    assert error.hint == f"write {domain!r} without the list"


@pytest.mark.parametrize(
    ("value", "constant"),
    [
        *((value, value) for value in (5, -0.5, 2**60, True, False, None, "", "eu", "0.1")),
        (math.inf, math.inf),
        (np.float64(0.5), 0.5),
        (np.int32(5), 5),
        (np.array(5), 5),
        (np.bool_(True), True),
        (np.str_("eu"), "eu"),
    ],
    ids=repr,
)
def test_a_choice_of_one_value_is_a_constant(value, constant):
    domain = bound(Choice([value]))
    assert domain.size == 1
    for unit in (0.0, 0.3, 1.0):
        assert domain.decode(unit) == constant
        assert type(domain.decode(unit)) is type(constant)
    assert domain.encode(constant) == 0.5
    assert repr(Space.from_json(Space({"x": domain}).to_json())["x"]) == repr(domain)


@pytest.mark.parametrize("value", [[5], (0.5,), ["adam"], [True], np.array([5]), range(1), [None]])
def test_one_bound_only_is_refused(value):
    error = refusal(bound, value)
    assert (error.name, error.expected) == ("bounds['x']", "two bounds")


@pytest.mark.parametrize(
    "value",
    [
        [1, "a"],
        ["a", 0.5],
        ["1", 2],
        [None, 1],
        [None, None],
        [True, 2],
        [0.5, False],
        [True, "a"],
        [(1,), (2,)],
        np.array([[1, 2], [3, 4]]),
    ],
    ids=repr,
)
def test_two_values_of_different_kinds_are_refused(value):
    error = refusal(bound, value)
    assert error.name == "bounds['x']"
    assert "Choice([...])" in error.hint


@pytest.mark.fault(44)
@pytest.mark.parametrize(
    "value",
    [[], (), range(0), np.array([]), pytest.param(iter(()), id="iterator")],
    ids=repr,
)
def test_empty_lists_are_refused(value):
    assert refusal(bound, value).name == "bounds['x']"


@pytest.mark.fault(43)
@pytest.mark.parametrize("value", [[0, 2**53 + 1], [-(2**53) - 1, 0], [10**400, 1]])
def test_integers_beyond_two_to_the_53_are_refused(value):
    error = refusal(bound, value)
    assert error.name == "bounds['x']"
    assert error.expected == "an integer between -2^53 and 2^53"


def test_integers_up_to_two_to_the_53_are_accepted():
    domain = bound([-(2**53), 2**53])
    assert domain == Integer(-(2**53), 2**53)
    assert domain.decode(0.0) == -(2**53)
    assert domain.decode(1.0) == 2**53


@pytest.mark.parametrize("value", [[object(), 1, 2], [b"a", b"b"], [1, 2, {3: 4}], ["a", "\ud800"]])
def test_values_without_a_form_in_json_are_refused(value):
    assert refusal(bound, value).name == "bounds['x']"
    assert refusal(grid, value).name == "args_dict['x']"
    assert refusal(Choice, value).name == "Choice"


@pytest.mark.fault(43)
@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [(Float, 0.0, 1.0), (Float, -1.0, 1.0), (Float, 1.0, 0.0), (Integer, 0, 5), (Integer, -5, 5)],
)
def test_log_scale_needs_bounds_above_zero(kind, low, high):
    error = refusal(kind, low, high, log=True)
    assert error.name == kind.__name__
    assert "above zero" in error.expected


@pytest.mark.parametrize("value", ["1", None, True, math.nan, math.inf, 1j, [1]])
def test_domains_check_their_bounds(value):
    for kind in (Float, Integer):
        assert refusal(kind, value, 2).name == kind.__name__
        assert refusal(kind, 2, value).name == kind.__name__


def test_integer_refuses_floats_and_what_a_float_cannot_hold():
    assert "an integer" in refusal(Integer, 1.0, 2).expected
    assert "2^53" in refusal(Integer, 0, 2**53 + 1).expected


def test_domains_sort_their_bounds_and_keep_the_scale():
    assert Float(2, 1) == Float(1.0, 2.0, log=False)
    assert Integer(5, 1) == Integer(1, 5, log=False)
    assert type(Float(1, 2).low) is float
    assert type(Integer(np.int64(1), np.int64(2)).high) is int


@pytest.mark.fault(44)
@pytest.mark.parametrize("values", ["abc", b"abc", 5, None, {"a": 1}, {1}, frozenset([1]), []])
def test_choice_needs_a_list_of_values(values):
    assert refusal(Choice, values).name == "Choice"


@pytest.mark.parametrize("bounds", [None, 5, "x", [("x", [1, 2])], {"x"}])
def test_bounds_and_grids_must_be_dicts(bounds):
    for read, name in ((Space.of_bounds, "bounds"), (Space.of_grid, "args_dict")):
        error = refusal(read, bounds)
        assert error.name == name
        assert "dict" in error.expected


def test_a_space_without_hyperparameters_is_refused():
    assert refusal(Space.of_bounds, {}).name == "bounds"
    assert refusal(Space.of_grid, {}).name == "args_dict"
    assert refusal(Space, {}).name == "space"


BAD_NAMES = ["", "a\nb", "\x00", "tab\t", "\x7f", "\x85", "a\ud800", "\udc80", 5, None, True, b"x"]


@pytest.mark.fault(42)
@pytest.mark.parametrize("name", [*BAD_NAMES, ("a",), 0.5], ids=repr)
def test_unusable_names_are_refused(name):
    for read, where in ((Space.of_bounds, "bounds"), (Space.of_grid, "args_dict")):
        error = refusal(read, {"good": [1, 2], name: [1, 2]})
        assert error.name == where
        assert "names" in error.expected
        assert error.got == repr(name)
    assert refusal(read_points, [{name: 1}]).name == "args_dict[0]"


@pytest.mark.fault(42)
@pytest.mark.parametrize(
    ("one", "other"),
    [("é", "e\u0301"), ("ﬁt", "fit"), ("x²", "x2"), ("Ａ", "A"), ("ℌ", "H"), ("Å", "\u212b")],
)
def test_names_that_python_reads_as_one_are_refused(one, other):
    for read in (Space.of_bounds, Space.of_grid):
        error = refusal(read, {one: [1, 2], "between": [1, 2], other: [1, 2]})
        assert error.expected == "each name once"
        assert error.got == f"{one!r} and {other!r}"


@pytest.mark.fault(42)
@pytest.mark.parametrize(
    "name",
    [
        "learning_rate",
        "größe",
        "学习率",
        "\U0001f40d",
        "e\u0301",
        "ﬁt",
        "x" * 3000,
        "..",
        ".",
        "a/b\\c",
        " ",
        "שלום",
        "مرحبا",
        "\u202eabc",
        "class",
        "a b=c,d'\"",
        "-1",
        "A",
    ],
    ids=lambda name: ascii(name[:12]),
)
def test_unusual_names_are_accepted_and_stay_exact(name):
    space = Space.of_bounds({name: [1, 5], "other": [True, False]})
    assert list(space) == [name, "other"]
    assert list(space.decode([0.0, 0.0])) == [name, "other"]
    assert list(json.loads(json.dumps(space.to_json()))) == [name, "other"]
    assert list(Space.of_grid({name: [1]})) == [name]


def test_names_of_numpy_are_plain_strings():
    names = np.array(["x", "units"])
    for space in (
        Space.of_bounds({name: [1, 2] for name in names}),
        Space.of_grid({name: [1, 2] for name in names}),
    ):
        assert [type(name) for name in space] == [str, str]
        assert list(space.decode([0.0, 0.0])) == ["x", "units"]


def test_names_that_differ_in_case_are_two_names():
    assert len(Space.of_bounds({"a": [1, 2], "A": [1, 2]})) == 2


@pytest.mark.parametrize(
    ("values", "read"),
    [
        ([1, 2], [1, 2]),
        ([5], [5]),
        ((1, "a", None), [1, "a", None]),
        (range(2, 8, 3), [2, 5]),
        (np.array([0.5, 1.5]), [0.5, 1.5]),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        ([(1, 2), [3]], [(1, 2), [3]]),
        ([math.inf], [math.inf]),
        ([2, 2, 1], [2, 2, 1]),
        (Choice([4, 2]), [4, 2]),
        ({"a": 1}.values(), [1]),
    ],
    ids=repr,
)
def test_grid_lists_are_read_in_their_order(values, read):
    assert repr(grid(values)) == repr(read)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (5, "write [5]"),
        (0.5, "write [0.5]"),
        ("adam", "write ['adam']"),
        (None, "write [None]"),
        (True, "write [True]"),
        ({1}, "write a list, which has an order"),
        ({"a": 1}, "write [{'a': 1}]"),
        (b"a", "write [b'a']"),
        (np.array(5), "write [array(5)]"),
        (Float(0, 1), "a grid takes lists; random_search and other searches take bounds"),
    ],
    ids=repr,
)
def test_grid_values_that_are_no_lists_are_refused(value, hint):
    error = refusal(grid, value)
    assert (error.name, error.expected) == ("args_dict['x']", "a list of values")
    assert hint in str(error)


@pytest.mark.fault(44)
@pytest.mark.parametrize(
    "value",
    [[], (), range(5, 5), np.array([]), pytest.param(iter(()), id="iterator")],
    ids=repr,
)
def test_empty_grid_lists_are_refused(value):
    error = refusal(grid, value)
    assert (error.name, error.expected) == ("args_dict['x']", "at least one value")


def test_a_long_range_is_kept_as_a_range():
    assert Space.of_grid({"x": range(10**9)})["x"].values == range(10**9)


def test_later_changes_of_a_list_do_not_reach_the_space():
    values = [1, 2, 3]
    space = Space.of_grid({"x": values})
    values.append(4)
    assert list(space["x"].values) == [1, 2, 3]


@given(low=finite, high=finite, unit=units)
@example(low=-sys.float_info.max, high=sys.float_info.max, unit=0.5)
@example(low=-sys.float_info.max, high=sys.float_info.max, unit=1.0)
@example(low=sys.float_info.max, high=sys.float_info.max, unit=1 / 3)
@example(low=0.0, high=5e-324, unit=0.7)
@examples(200)
def test_floats_decode_between_any_two_bounds(low, high, unit):
    domain = Float(low, high)
    value = domain.decode(unit)
    assert type(value) is float
    assert domain.low <= value <= domain.high


@given(domain=float_domains(), unit=units)
@example(domain=Float(1e-150, 1e150, log=True), unit=1.0)
@example(domain=Float(-sys.float_info.max, sys.float_info.max), unit=0.25)
@examples(200)
def test_floats_encode_to_their_position(domain, unit):
    value = domain.decode(unit)
    again = domain.encode(value)
    assert domain.low <= value <= domain.high
    assert 0 <= again <= 1
    if domain.log:
        assert math.isclose(domain.decode(again), value, rel_tol=1e-9)
    else:
        size = max(abs(domain.low), abs(domain.high))
        assert math.isclose(domain.decode(again), value, rel_tol=1e-9, abs_tol=1e-12 * size)


@given(domain=float_domains())
@example(domain=Float(1e-150, 1.0000000000000001e-150, log=True))  # with equal logarithms
@examples(100)
def test_float_bounds_are_the_ends_of_the_interval(domain):
    assert math.isclose(domain.decode(0.0), domain.low, rel_tol=1e-9)
    assert math.isclose(domain.decode(1.0), domain.high, rel_tol=1e-9)
    if domain.low < domain.high:
        assert domain.encode(domain.low) == 0
        assert math.isclose(domain.encode(domain.high), 1, rel_tol=1e-9)


@given(domain=float_domains(), one=units, other=units)
@examples(100)
def test_float_decoding_keeps_the_order(domain, one, other):
    lower, upper = domain.decode(min(one, other)), domain.decode(max(one, other))
    size = max(abs(domain.low), abs(domain.high))
    assert lower <= upper or math.isclose(lower, upper, rel_tol=1e-9, abs_tol=1e-12 * size)


def test_linear_floats_are_spread_evenly():
    domain = Float(-1.0, 3.0)
    assert [domain.decode(unit) for unit in (0.0, 0.25, 0.5, 1.0)] == [-1.0, 0.0, 1.0, 3.0]
    assert [domain.encode(value) for value in (-1.0, 0.0, 1.0, 3.0)] == [0.0, 0.25, 0.5, 1.0]


def test_each_power_of_ten_gets_the_same_share_of_a_log_scale():
    domain = Float(1e-4, 1.0, log=True)
    assert [domain.decode(k / 4) for k in range(5)] == pytest.approx([1e-4, 1e-3, 1e-2, 0.1, 1.0])
    assert [domain.encode(10.0**-k) for k in range(5)] == pytest.approx([1, 0.75, 0.5, 0.25, 0])


@given(domain=integer_domains(), unit=units)
@examples(200)
def test_integers_decode_between_the_bounds_and_encode_to_the_same_bin(domain, unit):
    value = domain.decode(unit)
    assert type(value) is int
    assert domain.low <= value <= domain.high
    assert 0 <= domain.encode(value) <= 1
    assert domain.decode(domain.encode(value)) == value


@given(low=exact, high=exact, unit=units)
@example(low=-(2**53), high=2**53, unit=1.0)
@examples(100)
def test_huge_integers_decode_between_the_bounds(low, high, unit):
    for domain in (Integer(low, high), Integer(abs(low) or 1, abs(high) or 1, log=True)):
        assert domain.low <= domain.decode(unit) <= domain.high


@given(low=st.integers(-50, 50), length=st.integers(1, 30))
@examples(50)
def test_every_integer_has_a_bin_of_the_same_size(low, length):
    domain = Integer(low, low + length - 1)
    decoded = [domain.decode((k + 0.5) / (length * 8)) for k in range(length * 8)]
    assert collections.Counter(decoded) == dict.fromkeys(range(low, low + length), 8)
    assert (domain.decode(0.0), domain.decode(1.0)) == (low, low + length - 1)


def test_integers_encode_to_the_middle_of_their_bin():
    assert [Integer(1, 4).encode(value) for value in (1, 2, 3, 4)] == [0.125, 0.375, 0.625, 0.875]


def test_log_integers_share_the_interval_by_their_logarithm():
    domain = Integer(1, 7, log=True)
    decoded = collections.Counter(domain.decode((k + 0.5) / 3000) for k in range(3000))
    assert [decoded[1], decoded[2] + decoded[3]] == [1000, 1000]
    assert (domain.decode(0.0), domain.decode(1.0)) == (1, 7)


@given(domain=choices, unit=units)
@examples(200)
def test_choices_decode_to_a_value_and_encode_to_the_same(domain, unit):
    value = domain.decode(unit)
    assert value in domain.values
    again = domain.decode(domain.encode(value))
    assert again == value
    assert type(again) is type(value)


@given(length=st.integers(1, 40))
@examples(40)
def test_every_choice_has_a_bin_of_the_same_size(length):
    domain = Choice(list(range(length)))
    decoded = [domain.decode((k + 0.5) / (length * 8)) for k in range(length * 8)]
    assert collections.Counter(decoded) == dict.fromkeys(range(length), 8)
    assert domain.decode(1.0) == length - 1


def test_choices_tell_true_from_one_and_one_from_one_point_zero():
    domain = Choice([1, True, 1.0, "1"])
    assert [domain.decode(domain.encode(value)) is value for value in domain.values] == [True] * 4


@pytest.mark.parametrize("value", [4, 1.0, True, "1", None])
def test_values_that_are_no_choice_do_not_encode(value):
    with pytest.raises(ValueError, match="is none of"):
        Choice([1, 2, 3]).encode(value)


@pytest.mark.parametrize("values", [["a", None, (1,), True, 1], range(-3, 9, 2)])
def test_the_index_of_a_choice_is_its_position(values):
    assert [Choice(values).index(value) for value in values] == list(range(len(values)))


def test_a_long_range_is_not_iterated_over():
    assert Choice(range(10**15)).index(10**14) == 10**14


@pytest.mark.parametrize("value", [True, 1.0, 0, 9, "1"])
def test_values_that_are_not_in_a_range_have_no_index(value):
    with pytest.raises(ValueError, match="is none of"):
        Choice(range(1, 9)).index(value)


def test_space_is_a_mapping_in_the_order_of_its_names():
    space = Space.of_bounds({"z": [1, 2], "a": [0.1, 0.2], "m": ["x", "y"]})
    assert list(space) == ["z", "a", "m"]
    assert len(space) == 3
    assert space["a"] == Float(0.1, 0.2)
    assert space == Space.of_bounds({"z": [1, 2], "a": [0.1, 0.2], "m": ["x", "y"]})
    assert "Integer(low=1, high=2, log=False)" in repr(space)


def test_space_decodes_and_encodes_one_coordinate_per_name():
    space = Space.of_bounds({"z": [1, 4], "a": [0.0, 1.0], "m": ["x", "y"]})
    params = space.decode([0.3, 0.25, 0.9])
    assert params == {"z": 2, "a": 0.25, "m": "y"}
    assert list(params) == ["z", "a", "m"]
    assert space.encode({"m": "y", "a": 0.25, "z": 2}) == [0.375, 0.25, 0.75]


def test_a_snapped_point_is_the_position_of_its_values():
    mixed = {
        "rate": Float(1e-5, 1.0, log=True),
        "share": Float(0.0, 1.0, step=0.125),
        "units": Integer(1, 512, log=True),
        "kind": Choice(["x", "y", "z"]),
        "size": Choice([1, 2, 4], ordered=True),
    }
    for space in (
        Space(mixed),
        Space({**mixed, "momentum": Float(0.0, 1.0, when={"kind": ["x"]})}),
    ):
        for unit in (0.0, 0.1, 0.34, 0.5, 0.77, 1.0):
            point = [unit] * len(space)
            assert space.snap(point) == tuple(space.encode(space.decode(point)))


@pytest.mark.parametrize("point", [[], [0.5], [0.5, 0.5, 0.5]])
def test_space_refuses_points_of_another_dimension(point):
    with pytest.raises(ValueError):
        Space.of_bounds({"a": [1, 2], "b": [1, 2]}).decode(point)


@given(st.dictionaries(st.sampled_from("abcdef"), float_domains() | choices, min_size=1), st.data())
@examples(50)
def test_space_decodes_each_name_in_its_domain(domains, data):
    point = data.draw(st.lists(units, min_size=len(domains), max_size=len(domains)))
    params = Space(domains).decode(point)
    assert list(params) == list(domains)
    for (name, domain), unit in zip(domains.items(), point, strict=True):
        assert repr(params[name]) == repr(domain.decode(unit))


def test_space_has_a_form_in_json():
    space = Space(
        {
            "z": Integer(1, 9),
            "a": Float(1e-4, 1, log=True),
            "m": Choice([(1, 2), math.inf, "x"]),
            "n": Choice(range(0, 10**9, 2)),
        }
    )
    assert json.loads(json.dumps(space.to_json(), allow_nan=False)) == {
        "z": {"type": "integer", "low": 1, "high": 9, "log": False},
        "a": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "m": {"type": "choice", "values": [{"tuple": [1, 2]}, {"float": "inf"}, "x"]},
        "n": {"type": "choice", "range": [0, 10**9, 2]},
    }
    assert list(space.to_json()) == ["z", "a", "m", "n"]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["float", "tuple", "dict", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)
ranges = st.builds(
    lambda start, length, step: range(start, start + length * step, step),
    st.integers(),
    st.integers(1, 2**62),
    st.integers(-9, 9).filter(lambda step: step != 0),
)
any_domains = (
    st.builds(Float, finite, finite)
    | float_domains()
    | st.builds(Integer, exact, exact)
    | integer_domains()
    | st.lists(values, min_size=1, max_size=4).map(Choice)
    | ranges.map(Choice)
)
names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=5)


@given(st.dictionaries(names, any_domains, min_size=1, max_size=4))
@example({"x": Float(5e-324, sys.float_info.max), "y": Integer(-(2**53), 2**53)})
@example({"x": Choice([-0.0, math.nan, -math.inf, 2**4000]), "y": Choice(range(10**9, 0, -7))})
@example({"x": Choice([{"float": "inf"}, {"tuple": (1, [2])}, {"dict": {"a": ()}}, True, 1, 1.0])})
@examples(200)
def test_any_space_survives_its_round_trip(domains):
    normal = [unicodedata.normalize("NFKC", name) for name in domains]
    assume(len(set(normal)) == len(normal))
    space = Space(domains)
    text = msgspec.json.encode(space.to_json())
    for data in (msgspec.json.decode(text), json.loads(text)):
        again = Space.from_json(data)
        assert repr(again) == repr(space)  # equality knows neither NaN nor True from 1
        assert list(again) == list(space)


GOOD_DOMAIN = {"type": "float", "low": 0.0, "high": 1.0, "log": False}
NO_DOMAINS = [
    None,
    5,
    "float",
    [],
    [0.0, 1.0],
    {},
    {"type": "complex"},
    {"type": "float"},
    {"type": ["float"]},
    GOOD_DOMAIN | {"type": None},
    GOOD_DOMAIN | {"type": "choice"},
    GOOD_DOMAIN | {"low": "0.0"},
    GOOD_DOMAIN | {"low": None},
    GOOD_DOMAIN | {"low": math.nan},
    GOOD_DOMAIN | {"high": math.inf},
    GOOD_DOMAIN | {"high": 10**400},
    GOOD_DOMAIN | {"high": True},
    GOOD_DOMAIN | {"high": {"float": "inf"}},
    GOOD_DOMAIN | {"log": 0},
    GOOD_DOMAIN | {"log": None},
    GOOD_DOMAIN | {"log": "true"},
    GOOD_DOMAIN | {"log": True},
    GOOD_DOMAIN | {"type": "integer"},
    GOOD_DOMAIN | {"type": "integer", "low": 0, "high": 2**53 + 1},
    GOOD_DOMAIN | {"type": "integer", "low": 0, "high": 5, "log": True},
    {"type": "choice"},
    {"type": "choice", "values": []},
    {"type": "choice", "values": None},
    {"type": "choice", "values": "abc"},
    {"type": "choice", "values": {"a": 1}},
    {"type": "choice", "values": [{"a": 1}]},
    {"type": "choice", "values": [{"tuple": 1}]},
    {"type": "choice", "values": [{"float": "1.0"}]},
    {"type": "choice", "values": [{"dict": [["a"]]}]},
    {"type": "choice", "values": [{"dict": [[1, 2]]}]},
    {"type": "choice", "range": []},
    {"type": "choice", "range": [0, 5]},
    {"type": "choice", "range": [0, 5, 0]},
    {"type": "choice", "range": [0, 0, 1]},
    {"type": "choice", "range": [5, 0, 1]},
    {"type": "choice", "range": [0, 5, 1, 1]},
    {"type": "choice", "range": [0.0, 5, 1]},
    {"type": "choice", "range": ["0", 5, 1]},
    {"type": "choice", "range": [0, 2**63, 1]},
    {"type": "choice", "range": {"start": 0}},
]


@pytest.mark.parametrize("domain", NO_DOMAINS, ids=repr)
def test_invalid_domains_are_refused(domain):
    with pytest.raises(ValueError):
        Space.from_json({"good": GOOD_DOMAIN, "x": domain})


@pytest.mark.parametrize(
    "data",
    [
        None,
        5,
        "space",
        [],
        [["x", GOOD_DOMAIN]],
        {},
        {"": GOOD_DOMAIN},
        {"a\nb": GOOD_DOMAIN},
        {5: GOOD_DOMAIN},
        {"é": GOOD_DOMAIN, "e\u0301": GOOD_DOMAIN},
    ],
    ids=repr,
)
def test_invalid_spaces_are_refused(data):
    with pytest.raises(ValueError):
        Space.from_json(data)


def test_values_that_are_nested_without_end_are_refused():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError):
        Space.from_json({"x": {"type": "choice", "values": deep}})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "low", "high", "log", "values", "range", "x"]),
                inner | st.sampled_from(["float", "integer", "choice"]),
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
@examples(200)
def test_any_json_is_a_space_or_refused(data):
    try:
        space = Space.from_json(data)
    except ValueError:
        return
    assert repr(Space.from_json(space.to_json())) == repr(space)


def test_points_are_read_with_plain_values():
    points = read_points(row for row in ({"a": np.int64(1), "b": (np.float64(0.5),)}, {"a": "x"}))
    assert repr(points) == repr([{"a": 1, "b": (0.5,)}, {"a": "x"}])


@pytest.mark.parametrize(
    ("points", "name"),
    [
        ("ab", "args_dict"),
        (b"ab", "args_dict"),
        (5, "args_dict"),
        (None, "args_dict"),
        ([], "args_dict"),
        ([{"a": 1}, 5], "args_dict[1]"),
        ([{"a": 1}, [1]], "args_dict[1]"),
        ([{"a": 1}, {"b": object()}], "args_dict[1]['b']"),
        ([{"é": 1, "e\u0301": 2}], "args_dict[0]"),
    ],
)
def test_unusable_points_are_refused(points, name):
    assert refusal(read_points, points).name == name
