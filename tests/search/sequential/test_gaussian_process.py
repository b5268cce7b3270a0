import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import norm
from sklearn.gaussian_process.kernels import Matern

from search.sequential.gaussian_process import (
    GaussianProcess,
    MixedMatern,
    fit,
    log_expected_improvement,
    normalized,
)
from tests.properties import examples

RNG = np.random.default_rng(0)
POINTS = RNG.random((30, 3))


def test_without_categories_the_kernel_is_scikit_learns():
    lengths = np.array([0.3, 1.0, 2.0])
    ours = MixedMatern(lengths, categorical=(False,) * 3)
    theirs = Matern(lengths, nu=2.5)
    assert np.allclose(ours(POINTS), theirs(POINTS))
    assert np.allclose(ours(POINTS, POINTS[:4]), theirs(POINTS, POINTS[:4]))
    for one, other in zip(ours(POINTS, None, True), theirs(POINTS, None, True), strict=True):
        assert np.allclose(one, other)


def test_any_two_categories_are_equally_far_apart():
    kernel = MixedMatern(np.array([0.5]), categorical=(True,))
    covariance = kernel(np.array([[0.1], [0.2], [0.9], [0.1]]))
    assert covariance[0, 1] == covariance[0, 2] == covariance[1, 2] < covariance[0, 3] == 1


def test_the_gradient_of_the_kernel_is_that_of_its_values():
    points = POINTS.copy()
    points[:, 1] = np.round(points[:, 1] * 2)
    kernel = MixedMatern(np.array([0.3, 0.8, 2.0]), categorical=(False, True, False))
    _, gradient = kernel(points, None, True)
    for axis in range(3):
        step = np.zeros(3)
        step[axis] = 1e-6
        above, below = (kernel.clone_with_theta(kernel.theta + s)(points) for s in (step, -step))
        assert np.allclose((above - below) / 2e-6, gradient[..., axis], atol=1e-6)


def test_a_function_is_learnt_with_its_irrelevant_coordinates():
    values = np.sin(6 * POINTS[:, 0])
    categorical = (False,) * 3
    theta = fit(POINTS, values, categorical, 3)
    lengths = np.exp(theta[:3])
    assert lengths[0] < 0.2 * min(lengths[1], lengths[2])
    process = GaussianProcess(POINTS, values, theta, categorical)
    others = RNG.random((50, 3))
    mean, std = process.predict(others)
    assert np.abs(mean - np.sin(6 * others[:, 0])).max() < 0.05
    assert (process.predict(POINTS)[1] < 0.02).all()
    assert (std < 0.1).all()


def test_noise_is_learnt():
    points = RNG.random((80, 1))
    values = np.sin(6 * points[:, 0]) + RNG.normal(scale=0.3, size=80)
    theta = fit(points, values, (False,), 1)
    assert math.exp(theta[-1]) == pytest.approx(0.09, rel=0.4)
    process = GaussianProcess(points, values, theta, (False,))
    assert process.predict(points)[1].max() < 0.25  # of the function, without the noise


def test_expected_improvement_matches_its_definition():
    z = np.linspace(-5, 5, 41)
    mean, std = 2 + 0.5 * z, np.full(41, 0.5)
    exact = 0.5 * (norm.pdf(z) + z * norm.cdf(z))
    assert np.allclose(np.exp(log_expected_improvement(mean, std, 2.0)), exact, rtol=1e-6)


def test_expected_improvement_grows_also_where_it_is_too_small_for_a_float():
    mean = -np.logspace(0, 6, 50)[::-1]
    logarithms = log_expected_improvement(mean, np.ones(50), 0.0)
    assert np.isfinite(logarithms).all()
    assert (np.diff(logarithms) > 0).all()


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@examples(200)
@given(arrays.arrays(float, st.integers(1, 40), elements=FINITE))
@example(np.array([5e-324, 0.0]))
@example(np.array([-1.7e308, 1.7e308, 5e-324]))
def test_normalized_values_keep_their_order(values):
    bent = normalized(values)
    assert np.isfinite(bent).all()
    assert (np.diff(bent[np.argsort(values, kind="stable")]) >= 0).all()
    if values.max() > values.min():
        assert bent.mean() == pytest.approx(0, abs=1e-6)
        assert bent.std() == pytest.approx(1)
    else:
        assert not bent.any()


def test_a_diverged_value_does_not_hide_the_others():
    bent = normalized(np.array([-1e30, *range(20)]))
    assert np.diff(bent[1:]).min() > 0.05
