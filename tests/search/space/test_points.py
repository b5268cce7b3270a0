import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.errors import InvalidArgument
from search.space.points import read_first_points
from search.space.spaces import Choice, Float, Integer, Space

SPACE = Space(
    {
        "lr": Float(1e-5, 0.1, log=True),
        "units": Integer(4, 64),
        "layers": Choice([(8,), (8, 4), None]),
    }
)
WHOLE = {"lr": 0.0003, "units": 5, "layers": (8, 4)}


def read(points, seed=0, space=SPACE):
    return read_first_points(space, points, random.Random(seed))


def test_points_keep_their_values_in_the_order_of_the_space():
    points = [WHOLE, {"layers": None, "units": 64, "lr": 1e-5}]
    assert read(points) == points
    assert [list(point) for point in read(iter(points))] == [list(SPACE)] * 2
    assert points[0] is WHOLE
    assert read(()) == []


def test_numbers_of_numpy_and_integers_for_real_numbers_become_what_the_domain_has():
    space = Space({"x": Float(0, 9), "n": Integer(0, 9)})
    (point,) = read([{"x": 3, "n": np.int64(4)}], space=space)
    assert point == {"x": 3.0, "n": 4}
    assert (type(point["x"]), type(point["n"])) == (float, int)


@given(seed=st.integers(0, 10**6), names=st.sets(st.sampled_from(list(WHOLE))))
def test_missing_hyperparameters_are_drawn(seed, names):
    given_ = {name: WHOLE[name] for name in names}
    (point,) = read([given_], seed)
    assert list(point) == list(SPACE)
    assert {name: point[name] for name in names} == given_
    assert all(0 <= unit <= 1 for unit in SPACE.encode(point))
    assert read([given_], seed) == [point]


def test_draws_differ_between_points_and_complete_points_draw_nothing():
    assert len({point["lr"] for point in read([{"units": 5}] * 10)}) == 10
    rng = random.Random(3)
    before = rng.getstate()
    read_first_points(SPACE, [WHOLE], rng)
    assert rng.getstate() == before


@pytest.mark.parametrize(
    ("points", "name", "expected", "got"),
    [
        (WHOLE, "points", "a list of dicts", "{'lr'"),
        ("lr", "points", "a list of dicts", "'lr'"),
        (5, "points", "a list of dicts", "5"),
        ([WHOLE, 5], "points[1]", "a dict of hyperparameter names", "5"),
        ([{"rate": 1}], "points[0]", "hyperparameters of ['lr', 'units', 'layers']", "'rate'"),
        ([{"": 1}], "points[0]", "hyperparameters of ['lr', 'units', 'layers']", "''"),
        ([{0: 1}], "points[0]", "hyperparameters of ['lr', 'units', 'layers']", "0"),
        ([{None: 1}], "points[0]", "hyperparameters of ['lr', 'units', 'layers']", "None"),
        ([{"lr": 0.2}], "points[0]['lr']", "a value from 1e-05 to 0.1", "0.2"),
        ([{"lr": "0.1"}], "points[0]['lr']", "a number", "'0.1'"),
        ([{"lr": math.nan}], "points[0]['lr']", "a number", "nan"),
        ([{"lr": True}], "points[0]['lr']", "a number", "True"),
        ([{"units": 5.0}], "points[0]['units']", "an integer", "5.0"),
        ([{"units": 65}], "points[0]['units']", "a value from 4 to 64", "65"),
        ([{"layers": [8]}], "points[0]['layers']", "one of ((8,), (8, 4), None)", "[8]"),
        ([{"layers": len}], "points[0]['layers']", "None, a bool, a number", "<built-in"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_invalid_points_are_refused(points, name, expected, got):
    with pytest.raises(InvalidArgument) as caught:
        read(points)
    assert caught.value.name == name
    assert caught.value.expected.startswith(expected)
    assert caught.value.got.startswith(got)


# Conditions, constraints, steps

OPTIMIZERS = Space.of_bounds(
    {
        "momentum": Float(0.0, 1.0, step=0.25, when={"optimizer": "sgd"}),
        "optimizer": ["sgd", "adam", "rmsprop"],
        "units": [1, 9],
    },
    lambda params: params["units"] != 5,
)


def test_inactive_hyperparameters_are_omitted():
    rng = random.Random(3)
    before = rng.getstate()
    points = [{"optimizer": "adam", "units": 1}]
    assert read_first_points(OPTIMIZERS, points, rng) == points
    assert rng.getstate() == before


@pytest.mark.parametrize("seed", range(5))
def test_drawn_values_fit_the_given_ones(seed):
    (active,) = read([{"momentum": 0.5}], seed, OPTIMIZERS)
    assert active == {"momentum": 0.5, "optimizer": "sgd", "units": active["units"]}
    points = read([{"optimizer": "adam"}] * 50, seed, OPTIMIZERS)
    assert {tuple(point) for point in points} == {("optimizer", "units")}
    assert {point["units"] for point in points} == {1, 2, 3, 4, 6, 7, 8, 9}


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_out_is_drawn_until_a_narrow_constraint_allows_it(seed):
    space = Space.of_bounds({"n": [1, 4000]}, lambda params: params["n"] == 7)
    assert read([{}], seed, space) == [{"n": 7}]


def test_a_value_between_two_steps_is_taken_as_it_is():
    point = {"momentum": 0.3, "optimizer": "sgd", "units": 1}
    assert read([point], space=OPTIMIZERS) == [point]


@pytest.mark.parametrize(
    "point",
    [
        {"momentum": 0.5, "optimizer": "adam"},
        {"momentum": 0.5, "optimizer": "adam", "units": 1},
        {"units": 5},
        {"optimizer": "adam", "units": 5},
    ],
)
def test_points_that_the_space_does_not_allow_are_refused(point):
    with pytest.raises(InvalidArgument, match="conditions and the constraint") as caught:
        read([{}, point], space=OPTIMIZERS)
    assert (caught.value.name, caught.value.got) == ("points[1]", repr(point))
