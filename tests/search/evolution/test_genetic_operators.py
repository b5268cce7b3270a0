import math
import random

import pytest
from deap import base, tools
from hypothesis import given
from hypothesis import strategies as st

from search.direction import Direction, Directions
from search.evolution.genetic_operators import (
    breed,
    make_toolbox,
    mate_simulated_binary,
    mutate_polynomial,
    select_best,
    select_tournament,
)
from search.evolution.population_search import Individual
from search.space.spaces import Space

TWO = Directions({"a": Direction.MAX, "b": Direction.MIN})
units = st.floats(0, 1)
pairs = st.lists(st.tuples(units, units, st.booleans()), min_size=1, max_size=8)
seeds = st.integers(0, 10**6)


def individual(*scores, crowding=0.0):
    member = Individual(scores, TWO)
    member.fitness.values = scores
    member.fitness.crowding_dist = crowding
    return member


few = st.sampled_from([-math.inf, 0.0, 1.0, 2.0]) | st.floats(0, 9)


@given(scores=st.lists(st.tuples(few, few), max_size=40), count=st.integers(1, 45))
def test_the_best_are_those_of_deap_in_its_order(scores, count):
    def chosen(select):
        members = [individual(*pair) for pair in scores]
        found = select(members, count)
        numbers = {id(member): number for number, member in enumerate(members)}
        return [(numbers[id(one)], repr(one.fitness.crowding_dist)) for one in found]

    assert chosen(select_best) == chosen(tools.selNSGA2)


def test_the_best_of_many_are_found_without_comparing_each_pair(monkeypatch):
    pairs = []
    dominates = base.Fitness.dominates
    monkeypatch.setattr(
        base.Fitness, "dominates", lambda *pair: pairs.append(0) or dominates(*pair)
    )
    members = [individual(number, -number % 7) for number in range(300)]
    assert len(select_best(members, 20)) == 20
    assert len(pairs) < 300


@given(pair=pairs, rate=units, eta=st.floats(0, 100), seed=seeds)
def test_a_child_lies_in_the_cube_and_takes_unordered_coordinates_from_a_parent(
    pair, rate, eta, seed
):
    one, other, unordered = zip(*pair, strict=True)
    child = mate_simulated_binary(
        one, other, rate=rate, unordered=unordered, rng=random.Random(seed), eta=eta
    )
    assert len(child) == len(one)
    for x, a, b, without_order in zip(child, one, other, unordered, strict=True):
        assert 0 <= x <= 1
        assert x in (a, b) or not without_order
        assert x == a or a != b


def test_children_of_two_parents_are_near_them_and_on_average_between_them():
    rng = random.Random(0)
    children = [
        mate_simulated_binary([0.4], [0.6], rate=1.0, unordered=[False], rng=rng)[0]
        for _ in range(4000)
    ]
    crossed = [x for x in children if x != 0.4]
    assert 0.45 < len(crossed) / len(children) < 0.55
    assert sum(crossed) / len(crossed) == pytest.approx(0.5, abs=0.01)
    near = [x for x in crossed if min(abs(x - 0.4), abs(x - 0.6)) < 0.05]
    assert len(near) > 0.8 * len(crossed)
    assert min(crossed) < 0.39
    assert max(crossed) > 0.61


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_the_spread_of_children_has_the_density_of_simulated_binary_crossover(eta):
    rng, low, high = random.Random(0), 0.4, 0.7
    children = [
        mate_simulated_binary([low], [high], rate=1.0, unordered=[False], rng=rng, eta=eta)[0]
        for _ in range(8000)
    ]
    crossed = [x for x in children if x != low]
    # The density of a spread up to 1 is (eta + 1) spread^eta / alpha, at either side of the middle.
    rooms = [low / (high - low), (1.0 - high) / (high - low)]
    alphas = [2.0 - (1.0 + 2.0 * room) ** -(eta + 1.0) for room in rooms]
    for spread in (0.5, 1.0):
        share = sum(spread ** (eta + 1.0) / alpha for alpha in alphas) / 2
        inside = [x for x in crossed if abs(x - (low + high) / 2) <= spread * (high - low) / 2]
        assert len(inside) / len(crossed) == pytest.approx(share, abs=0.02)
    # The bounds are reached, but none is the place of all that would lie beyond it.
    assert 0 < min(crossed) < 0.01
    assert 0.99 < max(crossed) < 1


def test_without_crossover_a_child_is_its_first_parent():
    rng = random.Random(0)
    child = mate_simulated_binary([0.1, 0.2], [0.8, 0.9], rate=0, unordered=[False, True], rng=rng)
    assert child == [0.1, 0.2]


@given(pair=pairs, rate=units, eta=st.floats(0, 100), seed=seeds)
def test_a_mutant_lies_in_the_cube(pair, rate, eta, seed):
    point, _, unordered = zip(*pair, strict=True)
    rng = random.Random(seed)
    mutant = mutate_polynomial(point, rate=rate, unordered=unordered, rng=rng, eta=eta)
    assert len(mutant) == len(point)
    assert all(0 <= x <= 1 for x in mutant)


def test_a_coordinate_mutates_at_the_rate_near_where_it_was_and_without_order_anywhere():
    rng = random.Random(0)
    mutants = [
        mutate_polynomial([0.5, 0.5], rate=0.25, unordered=[False, True], rng=rng)
        for _ in range(4000)
    ]
    ordered, unordered = zip(*mutants, strict=True)
    for coordinates in (ordered, unordered):
        assert 0.2 < sum(x != 0.5 for x in coordinates) / 4000 < 0.3
        assert sum(coordinates) / 4000 == pytest.approx(0.5, abs=0.02)
    far = [sum(abs(x - 0.5) > 0.3 for x in coordinates) for coordinates in (ordered, unordered)]
    assert far[0] < 0.15 * 1000
    assert far[1] > 0.3 * 1000
    assert mutate_polynomial([0.0, 1.0], rate=0.0, unordered=[False, True], rng=rng) == [0.0, 1.0]


@pytest.mark.parametrize("seed", range(20))
def test_dominance_then_crowding_distance_wins_a_tournament(seed):
    rng = random.Random(seed)
    best, worse = individual(2.0, 1.0), individual(1.0, 2.0, crowding=9.0)
    assert select_tournament([best, worse], rng=rng) is best
    lonely, crowded = individual(2.0, 3.0, crowding=1.5), individual(1.0, 2.0, crowding=0.5)
    assert select_tournament([lonely, crowded], rng=rng) is lonely


def test_equal_individuals_win_a_tournament_equally_often():
    rng, pair = random.Random(0), [individual(2.0, 3.0), individual(1.0, 2.0)]
    won = [select_tournament(pair, rng=rng) for _ in range(200)]
    assert all(60 < sum(winner is member for winner in won) < 140 for member in pair)


def test_operators_draw_from_their_generator_alone():
    state = random.getstate()
    population = [individual(0.1, 0.2), individual(0.5, 0.3), individual(0.9, 0.7)]
    space = Space.of_bounds({"a": [0.0, 1.0], "b": ["x", "y"]})
    same = [
        [breed(toolbox, population) for _ in range(20)]
        for toolbox in (
            make_toolbox(space, popsize=4, crossover=0.9, mutation=None, rng=random.Random(3))
            for _ in range(2)
        )
    ]
    assert same[0] == same[1]
    assert len({tuple(child) for child in same[0]}) > 10
    assert random.getstate() == state
