import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.space.spaces import Choice, Float, Integer, Space
from search.space.tried import Tried
from tests.properties import examples
from tests.search.spaces import conditional_spaces

SPACE = Space({"n": Integer(1, 3), "act": Choice(["relu", "tanh"]), "c": Float(2.0, 2.0)})


def tried(space=SPACE, seed=0):
    return Tried(space, random.Random(seed))


def test_points_of_one_bin_are_one_configuration():
    known = tried()
    known.add([0.4, 0.1, 0.3])
    assert [0.6, 0.49, 0.9] in known
    assert [0.7, 0.1, 0.3] not in known
    assert [0.4, 0.51, 0.3] not in known


def test_real_numbers_are_one_configuration_only_where_they_are_equal():
    known = tried(Space({"x": Float(0.0, 1.0)}))
    known.add([0.5])
    assert [0.5] in known
    assert [0.5 + 1e-9] not in known


@pytest.mark.parametrize("seed", range(20))
def test_another_is_found_down_to_the_last_and_again_once_all_are_forgotten(seed):
    known = tried(seed=seed)
    for _ in range(3):
        found = set()
        for left in range(6, 0, -1):
            assert known.left(100) == left
            point = known.another()
            known.add(point)
            found.add(tuple(SPACE.decode(point).values()))
        assert len(found) == 6
        assert known.left(100) == 0
        assert known.another() is None
        known.forget()


@pytest.mark.parametrize("seed", range(5))
def test_the_last_one_of_many_is_found(seed):
    space = Space({"n": Integer(1, 300), "flag": Choice([True, False])})
    known = tried(space, seed)
    everything = {(n, flag) for n in range(1, 301) for flag in (True, False)}
    missing = everything.pop()
    for n, flag in everything:
        known.add(space.encode({"n": n, "flag": flag}))
    assert tuple(space.decode(known.another()).values()) == missing


@pytest.mark.parametrize("seed", range(9))
def test_the_last_one_is_found_among_values_given_many_times(seed):
    known = tried(Space({"x": Choice([1] * 999 + [2]), "y": Choice([3, 3])}), seed)
    known.add([0.1, 0.1])
    assert known.another()[0] > 0.999


@pytest.mark.parametrize(
    "domain", [Float(1.0, 1.0), Choice([7]), Choice([7, 7, 7]), Float(1.0, 1.0 + 2**-52)]
)
def test_a_space_of_few_values_is_used_up(domain):
    known = tried(Space({"x": domain}))
    for _ in range(9):
        if (point := known.another()) is not None:
            known.add(point)
    assert known.another() is None


def test_configurations_that_are_given_count_as_tried():
    given = [{"n": 1, "act": "relu", "c": 2.0}, {"n": 1, "act": "relu", "c": 2.0}]
    assert Tried(SPACE, random.Random(0), given).left(100) == 5


@pytest.mark.parametrize("constraint", [None, lambda params: True])
def test_configurations_between_two_steps_do_not_count_as_tried(constraint):
    domains = {"n": Integer(0, 10, step=5), "x": Float(0.0, 0.2, step=0.1)}
    given = [{"n": 3, "x": 0.1}, {"n": 5, "x": 0.04}, {"n": 5, "x": 0.3 - 0.2}]
    known = Tried(Space(domains, constraint=constraint), random.Random(0), given)
    assert known.left(100) == 8
    assert [0.5, 0.5] in known  # 0.3 - 0.2 is 0.1 but for rounding


@given(space=conditional_spaces(), most=st.integers(0, 300), seed=st.integers(0, 9))
@examples(60)
def test_the_configurations_left_are_counted(space, most, seed):
    known, found = tried(space, seed), 0
    left = known.left(most)
    while found < most and (point := known.another()) is not None:
        assert point not in known
        known.add(point)
        found += 1
    assert found == left


def test_a_real_number_that_is_seldom_active_leaves_configurations_for_ever():
    choices = {name: Choice(["p", "q", "r", "s"]) for name in "abc"}
    space = Space({**choices, "x": Float(0.0, 1.0, when={"a": ["p"], "b": ["q"]})})
    known, points = tried(space), []
    for _ in range(200):  # of the others there are 60
        points.append(known.another())
        known.add(points[-1])
    assert known.left(7) == 7
    assert len({tuple(point) for point in points}) == 200


def test_a_real_number_that_is_never_active_leaves_no_configuration():
    second = Choice(["p", "q"], when={"a": ["q"]})
    never = Float(0.0, 1.0, when={"a": ["p"], "b": ["p"]})
    assert tried(Space({"a": Choice(["p", "q"]), "b": second, "x": never})).left(100) == 3


def test_the_configurations_that_a_constraint_allows_are_counted():
    space = Space({"n": Integer(1, 60), "m": Integer(1, 60)}, constraint=lambda p: p["n"] < p["m"])
    assert tried(space).left(10_000) == 1770
    assert tried(space).left(7) == 7


@pytest.mark.parametrize(
    "space",
    [
        Space({"x": Float(0.0, 1.0), "flag": Choice([True, False])}),
        Space({"n": Integer(1, 10**6)}, constraint=lambda p: p["n"] == 5),
        Space({"n": Integer(1, 10**6), "x": Choice([1], when={"n": 5})}),
    ],
)
def test_too_many_configurations_are_not_counted(space):
    assert tried(space).left(10**9) == 10**9


def test_a_space_of_a_billion_values_costs_nothing():
    known = tried(Space({"n": Choice(range(10**18)), "m": Integer(0, 2**53)}))
    for _ in range(9):
        known.add(known.another())


@pytest.mark.parametrize("seed", range(3))
def test_another_is_found_down_to_the_last_where_most_names_are_inactive(seed):
    """A grid of all names would have 20^21 points, nearly all of them the same as others."""
    children = {f"b{a}": Choice(list(range(20)), when={"a": a}) for a in range(20)}
    space = Space({**children, "a": Integer(0, 19)})
    known, found = tried(space, seed), set()
    for _ in range(400):
        point = known.another()
        known.add(point)
        found.add(str(space.decode(point)))
    assert len(found) == 400
