"""Values at the edges of what floats, integers and JSON can hold."""

import json
import math
import random
import sys

import msgspec
import numpy as np
import pytest

from search.algorithms import Evolution
from search.errors import InvalidArgument
from search.grid import GridSearch
from search.searcher import drive
from search.space.spaces import Choice, Float, Integer, Space
from search.trial import Outcome
from search.values import from_json, plain_value, to_json
from tests.search.fakes import started

MAX = sys.float_info.max


def test_log_scale_up_to_the_largest_float_does_not_overflow():
    for low in (2.793804927678676e-256, 1e-9, 1e-5, 1.0, 3.0):
        assert Float(low, MAX, log=True).decode(1.0) <= MAX


def test_some_low_from_random_overflows():
    rng = random.Random(0)
    for _ in range(200):
        Float(10 ** rng.uniform(-300, 300), MAX, log=True).decode(1.0)


def test_log_scale_between_tiny_and_huge_bounds_encodes():
    domain = Float(1e-200, 1e200, log=True)
    assert domain.encode(1.0) == pytest.approx(0.5)
    assert domain.encode(1e200) == pytest.approx(1.0)


@pytest.mark.parametrize(("low", "high"), [(0.0, 5e-324), (1.5e-323, 2e-323)])
def test_linear_scale_between_subnormal_bounds_encodes(low, high):
    assert 0 <= Float(low, high).encode(low) <= 1


@pytest.mark.parametrize("value", [10**15, 2**53])
def test_log_integer_constant_encodes(value):
    domain = Integer(value, value, log=True)
    assert domain.decode(domain.encode(value)) == value


def test_nan_in_a_choice_encodes():
    domain = Choice([1.0, math.nan, 2.0])
    assert domain.encode(domain.decode(0.5)) == 0.5


def test_surrogates_in_keys_are_refused():
    with pytest.raises(InvalidArgument):
        plain_value("x", {"\ud800": 1})


class Text(str):
    pass


class Whole(int):
    pass


class Real(float):
    pass


@pytest.mark.parametrize(
    "value", [{np.str_("a"): 1}, Text("a"), Whole(1), Real(0.5), {Text("a"): 1}]
)
def test_subclasses_become_plain_values(value):
    data = msgspec.json.encode(to_json(plain_value("x", value)))
    assert from_json(msgspec.json.decode(data)) == value


def test_integers_too_long_for_json_are_refused():
    try:
        value = plain_value("x", 10**5000)
    except InvalidArgument:
        return
    json.dumps(to_json(value))


def test_ranges_beyond_the_largest_length_are_refused():
    for read in (Space.of_bounds, Space.of_grid):
        with pytest.raises(InvalidArgument):
            read({"x": range(10**20)})


def test_grid_of_a_range_beyond_the_largest_length():
    try:
        space = Space.of_grid({"x": range(10**20)})
    except InvalidArgument:
        return
    assert GridSearch(space).total == 10**20


def test_deep_garbage_raises_value_error():
    value = []
    for _ in range(600):
        value = [value]
    with pytest.raises(ValueError):
        from_json(json.loads(json.dumps(value)))


def test_huge_finite_scores_are_logged_without_warnings():
    values = iter([1e200, -1e200, 1e308, 1e308] * 2)
    space = Space.of_bounds({"x": [0.0, 1.0]})
    searcher = started(Evolution, space, 0, generational=True, popsize=4, generations=1)
    drive(searcher, lambda trial: Outcome(trial.id, "finished", next(values)))
    assert len(searcher.logbook) == 2


def test_the_mean_of_huge_scores_does_not_overflow():
    space = Space.of_bounds({"x": [0.0, 1.0]})
    searcher = started(Evolution, space, 0, popsize=4, noisy=True)
    trials = []
    drive(searcher, lambda trial: trials.append(trial) or Outcome(trial.id, "finished", MAX))
    assert len({str(trial.params) for trial in trials}) < len(trials)  # some were repeated


def test_complex_bounds_of_a_domain_are_refused():
    with pytest.raises(InvalidArgument):
        Float(np.complex128(1), 2)
