import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.sequential.controller import Controller

SIZES = [3, 2, 4, 1]


def trained(seed=0):
    """Return a controller with weights at random."""
    controller = Controller(SIZES)
    controller.weights += np.random.default_rng(seed).normal(size=controller.weights.shape)
    return controller


@st.composite
def sequences(draw):
    """Actions of some of the positions, in any order."""
    positions = draw(st.lists(st.sampled_from(range(len(SIZES))), unique=True))
    return [(position, draw(st.integers(0, SIZES[position] - 1))) for position in positions]


def log_likelihood(controller, steps):
    return sum(
        math.log(controller.probabilities(position, steps[:number])[action])
        for number, (position, action) in enumerate(steps)
    )


def total_entropy(controller, steps):
    entropy = 0.0
    for number, (position, _) in enumerate(steps):
        p = controller.probabilities(position, steps[:number])
        entropy -= float(p @ np.log(p))
    return entropy


def test_at_first_all_actions_are_equally_likely():
    controller = Controller(SIZES)
    for position, size in enumerate(SIZES):
        before = [(other, 0) for other in range(position)]
        assert controller.probabilities(position, before).tolist() == [1 / size] * size


@given(sequences(), st.integers(0, 99))
def test_probabilities_are_a_distribution_whatever_was_taken_before(steps, seed):
    controller = trained(seed)
    for number, (position, _) in enumerate(steps):
        probabilities = controller.probabilities(position, steps[:number])
        assert probabilities.shape == (SIZES[position],)
        assert probabilities.sum() == pytest.approx(1)
        assert (probabilities > 0).all()


def test_an_action_depends_on_every_one_before_it():
    controller = trained()
    one, other, alone = (
        controller.probabilities(2, before) for before in ([(0, 1)], [(0, 2)], [(0, 1), (1, 0)])
    )
    assert not np.allclose(one, other)
    assert not np.allclose(one, alone)


def test_actions_are_drawn_by_their_probability():
    controller, rng = trained(), random.Random(0)
    before = [(0, 1), (3, 0)]
    draws = [controller.draw(2, before, rng) for _ in range(4000)]
    shares = np.bincount(draws, minlength=4) / len(draws)
    assert shares == pytest.approx(controller.probabilities(2, before), abs=0.03)


@given(sequences(), st.floats(-3, 3), st.floats(0, 2), st.integers(0, 99))
def test_the_gradient_is_that_of_finite_differences(steps, advantage, entropy, seed):
    controller, step = trained(seed), 1e-5

    def objective():
        gained = advantage * log_likelihood(controller, steps)
        return gained + entropy * total_entropy(controller, steps)

    gradient = controller.gradient(steps, advantage, entropy)
    assert gradient.shape == controller.weights.shape
    for index in np.ndindex(gradient.shape):
        kept = controller.weights[index]
        controller.weights[index] = kept + step
        above = objective()
        controller.weights[index] = kept - step
        difference = (above - objective()) / (2 * step)
        controller.weights[index] = kept
        assert gradient[index] == pytest.approx(difference, abs=1e-7)


def test_positions_not_visited_have_no_gradient():
    gradient = trained().gradient([(0, 1), (2, 3)], 1.0, 0.5)
    columns = np.abs(gradient).sum(axis=0) > 0
    assert columns.tolist() == [True] * 3 + [False] * 2 + [True] * 4 + [False]


def test_a_step_of_adam_is_that_of_the_paper():
    """Algorithm 1 of Kingma and Ba, written down for a lone number."""
    controller, weight, first, second = Controller([1]), 0.0, 0.0, 0.0
    for number, gradient in enumerate([0.3, -2.0, 0.1], start=1):
        controller.ascend(np.full((2, 1), gradient), 0.01)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        corrected = first / (1 - 0.9**number), second / (1 - 0.999**number)
        weight += 0.01 * corrected[0] / (math.sqrt(corrected[1]) + 1e-8)
        assert controller.weights == pytest.approx(np.full((2, 1), weight))


def test_probabilities_stay_numbers_where_weights_are_huge():
    controller = Controller([2, 2])
    controller.weights[-1, 0] = 1e5
    assert controller.probabilities(0, []).tolist() == [1.0, 0.0]
    assert np.isfinite(controller.gradient([(0, 1), (1, 0)], -1.0, 0.5)).all()


def test_it_learns_that_one_action_calls_for_another():
    """Both positions alone mean nothing: only the second one given the first."""
    controller, rng = Controller([4, 4]), random.Random(1)
    for _ in range(600):
        first = controller.draw(0, [], rng)
        second = controller.draw(1, [(0, first)], rng)
        reward = 1.0 if second == (first + 1) % 4 else -1 / 3
        steps = [(0, first), (1, second)]
        controller.ascend(controller.gradient(steps, reward, entropy=0.2), 0.05)
    assert controller.probabilities(0, []).max() < 0.7
    for first in range(4):
        assert controller.probabilities(1, [(0, first)])[(first + 1) % 4] > 0.5
