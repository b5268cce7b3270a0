import collections
import json
import math
import random
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from search.errors import InvalidArgument
from search.evolution.population_based import perturb
from search.space.domains import domain_of_json
from search.space.spaces import Choice, Float, Integer
from tests.properties import examples

units = st.floats(0, 1) | st.sampled_from([0.0, 1.0, math.nextafter(1, 0), 0.5])
plain_numbers = st.floats(-1e6, 1e6) | st.integers(-100, 100).map(lambda n: n / 10)
steps = st.floats(1e-3, 1e6) | st.sampled_from([0.1, 0.25, 1 / 3, 1.0, 5e-2])
stepped_floats = st.builds(Float, plain_numbers, plain_numbers, step=steps)
stepped_integers = st.builds(
    Integer, st.integers(-(2**40), 2**40), st.integers(-50, 50), step=st.integers(1, 20)
)


def refusal(call, *args, **kwargs):
    with pytest.raises(InvalidArgument) as caught:
        call(*args, **kwargs)
    return caught.value


def values(domain):
    return [domain.decode((index + 0.5) / domain.size) for index in range(domain.size)]


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (Float(0, 1, step=0.25), [0.0, 0.25, 0.5, 0.75, 1.0]),
        (Float(0.1, 0.5, step=0.1), [0.1, 0.2, 0.3, 0.4, 0.5]),
        (Float(0.5, 0.1, step=0.1), [0.1, 0.2, 0.3, 0.4, 0.5]),
        (Float(-0.3, 0.3, step=0.2), [-0.3, -0.1, 0.1, 0.3]),
        (Float(0, 1, step=0.3), [0.0, 0.3, 0.6, 0.9]),
        (Float(1, 2, step=5), [1.0]),
        (Float(2, 2, step=0.1), [2.0]),
        (Float(1e-5, 3e-5, step=1e-5), [1e-5, 2e-5, 3e-5]),
        (Float(-1.7e308, 1.7e308, step=1e308), [-1.7e308, -7e307, 3e307, 1.3e308]),
        (Integer(16, 64, step=16), [16, 32, 48, 64]),
        (Integer(64, 16, step=16), [16, 32, 48, 64]),
        (Integer(1, 10, step=4), [1, 5, 9]),
        (Integer(3, 4, step=7), [3]),
        (Integer(1, 3, step=1), [1, 2, 3]),
    ],
    ids=repr,
)
def test_steps_count_from_the_low_bound_up_to_the_last_that_fits(domain, expected):
    assert values(domain) == expected
    assert (domain.low, domain.high) == (expected[0], expected[-1])
    assert [domain.decode(domain.encode(value)) for value in expected] == expected
    assert {type(value) for value in values(domain)} == {type(domain.low)}


@given(domain=stepped_floats | stepped_integers, unit=units)
@example(domain=Float(1 / 3, 2.0, step=0.1), unit=1.0)
@examples(200)
def test_steps_decode_to_values_and_encode_to_the_middle_of_their_bin(domain, unit):
    value = domain.decode(unit)
    assert value in domain
    assert domain.low <= value <= domain.high
    assert domain.decode(domain.encode(value)) == value
    assert domain.encode(value) == domain.encode(domain.decode(domain.encode(value)))
    steps = (Fraction(value) - Fraction(domain.low)) / Fraction(domain.step)
    assert abs(steps - round(steps)) < 1e-3


@given(parts=st.integers(1, 200))
@example(parts=3)
@example(parts=49)
@example(parts=93)
@examples(100)
def test_a_rounded_share_of_the_distance_of_the_bounds_reaches_the_high_one(parts):
    domain = Float(0, 1, step=1 / parts)
    assert domain.size == parts + 1
    assert domain.high == domain.decode(1.0) == 1.0
    assert 1.0 in domain
    assert len(set(values(domain))) == parts + 1


@given(domain=stepped_floats | stepped_integers)
@example(domain=Float(131.0, -0.3, step=1.4868261143565178))
@examples(200)
def test_a_domain_with_steps_made_of_its_own_bounds_is_the_same(domain):
    again = type(domain)(domain.low, domain.high, step=domain.step)
    assert again == domain
    assert again.size == domain.size
    assert repr(domain_of_json(json.loads(json.dumps(domain.to_json())))) == repr(domain)


@pytest.mark.parametrize("domain", [Float(0, 1, step=0.1), Integer(0, 50, step=5)], ids=repr)
def test_every_step_has_a_bin_of_the_same_size(domain):
    decoded = collections.Counter(domain.decode((k + 0.5) / 88) for k in range(88))
    assert set(decoded.values()) == {8}
    assert len(decoded) == 11


@given(step=st.integers(2, 9), number=st.floats(0, 30))
@example(step=3, number=28.8)
def test_a_number_between_integers_encodes_to_the_nearest_value(step, number):
    domain = Integer(0, 30, step=step)
    distances = [abs(number - value) for value in range(0, domain.high + 1, step)]
    found = domain.decode(domain.encode(min(number, domain.high)))
    assert abs(number - found) == min(distances)


def test_a_value_between_two_steps_encodes_to_the_nearest():
    assert Float(0, 1, step=0.5).encode(0.3) == 0.5
    assert Integer(0, 20, step=10).encode(14) == 0.5
    assert Integer(0, 20, step=10).encode(16) == pytest.approx(5 / 6)


def test_values_between_bounds_of_an_infinite_distance_encode_to_their_position():
    domain = Float(-1.7e308, 1.7e308)
    assert [domain.encode(value) for value in (-1.7e308, 0.0, 1.7e308)] == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("log", ["log-uniform", 0.1, 1, None, np.int64(1)], ids=repr)
@pytest.mark.parametrize("domain", [Float, Integer])
def test_a_scale_that_is_no_bool_is_refused(domain, log):
    error = refusal(domain, 1, 10, log=log)
    assert (error.name, error.expected) == ("log", "True or False")


def test_a_step_among_subnormal_numbers_is_refused():
    error = refusal(Float, 0.0, 5e-324, step=5e-324)
    assert (error.name, error.expected) == (
        "step",
        "at least 2.22507e-308 between these bounds, or None",
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"step": 0}, "a finite number above zero, or None"),
        ({"step": -0.1}, "a finite number above zero, or None"),
        ({"step": math.nan}, "a finite number above zero, or None"),
        ({"step": math.inf}, "a finite number above zero, or None"),
        ({"step": True}, "a finite number above zero, or None"),
        ({"step": "0.1"}, "a finite number above zero, or None"),
        ({"step": 1e-20}, "at least 8.88178e-16 between these bounds, or None"),
        ({"step": 0.1, "log": True}, "no step with log=True"),
    ],
    ids=repr,
)
def test_steps_of_floats_that_cannot_be_taken_are_refused(arguments, expected):
    error = refusal(Float, 0.5, 1.0, **arguments)
    assert (error.name, error.expected) == ("step", expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"step": 0}, "an integer of at least 1"),
        ({"step": -1}, "an integer of at least 1"),
        ({"step": 1.0}, "an integer of at least 1"),
        ({"step": True}, "an integer of at least 1"),
        ({"step": None}, "an integer of at least 1"),
        ({"step": 2**54}, "an integer between -2^53 and 2^53"),
        ({"step": 2, "log": True}, "no step with log=True"),
    ],
    ids=repr,
)
def test_steps_of_integers_that_cannot_be_taken_are_refused(arguments, expected):
    error = refusal(Integer, 1, 8, **arguments)
    assert (error.name, error.expected) == ("step", expected)


def test_an_integer_on_a_log_scale_may_say_that_its_step_is_one():
    assert Integer(1, 8, log=True, step=1) == Integer(1, 8, log=True)


@pytest.mark.parametrize(
    ("low", "high"), [(10**15, 10**15 + 5), (2**53 - 1, 2**53), (10**9, 10**9 + 3)]
)
def test_large_integers_close_to_each_other_are_told_apart_on_a_log_scale(low, high):
    domain = Integer(low, high, log=True)
    values = list(range(low, high + 1))
    assert [domain.decode(domain.encode(value)) for value in values] == values
    assert {domain.decode(unit / 100) for unit in range(101)} == set(values)


@pytest.mark.parametrize(
    ("domain", "text"),
    [
        (Float(0, 1), "Float(low=0.0, high=1.0, log=False)"),
        (Float(0, 1, step=1), "Float(low=0.0, high=1.0, log=False, step=1.0)"),
        (Integer(1, 5, step=2), "Integer(low=1, high=5, log=False, step=2)"),
        (Choice([1, 2]), "Choice(values=(1, 2))"),
        (
            Choice([1], ordered=True, when={"a": 2}),
            "Choice(values=(1,), ordered=True, when={'a': [2]})",
        ),
    ],
)
def test_the_repr_of_domains_has_the_given_arguments(domain, text):
    assert repr(domain) == text


@pytest.mark.parametrize("ordered", [0, 1, None, "yes"])
def test_ordered_is_true_or_false(ordered):
    assert refusal(Choice, [1, 2], ordered).name == "ordered"


@pytest.mark.parametrize(
    ("domain", "inside", "outside"),
    [
        (Float(0, 1), [0, 0.0, 1, 0.5, np.float64(0.3)], [-0.1, 1.1, math.nan, True, "0.5", None]),
        (Float(0, 1, step=0.1), [0, 0.1, 0.3, 1.0], [0.15, 0.30000000000000004, 1.1, math.nan]),
        (Float(1, 9, log=True), [1, 9.0], [0.9, math.inf]),
        (Integer(1, 9), [1, 9], [0, 10, 1.0, True, "1"]),
        (Integer(1, 9, step=4), [1, 5, 9], [2, 3, 4, 8]),
        (Choice([1, "a", None, (1, 2)]), [1, "a", None, (1, 2)], [True, 1.0, "b", [1, 2], {1}]),
        (Choice(range(0, 10, 2)), [0, 8], [1, 10, 2.0]),
    ],
    ids=repr,
)
def test_a_domain_knows_its_values(domain, inside, outside):
    assert [value in domain for value in inside] == [True] * len(inside)
    assert [value in domain for value in outside] == [False] * len(outside)


@pytest.mark.parametrize(
    ("domain", "size"),
    [
        (Float(0, 1), None),
        (Float(2, 2), 1),
        (Integer(1, 9), 9),
        (Choice([7, 7]), 2),
        (Choice(range(10**18)), 10**18),
    ],
    ids=repr,
)
def test_the_size_of_a_domain_is_how_many_values_it_has(domain, size):
    assert domain.size == size


def test_any_nan_is_found():
    domain = Choice([1.0, math.nan, (math.nan, 2)])
    assert domain.index(float("nan")) == 1
    assert domain.index((float("nan"), 2)) == 2


def test_the_first_of_equal_values_is_found():
    assert Choice([5, 7, 5, 7]).index(7) == 1
    assert Choice([{"a": 1, "b": 2}, {"b": 2, "a": 1}]).index({"b": 2, "a": 1}) == 0


@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.text(max_size=1),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.lists(inner, max_size=2).map(tuple)
                | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
            ),
            max_leaves=4,
        ),
        min_size=1,
        max_size=8,
    )
)
@examples(200)
def test_the_index_is_that_of_an_equal_value_of_the_same_types(items):
    domain = Choice(items)
    for position, value in enumerate(items):
        index = domain.index(value)
        assert index <= position
        assert domain.values[index] == value
        assert type(domain.values[index]) is type(value)
        assert domain.decode(domain.encode(value)) == value


@pytest.mark.parametrize(
    "value", [{1, 2}, {"a": {1}}, np.array([1, 2]), pytest.param(object(), id="object")], ids=repr
)
def test_unhashable_values_have_no_index(value):
    with pytest.raises(ValueError, match="is none of"):
        Choice([1, [1, 2], {"a": 1}]).index(value)


def test_a_long_list_is_indexed_once():
    class Counted(tuple):
        walks = 0

        def __iter__(self):
            Counted.walks += 1
            return super().__iter__()

    domain = Choice(["a", "b"])
    object.__setattr__(domain, "values", Counted(f"value {n}" for n in range(100_000)))
    assert [domain.index(f"value {n}") for n in range(0, 100_000, 100)] == list(
        range(0, 100_000, 100)
    )
    assert Counted.walks == 1


@pytest.mark.parametrize("when", [5, "a", ["a"], {}, [("a", 1)]], ids=repr)
def test_a_condition_is_a_dict_of_names_to_values(when):
    for domain in (lambda: Float(0, 1, when=when), lambda: Choice([1], when=when)):
        error = refusal(domain)
        assert error.name == "when"
        assert error.expected.startswith("a dict of names")


def test_a_condition_is_read_once():
    assert Integer(1, 2, when={"a": np.array([1, 2])}).when == {"a": [1, 2]}
    assert Integer(1, 2, when={"a": (1, 2)}).when == {"a": [(1, 2)]}
    assert refusal(Integer, 1, 2, when={5: 1}).name == "when"
    assert refusal(Integer, 1, 2, when={"a": []}).name == "when['a']"
    assert refusal(Integer, 1, 2, when={"a": object()}).name == "when['a']"
    given = {"a": ["x"]}
    domain = Integer(1, 2, when=given)
    given["a"].append("y")
    assert domain.when == {"a": ["x"]}


def test_a_condition_on_a_range_is_refused_with_the_list_to_write():
    error = refusal(Integer, 1, 2, when={"a": range(2, 4)})
    assert (error.name, error.hint) == ("when['a']", "write list(range(2, 4))")


def test_domains_with_conditions_have_a_hash():
    domain = Choice([1, 2], when={"a": "x"})
    assert len({domain, Choice([1, 2], when={"a": "x"}), Float(0, 1, step=0.1)}) == 2


@pytest.mark.parametrize("factor", [0.8, 1.2])
@pytest.mark.parametrize(
    "domain",
    [
        Float(0, 1, step=0.25),
        Float(-1, 1, step=0.1),
        Integer(0, 64, step=16),
        Integer(-9, 9, step=3),
    ],
    ids=repr,
)
def test_perturbed_values_move_by_at_least_one_step(domain, factor):
    for value in values(domain):
        for seed in range(6):
            moved = perturb(domain, value, random.Random(seed))
            assert moved in domain
            if domain.low < value < domain.high:
                assert moved != value


def test_fields_missing_in_the_json_of_a_domain_are_defaults():
    plain = {"type": "integer", "low": 1, "high": 9, "log": False}
    assert domain_of_json(plain) == Integer(1, 9)
    assert domain_of_json({"type": "choice", "values": ["a"]}) == Choice(["a"])


@pytest.mark.parametrize(
    "changed",
    [
        {"step": 0},
        {"step": "1"},
        {"step": None},
        {"when": []},
        {"when": {}},
        {"when": {"a": "x"}},
        {"when": {"a": []}},
        {"when": {"a": [{"b": 1}]}},
    ],
    ids=repr,
)
def test_contradictory_arguments_are_refused(changed):
    with pytest.raises(ValueError):
        domain_of_json({"type": "integer", "low": 1, "high": 9, "log": False, **changed})
    with pytest.raises(ValueError):
        domain_of_json({"type": "choice", "values": [1], "ordered": None})


@pytest.mark.parametrize("make", [Choice, lambda v: Choice(["a"], when={"x": v}),
                                  lambda v: Float(0, 1, when={"x": v})])  # fmt: skip
def test_domains_are_equal_if_their_values_are_the_same(make):
    nans = [make([1.0, float("nan"), [2]]) for _ in range(2)]
    assert nans[0] == nans[1]
    assert len(set(nans)) == 1
    different = [make([value]) for value in (1, 1.0, True, "1", [1], (1,), {"a": 1})]
    assert len(set(different)) == 7
    assert Float(0, 1, log=np.False_) == Float(0, 1)
    assert Integer(0, 1) != Float(0, 1)
    assert Choice(range(3)) == Choice(range(3)) != Choice([0, 1, 2])


@pytest.mark.parametrize("domain", [Float(0, 1), Integer(0, 1), Choice([0, 1])], ids=repr)
def test_a_domain_equals_no_other_object_unless_that_says_so(domain):
    assert domain != repr(domain)
    assert domain != [0, 1]
    assert domain == mock.ANY
