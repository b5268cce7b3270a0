"""How accuracies are compared; the trainings themselves are measured only."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.training.out_of_step import accuracy, compared, digits


def test_accuracies_are_compared_in_pairs_of_one_seed():
    found = compared([0.9, 0.8, 0.7], [0.8, 0.7, 0.6])
    assert found == pytest.approx((0.8, 0.1, 0.0))
    assert compared([0.9, 0.7], [0.7, 0.7]).error == pytest.approx(0.1)


def test_the_accuracy_is_that_of_the_most_probable_labels_of_unseen_digits():
    _, labels = digits()
    probabilities = np.eye(10)[labels[1_200:]]
    assert accuracy(probabilities) == 1
    assert accuracy(np.roll(probabilities, 1, axis=1)) == 0
