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
from scipy.special import erfcx, ndtr
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
        theta: Logarithms of length scales and noise variance, from `fit`.
        categorical: Whether each coordinate is a category.
    """

    def __init__(
        self, points: Array, values: Array, theta: Array, categorical: Sequence[bool]
    ) -> None:
        kernel = _kernel(categorical).clone_with_theta(theta)
        self._noise = math.exp(theta[-1])
        self._regressor = GaussianProcessRegressor(kernel, optimizer=None).fit(points, values)

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation of the function, without the noise."""
        # With the noise, no variance is below zero, of which scikit-learn would warn.
        mean, std = self._regressor.predict(points, return_std=True)
        return mean, np.sqrt(np.maximum(std**2 - self._noise, 1e-12))


def fit(points: Array, values: Array, categorical: Sequence[bool], dimensions: int) -> Array:
    """Return the most probable logarithms of length scales and noise variance (theta).

    The mode of the posterior, from one start: with few points the likelihood alone has many modes.

    Args:
        points: Points of the unit cube, one per row.
        values: Values of mean about 0 and standard deviation about 1.
        categorical: Whether each coordinate is a category.
        dimensions: The number of coordinates that are not constant, at least 1.
    """
    kernel = _kernel(categorical, dimensions)
    regressor = GaussianProcessRegressor(kernel, optimizer=None).fit(points, values)
    mean = np.full(len(kernel.theta), LENGTH[0] + math.log(dimensions) / 2)
    deviation = np.full(len(kernel.theta), LENGTH[1])
    mean[-1], deviation[-1] = NOISE

    def loss(theta: Array) -> tuple[float, Array]:
        likelihood, gradient = regressor.log_marginal_likelihood(theta, True, clone_kernel=False)
        offsets = (theta - mean) / deviation
        return offsets @ offsets / 2 - likelihood, offsets / deviation - gradient

    # Not scikit-learn's own optimizer: it has no prior, and warns if it ends at a bound.
    best = minimize(
        loss,
        kernel.theta,
        jac=True,
        method="L-BFGS-B",
        bounds=kernel.bounds,
        options={"maxiter": _ITERATIONS},
    )
    theta: Array = best.x
    return theta


def _kernel(categorical: Sequence[bool], dimensions: int = 1) -> Any:
    """Return the kernel, with length scales from which `fit` starts for so many dimensions."""
    lengths = np.full(len(categorical), 0.5 * math.sqrt(dimensions))
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
