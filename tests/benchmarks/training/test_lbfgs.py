"""The trainings that the row of L-BFGS compares are what it says."""

from __future__ import annotations

import numpy as np

from tests.benchmarks.training.lbfgs import difference, fitted


def test_each_split_has_unseen_digits_of_its_own_and_a_model_that_knows_them():
    (one,), (other,) = fitted(1, 0), fitted(1, 1)
    assert np.abs(one.weights - other.weights).max() > 0.01
    assert min(one.accuracy, other.accuracy) > 0.95


def test_two_workers_find_the_weights_of_one():
    assert 0 < difference([0]) < 1e-6  # parts are summed in another order
