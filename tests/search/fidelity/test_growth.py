import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.direction import Direction
from search.fidelity.growth import CROSSINGS, PERCENTILE, Growth, rank_alike

RUNGS = [1, 3, 9, 27]


def growth(below, above, curves=(), direction=Direction.MAX):
    """Return a rule for configurations with these scores in the two lowest rungs."""
    it = Growth(RUNGS, direction)
    for number, curve in enumerate(curves):
        it.begin(number, number)
        for step, value in enumerate(curve):
            it.report(number, step, value)
    for rung, scores in enumerate((below, above)):
        for number, score in enumerate(scores):
            it.reached(number, rung, score)
    return it


def test_an_equal_ranking_does_not_grow():
    it = growth([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert it.highest == 1
    assert it.why.startswith("no trial trains for more than 3 epochs, ")


@pytest.mark.parametrize("direction", Direction)
def test_another_ranking_grows_by_one_rung(direction):
    it = growth([1.0, 2.0, 3.0], [4.0, 6.0, 5.0], direction=direction)
    assert it.highest == 2
    it.reached(1, 2, 7.0)
    assert it.highest == 2  # alone it ranks as before


def test_only_configurations_of_the_upper_rung_count():
    assert growth([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0]).highest == 1


def test_it_grows_no_further_than_the_last_rung():
    it = Growth([1, 3], Direction.MAX)
    for rung, scores in enumerate(([1.0, 2.0], [2.0, 1.0])):
        for number, score in enumerate(scores):
            it.reached(number, rung, score)
    assert it.highest == 1


def test_configurations_whose_curves_cross_twice_are_equal():
    crossing = [[0.0, 0.4, 0.5], [0.1, 0.3, 0.55]]
    assert growth([0.5, 0.55], [0.9, 0.8]).highest == 2
    assert growth([0.5, 0.55], [0.9, 0.8], crossing).highest == 1
    assert growth([0.5, 0.55], [0.9, 0.8], [[0.0, 0.4, 0.5], [0.1, 0.3, 0.4]]).highest == 2


def straightforward_highest(scores, curves):
    """Return the highest rung after each score, comparing all pairs of curves each time."""
    highest, merits = 1, [{} for _ in RUNGS]
    for number, rung, score in scores:
        merits[rung][number] = score
        if highest < len(RUNGS) - 1 and rung == highest:
            distances = [
                abs(one[-1] - other[-1])
                for one, other in itertools.combinations([curves[n] for n in merits[rung]], 2)
                if crossings(one, other) >= CROSSINGS
            ]
            tolerance = float(np.percentile(distances, PERCENTILE)) if distances else 0.0
            below = {number: merits[rung - 1][number] for number in merits[rung]}
            highest += not rank_alike(merits[rung], below, tolerance)
        yield highest


def crossings(one, other):
    signs = [a > b for a, b in zip(one, other, strict=True) if a != b]
    return sum(a != b for a, b in itertools.pairwise(signs))


@given(seed=st.integers(0, 10**6), spread=st.floats(0, 2), number=st.integers(2, 30))
def test_the_rungs_are_those_of_comparing_all_pairs_of_curves(seed, spread, number):
    rng = random.Random(seed)
    curves = [
        [quality + spread * rng.gauss(0, 1) for _ in range(3)]
        for quality in (rng.gauss(0, 1) for _ in range(number))
    ]
    scores = [
        (n, rung, curves[n][-1] + rng.gauss(0, 0.1) * spread)
        for rung in range(len(RUNGS))
        for n in rng.sample(range(number), number)
    ]
    it, highest = growth([], [], curves), []
    for n, rung, score in scores:
        if rung <= it.highest:  # no trial goes further
            it.reached(n, rung, score)
        highest.append(it.highest)
    ran = (score for score, most in zip(scores, highest, strict=True) if score[1] <= most)
    assert list(straightforward_highest(ran, curves))[-1] == it.highest


def test_a_pair_of_curves_is_compared_once(monkeypatch):
    pairs = []
    pairwise = itertools.pairwise
    monkeypatch.setattr(itertools, "pairwise", lambda some: pairs.append(0) or pairwise(some))
    scores = [float(number) for number in range(40)]
    growth(scores, scores, [[score, score, score] for score in scores])
    assert len(pairs) == 40 * 39 / 2


def test_values_that_are_no_numbers_are_no_part_of_a_curve():
    it = growth([], [], [[float("nan")], [None]])
    assert it.highest == 1


def test_the_tolerance_is_of_the_values_below():
    above, below = {0: 2.0, 1: 1.0}, {0: 0.10, 1: 0.12}
    assert not rank_alike(above, below, 0.01)
    assert rank_alike(above, below, 0.03)
