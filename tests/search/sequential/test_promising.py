import random

import numpy as np
import pytest

from search.sequential.promising import MOST_CLIMBED, NEAR, RANDOM, Promising
from search.space.spaces import Choice, Float, Integer, Space

SPACE = Space({"x": Float(0.0, 1.0), "n": Integer(1, 4)})
GOOD = np.array([[0.9, 0.875]])


def score(points):
    return -((points[:, 0] - 0.3) ** 2) - points[:, 1]


def test_the_highest_point_that_may_be_tried_is_found_with_its_score():
    found = Promising(SPACE, random.Random(0), lambda snapped: snapped[1] > 0.5)
    point, highest = found.point(score, GOOD)
    assert abs(point[0] - 0.3) < 0.001
    assert SPACE.decode(point)["n"] == 3  # of 3 and 4
    assert highest == score(np.array([point]))[0]


def test_no_point_is_found_where_none_may_be_tried():
    assert Promising(SPACE, random.Random(0), lambda snapped: False).point(score, GOOD) is None


def test_the_only_point_that_may_be_tried_is_found_once():
    left = {(0.625,)}
    scored = []

    def may_try(snapped):
        return snapped in left and not scored

    def noted(points):
        scored.extend(points.tolist())
        return np.zeros(len(points))

    space = Space({"n": Integer(1, 4)})
    point = Promising(space, random.Random(0), may_try).point(noted, np.array([[0.125]]))
    assert point == ([0.625], 0.0)
    assert scored == [[0.625]]


def test_each_candidate_differs_whatever_constants_there_are():
    space = Space({"x": Float(0.0, 1.0)} | {f"c{axis}": Choice(["only"]) for axis in range(9)})
    scored = []

    def noted(points):
        scored.append(len(points))
        return np.zeros(len(points))

    good = np.array([[0.3] + [0.5] * 9])
    Promising(space, random.Random(0), lambda snapped: True).point(noted, good)
    assert scored[0] == RANDOM + NEAR


def test_a_climb_finds_maxima_at_bounds_and_between_them():
    space = Space({"n": Integer(1, 4)} | {f"x{axis}": Float(0.0, 1.0) for axis in range(20)})
    best = np.array([1.0] * 10 + [0.4] * 10)

    def near_best(points):
        return -((points[:, 1:] - best) ** 2).sum(axis=1) - points[:, 0]

    good = np.full((1, 21), 0.875)
    promising = Promising(space, random.Random(0), lambda snapped: True)
    point, _ = promising.point(near_best, good, climb=True)
    assert point[1:11] == [1.0] * 10
    assert np.abs(np.array(point[11:]) - 0.4).max() < 0.001
    assert SPACE.decode([0.0, point[0]])["n"] == 1
    plain, _ = promising.point(near_best, good)
    assert near_best(np.array([plain]))[0] < near_best(np.array([point]))[0] - 0.01


def test_a_climb_leaves_inactive_hyperparameters_alone():
    space = Space(
        {
            "kind": Choice(["a", "b"]),
            "of_b": Float(0.0, 1.0, when={"kind": "b"}),
            "x": Float(0.0, 1.0),
        }
    )
    scored = []

    def noted(points):
        scored.append(points)
        return -((points[:, 2] - 1) ** 2) - 9 * (points[:, 0] > 0.5) + points[:, 1]

    found = Promising(space, random.Random(0), lambda snapped: True)
    point, _ = found.point(noted, np.array([[0.25, 0.5, 0.5]]), climb=True)
    assert space.decode(point) == {"kind": "a", "x": 1.0}
    of_a = np.vstack(scored)[np.vstack(scored)[:, 0] < 0.5]
    assert set(of_a[:, 1]) == {0.5}


@pytest.mark.parametrize(
    "space",
    [
        Space({"x": Float(0.0, 1.0)}, constraint=lambda params: params["x"] < 0.7),
        Space({f"x{axis}": Float(0.0, 1.0) for axis in range(MOST_CLIMBED + 1)}),
    ],
    ids=["a constraint", "many hyperparameters"],
)
def test_some_spaces_have_no_climb(space):
    def best_of(climb):
        found = Promising(space, random.Random(0), lambda snapped: True)
        good = np.full((1, len(space)), 0.5)
        return found.point(lambda points: points[:, 0], good, climb=climb)

    assert best_of(True) == best_of(False)


def test_a_climb_needs_no_real_numbers():
    space = Space({"n": Integer(1, 4), "kind": Choice(["a", "b"])})
    found = Promising(space, random.Random(0), lambda snapped: True)
    point, _ = found.point(lambda points: -points.sum(axis=1), np.full((1, 2), 0.625), climb=True)
    assert space.decode(point) == {"n": 1, "kind": "a"}
