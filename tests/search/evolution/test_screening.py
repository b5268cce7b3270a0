import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.direction import Direction, Directions
from search.evolution.screening import ANOTHER_CHOICE, EXPLORING, NEIGHBOURS, Screen
from search.space.spaces import Space
from tests.properties import examples

CUBE = Space.of_bounds({"a": [0.0, 1.0], "b": [0.0, 1.0]})


def screen(evaluated, direction=Direction.MAX, space=CUBE):
    made = Screen(space, direction)
    for point, score in evaluated:
        made.add(point, score)
    return made


@pytest.mark.parametrize("direction", list(Direction))
def test_a_point_among_good_ones_is_the_most_promising(direction):
    low, high = ([[(corner + n) / 100] * 2 for n in range(5)] for corner in (10, 80))
    evaluated = [(point, n) for n, point in enumerate([*low, *high])]
    points = [[0.2, 0.2], [0.7, 0.7], [0.75, 0.7]]
    expected = 1 if direction is Direction.MAX else 0
    assert screen(evaluated, direction).most_promising(points) == points[expected]


@pytest.mark.parametrize("value", [None, math.nan])
@pytest.mark.parametrize("direction", list(Direction))
def test_failed_trials_are_the_worst_neighbours(value, direction):
    evaluated = [([0.1, 0.1], value)] * 5 + [([0.9, 0.9], 1e300 * direction.weight)] * 5
    assert screen(evaluated, direction).most_promising([[0.1, 0.1], [0.8, 0.8]]) == [0.8, 0.8]


def test_of_points_with_the_same_neighbours_the_farthest_is_the_most_promising():
    evaluated = [([0.5, 0.5], 1.0)] * 5
    points = [[0.5, 0.6], [0.2, 0.5], [0.6, 0.7]]
    assert screen(evaluated).most_promising(points) == points[1]


@pytest.mark.parametrize(("evaluated", "expected"), [(10, "near"), (100, "far")])
def test_the_distance_counts_the_more_the_more_was_evaluated(evaluated, expected):
    made = screen([([0.1, 0.1], 1.0), ([0.9, 0.9], 2.0)] * (evaluated // 2))
    points = {"near": [0.9, 0.85], "far": [0.1, 0.6]}
    assert made.most_promising(list(points.values())) == points[expected]


def least_for_far(dimensions, constants=0):
    """Return with how many evaluated points a far one is chosen, rather than one near the best."""
    bounds = {f"x{axis}": [0.0, 1.0] for axis in range(dimensions)}
    space = Space.of_bounds(bounds | {f"c{axis}": [4, 4] for axis in range(constants)})
    low, high, near, far = ([x] * dimensions + [0.5] * constants for x in (0.0, 1.0, 0.9, 0.4))

    def far_is_chosen(evaluated):
        made = screen([(low, 1.0), (high, 2.0)] * (evaluated // 2), space=space)
        return made.most_promising([near, far]) == far

    return next(n for n in range(10, 999, 2) if far_is_chosen(n))


def test_the_distance_counts_less_with_many_hyperparameters():
    # The shares of the diagonal are the same with any number of hyperparameters.
    least = {dimensions: least_for_far(dimensions) for dimensions in (2, 10, 20, 40)}
    assert least[2] == least[10]
    assert [least[20] / least[10], least[40] / least[10]] == pytest.approx([2, 4], rel=0.05)


def test_constants_do_not_count():
    assert least_for_far(2, constants=18) == least_for_far(2)


def test_only_the_nearest_count():
    evaluated = [([0.1, 0.1], 1.0)] * 5 + [([0.9, 0.9], 2.0)] * 5 + [([0.15, 0.1], 99.0)]
    assert screen(evaluated).most_promising([[0.0, 0.1], [0.9, 0.8]]) == [0.9, 0.8]


def test_with_several_objectives_the_fewer_points_dominate_one_the_better_it_is():
    goal = Directions({"error": Direction.MIN, "gain": Direction.MAX})
    scores = {0.1: (1.0, 1.0), 0.5: (1.0, 3.0), 0.9: (0.5, 2.0), 0.3: (None, None)}
    made = Screen(CUBE, goal)
    for corner, values in scores.items():
        for _ in range(NEIGHBOURS):
            made.add([corner, corner], *values)
    near = {corner: [corner + 0.01, corner] for corner in scores}

    def better(one, other):
        return made.most_promising([near[other], near[one]]) == near[one]

    assert better(0.5, 0.1)  # dominated by it
    assert better(0.9, 0.1)
    assert better(0.1, 0.3)  # failed trials are the worst
    assert not better(0.5, 0.9)  # neither dominates the other: the first of equals
    assert not better(0.9, 0.5)


SCORES = st.none() | st.integers(-3, 3).map(float)


@given(
    scores=st.lists(st.tuples(SCORES, SCORES), min_size=8, max_size=20),
    changes=st.lists(st.tuples(st.integers(0, 7), SCORES, SCORES), max_size=6),
    objectives=st.sampled_from([1, 2]),
)
@examples(60)
def test_points_that_were_rescored_count_as_if_they_had_had_these_scores(
    scores, changes, objectives
):
    goal = Directions.parse({"a": "max", "b": "min"}) if objectives == 2 else Direction.MAX
    rescored, anew = Screen(CUBE, goal), Screen(CUBE, goal)
    for number, values in enumerate(scores):
        rescored.add([number / 20, 0.5], *values[:objectives])
    for number, *values in changes:
        rescored.rescore(number, *values[:objectives])
        scores[number] = tuple(values)
    for number, values in enumerate(scores):
        anew.add([number / 20, 0.5], *values[:objectives])
    points = [[number / 40, 0.45] for number in range(40)]
    assert rescored.most_promising(points) == anew.most_promising(points)


@given(
    scores=st.lists(st.none() | st.floats(-1e308, 1e308), min_size=1, max_size=12),
    points=st.lists(st.tuples(*[st.floats(0, 1)] * 2).map(list), min_size=1, max_size=5),
)
@examples(60)
def test_the_most_promising_is_one_of_the_points(scores, points):
    evaluated = [([number / 12, 0.5], score) for number, score in enumerate(scores)]
    assert screen(evaluated).most_promising(points) in points


def test_the_order_of_choices_does_not_matter():
    space = Space.of_bounds({"x": [0.0, 1.0], "act": list("abcdefgh")})
    act = [space.encode({"x": 0.0, "act": name})[1] for name in "abcdefgh"]
    # "b" lies next to the good "a" and "h" far from it; only x says where they are near to.
    evaluated = [([0.5, act[0]], 2.0)] * 5 + [([0.9, act[7]], 1.0)] * 5
    points = [[0.5, act[6]], [0.9, act[1]]]
    assert screen(evaluated, space=space).most_promising(points) == points[0]
    assert screen(evaluated, space=space).most_promising(points[::-1]) == points[0]


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_equally_near_points_does_not_matter(seed):
    rng = random.Random(seed)
    space = Space.of_bounds({name: list("abcd") for name in "xyz"})
    evaluated = [([rng.random() for _ in space], number) for number in range(40)]
    points = [[rng.random() for _ in space] for _ in range(20)]
    chosen = screen(evaluated, space=space).most_promising(points)
    for _ in range(10):
        rng.shuffle(evaluated)
        assert screen(evaluated, space=space).most_promising(points) == chosen


def test_each_of_many_evaluated_points_counts():
    rng = random.Random(0)
    space = Space.of_bounds({"a": [0.0, 1.0], "kind": ["x", "y", "z"], "b": [0.0, 1.0]})
    points = [[rng.random() for _ in space] for _ in range(220)]
    evaluated = [(point, rng.random()) for point in points[:200]]
    worse = {score: rank for rank, score in enumerate(sorted(score for _, score in evaluated))}

    def distance(one, other):
        kinds = 0.0 if space.snap(one)[1] == space.snap(other)[1] else ANOTHER_CHOICE
        return math.dist((one[0], one[2], kinds), (other[0], other[2], 0.0))

    def promise(point):
        near = sorted(evaluated, key=lambda item: distance(point, item[0]))[:NEIGHBOURS]
        estimate = sum(worse[score] for _, score in near) / NEIGHBOURS / 200
        return estimate + 200 / EXPLORING * distance(point, near[0][0]) / math.sqrt(3)

    made = screen([], space=space)
    for number, item in enumerate(evaluated, 1):
        made.add(*item)
        if number % 50 == 0:
            made.most_promising(points[200:])  # before more points are added
    for first in range(200, 220, 4):
        candidates = points[first : first + 4]
        assert made.most_promising(candidates) == max(candidates, key=promise)
