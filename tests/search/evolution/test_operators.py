import collections
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.direction import Direction
from search.evolution.operators import (
    mate_binomial,
    mutate_current_to_best,
    mutate_rand1,
    repair_between,
    select_current_to_pbest,
    select_rand1,
)
from search.evolution.population_search import Individual
from tests.properties import examples

coordinates = st.lists(st.floats(0, 1), min_size=1, max_size=8)
seeds = st.integers(0, 10**6)


@given(size=st.integers(4, 12), data=st.data(), seed=seeds)
@examples(60)
def test_rand1_selects_three_others(size, data, seed):
    index = data.draw(st.integers(0, size - 1))
    population = [[float(number)] for number in range(size)]
    selected = select_rand1(population, index, rng=random.Random(seed))
    numbers = {int(vector[0]) for vector in selected}
    assert len(selected) == len(numbers) == 3
    assert index not in numbers


def test_rand1_selects_every_other_individual_in_every_role():
    rng = random.Random(0)
    population = [[float(number)] for number in range(5)]
    drawn = [select_rand1(population, 2, rng=rng) for _ in range(300)]
    for role in zip(*drawn, strict=True):
        assert {int(vector[0]) for vector in role} == {0, 1, 3, 4}


@given(
    vectors=st.lists(st.tuples(*[st.floats(-2, 2)] * 3), min_size=1, max_size=6),
    weight=st.floats(0, 2),
)
@examples(60)
def test_rand1_is_base_plus_weighted_difference(vectors, weight):
    base, plus, minus = ([row[axis] for row in vectors] for axis in range(3))
    expected = np.array(base) + weight * (np.array(plus) - np.array(minus))
    assert mutate_rand1(base, plus, minus, weight=weight) == pytest.approx(expected.tolist())


def test_rand1_example():
    mutant = mutate_rand1([0.5, 0.5], [1.0, 0.0], [0.0, 0.5], weight=0.5)
    assert mutant == [1.0, 0.25]


def scored(scores, direction=Direction.MAX):
    """A population whose individuals have their numbers for coordinates."""
    population = []
    for number, score in enumerate(scores):
        member = Individual([float(number)], direction)
        if score is not None:
            member.fitness.values = (score,)
        population.append(member)
    return population


def selected(population, index, direction, rng):
    vectors = select_current_to_pbest(population, index, direction=direction, rng=rng)
    return [int(vector[0]) for vector in vectors]


@given(size=st.integers(4, 30), data=st.data(), seed=seeds, direction=st.sampled_from(Direction))
@examples(100)
def test_current_to_pbest_selects_the_individual_one_of_the_best_and_two_others(
    size, data, seed, direction
):
    index = data.draw(st.integers(0, size - 1))
    scores = data.draw(st.lists(st.none() | st.floats(-9, 9), min_size=size, max_size=size))
    numbers = selected(scored(scores, direction), index, direction, random.Random(seed))
    merits = [direction.merit(score) for score in scores]
    target, best, plus, minus = numbers
    assert target == index
    assert len({plus, minus} - {index, best}) == 2
    better = sum(merit > merits[best] for merit in merits)
    assert better < max(1, round(size / 5))


def test_current_to_pbest_selects_every_individual_in_the_open_roles():
    rng, population = random.Random(0), scored(range(10))
    drawn = [selected(population, 4, Direction.MAX, rng) for _ in range(400)]
    _, best, plus, minus = map(set, zip(*drawn, strict=True))
    assert best == {8, 9}
    assert plus == minus == set(range(10)) - {4}


def test_current_to_pbest_lets_the_best_be_its_own_best():
    population, rng = scored(range(4)), random.Random(0)
    assert selected(population, 3, Direction.MAX, rng)[:2] == [3, 3]


@given(
    vectors=st.lists(st.tuples(*[st.floats(-2, 2)] * 4), min_size=1, max_size=6),
    weight=st.floats(0, 2),
)
@examples(60)
def test_current_to_best_goes_towards_the_best_and_along_a_difference(vectors, weight):
    target, best, plus, minus = (np.array([row[axis] for row in vectors]) for axis in range(4))
    expected = target + weight * (best - target) + weight * (plus - minus)
    lists = [vector.tolist() for vector in (target, best, plus, minus)]
    assert mutate_current_to_best(*lists, weight=weight) == pytest.approx(expected.tolist())


@given(size=st.integers(1, 8), seed=seeds)
@examples(60)
def test_crossover_at_rate_zero_takes_just_the_forced_coordinate(size, seed):
    child = mate_binomial([0.0] * size, [1.0] * size, rate=0.0, rng=random.Random(seed))
    assert sorted(child) == [0.0] * (size - 1) + [1.0]


@given(target=coordinates, seed=seeds)
@examples(60)
def test_crossover_at_rate_one_takes_the_mutant(target, seed):
    mutant = [coordinate + 2 for coordinate in target]
    assert mate_binomial(target, mutant, rate=1.0, rng=random.Random(seed)) == mutant


def test_crossover_forces_every_coordinate_as_often():
    rng = random.Random(0)
    forced = collections.Counter(
        mate_binomial([0.0] * 4, [1.0] * 4, rate=0.0, rng=rng).index(1.0) for _ in range(2000)
    )
    assert sorted(forced) == [0, 1, 2, 3]
    assert all(430 < number < 570 for number in forced.values())


def test_crossover_takes_the_share_of_its_rate():
    child = mate_binomial([0.0] * 5000, [1.0] * 5000, rate=0.3, rng=random.Random(0))
    assert 1400 < sum(child) < 1600


@given(
    pairs=st.lists(st.tuples(st.floats(-3, 4), st.floats(0, 1)), min_size=1, max_size=8),
    seed=seeds,
)
@examples(100)
def test_repair_stays_in_the_cube_and_leaves_inner_coordinates_alone(pairs, seed):
    vector, target = map(list, zip(*pairs, strict=True))
    repaired = repair_between(vector, target, rng=random.Random(seed))
    assert len(repaired) == len(vector)
    for before, parent, after in zip(vector, target, repaired, strict=True):
        if before < 0:
            assert 0 <= after <= parent
        elif before > 1:
            assert parent <= after <= 1
        else:
            assert after == before


def test_repair_draws_all_over_the_way_to_the_bound():
    rng = random.Random(0)
    low = [repair_between([-1.0], [0.4], rng=rng)[0] for _ in range(500)]
    high = [repair_between([2.0], [0.4], rng=rng)[0] for _ in range(500)]
    assert (min(low), max(low)) == pytest.approx((0.0, 0.4), abs=0.02)
    assert (min(high), max(high)) == pytest.approx((0.4, 1.0), abs=0.02)
