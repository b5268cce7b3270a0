"""Gaussian process regression over the points of a space, by scikit-learn.

`search.sequential.bayesian` imports it late: scikit-learn takes a second, and most searches do not
need it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import erfcx, logsumexp, ndtr
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern, WhiteKernel

Array = npt.NDArray[np.float64]

LENGTH = (math.sqrt(2), math.sqrt(3))
"""Prior mean and standard deviation of the logarithm of a length scale in one dimension.

The mean grows by log(sqrt(d)) in d dimensions. Hvarfner, Hellsten, Nardi: Vanilla Bayesian
optimization performs great in high dimensions (ICML 2024), equation (6).
"""

NOISE = (-8.0, 2.0)
"""Prior mean and standard deviation of the logarithm of the noise's variance."""

LOWEST = 10.0
"""Distance below the median beyond which values are equal; the best is at distance 1 above it."""

DRAWS = 8
"""Hyperparameters over which a model is averaged while it has few points."""

_UNUSED, _STEPS = 10, 4  # of the chain: before the first draw, and from one draw to the next
_LENGTHS = (1e-2, 1e3)
_NOISES = (1e-6, 1.0)
_ITERATIONS = 60  # maximum iterations of the optimizer
_HUGE = sys.float_info.max / 4  # the difference of larger numbers may overflow


class MixedMatern(Matern):  # type: ignore[misc]  # scikit-learn has no types
    """Matern 5/2 kernel over points with some categorical coordinates.

    Two categories are 0 or 1 apart, as in the Hamming distance; there is one length scale for each
    coordinate.

    Args:
        length_scale: Length scale per coordinate.
        length_scale_bounds: Bounds for fitting them.
        categorical: Whether each coordinate is a category.
    """

    def __init__(
        self,
        length_scale: Any = 1.0,
        length_scale_bounds: Any = _LENGTHS,
        categorical: Sequence[bool] = (),
    ) -> None:
        super().__init__(length_scale, length_scale_bounds, nu=2.5)
        self.categorical = categorical

    def __call__(self, X: Array, Y: Array | None = None, eval_gradient: bool = False) -> Any:  # noqa: N803  # scikit-learn's names
        """Return the kernel between points, and its gradient by the logarithm of each length."""
        squares = np.subtract(X[:, np.newaxis], X if Y is None else Y) ** 2
        squares[..., self.categorical] = squares[..., self.categorical] != 0
        squares /= np.square(self.length_scale)
        distances = np.sqrt(5 * squares.sum(axis=-1))
        decay = np.exp(-distances)
        kernel = (1 + distances + distances**2 / 3) * decay
        if not eval_gradient:
            return kernel
        return kernel, 5 / 3 * squares * ((1 + distances) * decay)[..., np.newaxis]


class GaussianProcess:
    """The posterior of a noisy function, given its values at some points.

    Args:
        points: Points of the unit cube, one per row.
        values: Values of mean about 0 and standard deviation about 1.
        errors: Variance of the error of each value, beside the noise.
        thetas: Logarithms of length scales and noise variance, from `fit` or `draw`. The posterior
            is the mean of those of each of them.
        categorical: Whether each coordinate is a category.
    """

    def __init__(
        self,
        points: Array,
        values: Array,
        errors: Array,
        thetas: Sequence[Array],
        categorical: Sequence[bool],
    ) -> None:
        kernel = _kernel(categorical)
        self.thetas = thetas
        self._regressors = [
            _regressor(kernel.clone_with_theta(theta), errors).fit(points, values)
            for theta in thetas
        ]

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation of the function, without the noise."""
        means, stds = self._predictions(points)
        return means.mean(axis=0), np.sqrt(np.mean(stds**2, axis=0) + means.var(axis=0))

    def log_expected_improvement(self, points: Array, best: float) -> Array:
        """Return the logarithm of the expected improvement over a value, to be maximised."""
        each = log_expected_improvement(*self._predictions(points), best)
        logarithm: Array = logsumexp(each, axis=0) - math.log(len(each))
        return logarithm

    def _predictions(self, points: Array) -> tuple[Array, Array]:
        """Return means and standard deviations, each thetas x points."""
        predicted = [each.predict(points, return_std=True) for each in self._regressors]
        means, stds = map(np.array, zip(*predicted, strict=True))
        # With the noise, no variance is below zero, of which scikit-learn would warn.
        noises = np.exp([[theta[-1]] for theta in self.thetas])
        return means, np.sqrt(np.maximum(stds**2 - noises, 1e-12))


class _Hyperparameters:
    """The posterior of theta, whose prior is normal."""

    def __init__(
        self, points: Array, values: Array, errors: Array, categorical: Sequence[bool]
    ) -> None:
        kernel = _kernel(categorical)
        self._regressor = _regressor(kernel, errors).fit(points, values)
        self.start = kernel.theta
        self.bounds = kernel.bounds
        self.mean = np.full(len(kernel.theta), LENGTH[0] + math.log(len(categorical)) / 2)
        self.deviation = np.full(len(kernel.theta), LENGTH[1])
        self.mean[-1], self.deviation[-1] = NOISE

    def loss(self, theta: Array) -> tuple[float, Array]:
        """Return the negative logarithm of the density, less a constant, and its gradient."""
        likelihood, gradient = self._regressor.log_marginal_likelihood(
            theta, True, clone_kernel=False
        )
        offsets = (theta - self.mean) / self.deviation
        return offsets @ offsets / 2 - likelihood, offsets / self.deviation - gradient

    def log_likelihood(self, theta: Array) -> float:
        """Return the logarithm of the likelihood; -inf outside of the bounds."""
        if (theta < self.bounds[:, 0]).any() or (theta > self.bounds[:, 1]).any():
            return -math.inf
        return float(self._regressor.log_marginal_likelihood(theta, clone_kernel=False))


def fit(points: Array, values: Array, errors: Array, categorical: Sequence[bool]) -> Array:
    """Return the most probable logarithms of length scales and noise variance (theta).

    The mode of the posterior, from one start: with few points the likelihood alone has many modes.

    Args:
        points: Points of the unit cube, one per row.
        values: Values of mean about 0 and standard deviation about 1.
        errors: Variance of the error of each value, beside the noise.
        categorical: Whether each coordinate is a category.
    """
    return _mode(_Hyperparameters(points, values, errors, categorical))


def _mode(hyperparameters: _Hyperparameters) -> Array:
    # Not scikit-learn's own optimizer: it has no prior, and warns if it ends at a bound.
    best = minimize(
        hyperparameters.loss,
        hyperparameters.start,
        jac=True,
        method="L-BFGS-B",
        bounds=hyperparameters.bounds,
        options={"maxiter": _ITERATIONS},
    )
    theta: Array = best.x
    return theta


def draw(
    points: Array,
    values: Array,
    errors: Array,
    categorical: Sequence[bool],
    rng: np.random.Generator,
) -> list[Array]:
    """Return `DRAWS` thetas drawn from the posterior: with few points it is wide.

    By elliptical slice sampling, which has nothing to be tuned and begins at the mode. Murray,
    Adams, MacKay: Elliptical slice sampling (AISTATS 2010), figure 2. Snoek, Larochelle, Adams
    average the expected improvement over draws: Practical Bayesian optimization of machine learning
    algorithms (NIPS 2012), section 3.2.

    Args:
        points: Points of the unit cube, one per row.
        values: Values of mean about 0 and standard deviation about 1.
        errors: Variance of the error of each value, beside the noise.
        categorical: Whether each coordinate is a category.
        rng: The generator.
    """
    hyperparameters = _Hyperparameters(points, values, errors, categorical)
    theta, drawn = _mode(hyperparameters), []
    likelihood = hyperparameters.log_likelihood(theta)
    for number in range(1, 1 + _UNUSED + DRAWS * _STEPS):
        theta, likelihood = _slice(hyperparameters, theta, likelihood, rng)
        if number > _UNUSED and (number - _UNUSED) % _STEPS == 0:
            drawn.append(theta)
    return drawn


def _slice(
    hyperparameters: _Hyperparameters, theta: Array, likelihood: float, rng: np.random.Generator
) -> tuple[Array, float]:
    """Return the next theta of the chain, on an ellipse through the last, and its likelihood."""
    mean = hyperparameters.mean
    other = hyperparameters.deviation * rng.standard_normal(len(theta))
    least = likelihood + math.log(1 - rng.random())
    angle = 2 * math.pi * rng.random()
    low, high = angle - 2 * math.pi, angle
    while True:
        new = mean + (theta - mean) * math.cos(angle) + other * math.sin(angle)
        if (found := hyperparameters.log_likelihood(new)) > least:
            return new, found
        if low >= high:  # as narrow as floats can be
            return theta, likelihood
        low, high = (angle, high) if angle < 0 else (low, angle)
        angle = low + (high - low) * rng.random()


def _regressor(kernel: Any, errors: Array) -> Any:
    # scikit-learn's own 1e-10 keeps matrices invertible.
    return GaussianProcessRegressor(kernel, alpha=1e-10 + errors, optimizer=None)


def _kernel(categorical: Sequence[bool]) -> Any:
    """Return the kernel, with the length scales from which `fit` starts."""
    dimensions = len(categorical)
    lengths = np.full(dimensions, 0.5 * math.sqrt(dimensions))
    return MixedMatern(lengths, _LENGTHS, tuple(categorical)) + WhiteKernel(1e-3, _NOISES)


def log_expected_improvement(mean: Array, std: Array, best: float) -> Array:
    """Return the logarithm of the expected improvement over `best`, to be maximised.

    The logarithm distinguishes points whose improvement is too small for a float. Ament et al.:
    Unexpected improvements to expected improvement (NeurIPS 2023), equation (9).
    """
    z = (mean - best) / std
    near, far = np.maximum(z, -1), np.minimum(z, -1)  # each formula where it is exact
    constant = math.log(2 * math.pi) / 2
    direct = np.log(np.exp(-(near**2) / 2 - constant) + near * ndtr(near))
    tail = 1 + far * erfcx(-far / math.sqrt(2)) * math.sqrt(math.pi / 2)
    by_tail = np.log(np.maximum(tail, 1e-15)) - far**2 / 2 - constant
    logarithm: Array = np.log(std) + np.where(z > -1, direct, by_tail)
    return logarithm


def normalized(values: Array) -> Array:
    """Return values of mean 0 and standard deviation 1, with the bad ones closer to each other.

    Values further below the median than the best is above it are moved up to a logarithmic scale,
    which ends at `LOWEST` times that distance, so that a diverged trial does not hide how the good
    ones differ. After the warping of Song et al.: The Vizier Gaussian process bandit
    algorithm (2024), where the lower half is warped by its ranks. Values that are all equal
    become 0.
    """
    if np.abs(values).max() > _HUGE:
        values = values / 4
    best, median, worst = values.max(), np.median(values), values.min()
    if best == worst:
        return np.zeros_like(values)
    with np.errstate(over="ignore"):  # values beyond the end of the scale are equal
        below = (median - values) / (best - median if best > median else best - worst)
    warped = -np.where(below > 1, 1 + np.log(np.clip(below, 1, LOWEST)), below)
    standard: Array = (warped - warped.mean()) / warped.std()
    return standard
