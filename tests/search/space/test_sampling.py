import collections
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.errors import InvalidArgument
from search.random_search import RandomSearch
from search.searcher import Problem
from search.space.sampling import latin_hypercube
from search.space.spaces import Space
from tests.properties import examples

SPACE = Space.of_bounds({"n": [0, 3], "x": [-1.0, 1.0], "c": ["a", "b"]})


@given(count=st.integers(1, 40), dimensions=st.integers(1, 5), seed=st.integers(0, 10**6))
@examples(60)
def test_latin_hypercube_has_one_point_per_slice_on_each_axis(count, dimensions, seed):
    points = latin_hypercube(count, dimensions, random.Random(seed))
    assert len(points) == count
    assert all(len(point) == dimensions for point in points)
    for axis in zip(*points, strict=True):
        assert all(0 <= coordinate < 1 for coordinate in axis)
        assert sorted(math.floor(coordinate * count) for coordinate in axis) == list(range(count))


def test_latin_hypercube_shuffles_each_axis_by_itself():
    axes = list(zip(*latin_hypercube(30, 3, random.Random(1)), strict=True))
    orders = [tuple(sorted(range(30), key=axis.__getitem__)) for axis in axes]
    assert len({*orders, tuple(range(30))}) == 4


def test_latin_hypercube_draws_within_the_slices():
    coordinates = [x * 10 % 1 for point in latin_hypercube(10, 20, random.Random(1)) for x in point]
    assert min(coordinates) < 0.05
    assert max(coordinates) > 0.95


def test_latin_hypercube_follows_its_generator():
    one, same, other = (latin_hypercube(8, 3, random.Random(seed)) for seed in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize(
    "samples", [0, -1, True, False, 2.0, 2.5, math.nan, math.inf, "5", None, [5]]
)
def test_samples_must_be_an_integer_of_at_least_one(samples):
    with pytest.raises(InvalidArgument) as caught:
        RandomSearch(Problem(space=SPACE, samples=samples, rng=random.Random(0)))
    assert caught.value.name == "samples"
    assert caught.value.expected == "an integer of at least 1"
    assert caught.value.got == repr(samples)


@pytest.mark.parametrize("samples", [1, 7])
def test_samples_are_the_number_of_trials(samples):
    searcher = RandomSearch(Problem(space=SPACE, samples=samples, rng=random.Random(0)))
    assert searcher.total == samples
    assert len(list(iter(searcher.ask, None))) == samples


def test_random_points_fill_the_space_evenly():
    searcher = RandomSearch(Problem(space=SPACE, samples=2000, rng=random.Random(0)))
    params = [trial.params for trial in iter(searcher.ask, None)]
    integers = collections.Counter(point["n"] for point in params)
    assert sorted(integers) == [0, 1, 2, 3]
    assert all(430 < number < 570 for number in integers.values())
    assert 900 < sum(point["x"] < 0 for point in params) < 1100
    assert 900 < sum(point["c"] == "a" for point in params) < 1100
    assert 400 < sum(point["x"] < 0 and point["c"] == "a" for point in params) < 600
