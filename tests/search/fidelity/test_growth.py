import pytest

from search.direction import Direction
from search.fidelity.growth import Growth, rank_alike

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


def test_values_that_are_no_numbers_are_no_part_of_a_curve():
    it = growth([], [], [[float("nan")], [None]])
    assert it.highest == 1


def test_the_tolerance_is_of_the_values_below():
    above, below = {0: 2.0, 1: 1.0}, {0: 0.10, 1: 0.12}
    assert not rank_alike(above, below, 0.01)
    assert rank_alike(above, below, 0.03)
