"""Evaluated points, and the Gaussian process that is fitted to them.

Imported late, as `gaussian_process` is: scikit-learn takes a second.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from search.sequential.gaussian_process import (
    GaussianProcess,
    fit,
    log_expected_improvement,
    normalized,
)
from search.space.domains import Domain, count_varying, is_unordered

Array = npt.NDArray[np.float64]

MODELLED = 300
"""Maximum evaluated points in the model: half of them the latest, half the best of the others.

And maximum points in flight, the latest: time and memory grow with the square of all of them."""

_ONE_THREAD = threading.Lock()
"""Held while linear algebra has one thread: that limit is the process's, and a search that began
under the limit of another one would restore it after both."""


class Evidence:
    """The data of a model, which depend on the outcomes alone, and the model.

    Args:
        domains: What each coordinate of a point encodes.
    """

    def __init__(self, domains: Sequence[Domain]) -> None:
        self._categorical = [is_unordered(domain) for domain in domains]
        self._dimensions = count_varying(domains)
        self._points: list[list[float]] = []
        self._merits: list[float] = []
        self._theta: tuple[int, Array] = 0, np.empty(0)  # number of points, fitted to them

    def add(self, point: list[float], merit: float) -> None:
        """Add an evaluated point; the merit of a failed trial is not finite."""
        self._points.append(point)
        self._merits.append(merit)

    @property
    def values(self) -> int:
        """The number of points with a value."""
        return int(np.isfinite(self._merits).sum())

    @staticmethod
    @contextlib.contextmanager
    def one_thread() -> Iterator[None]:
        """Limit linear algebra to one thread; use it around all other calls.

        That is enough for small matrices, and the digits are always the same.
        """
        with _ONE_THREAD, threadpool_limits(1, "blas"):
            yield

    def process(self, in_flight: Sequence[list[float]]) -> tuple[GaussianProcess, Array, Array]:
        """Return the process, and the points and normalised values that it knows.

        Args:
            in_flight: Points in flight, the oldest first. The latest `MODELLED` count as if they
                had the value that the model expects ("kriging believer").
        """
        points, values = self._data(len(self._points))
        theta = self._fitted()
        process = GaussianProcess(points, values, theta, self._categorical)
        if len(in_flight):
            out = np.array(in_flight[-MODELLED:])
            believed, _ = process.predict(out)
            points, values = np.vstack([points, out]), np.append(values, believed)
            process = GaussianProcess(points, values, theta, self._categorical)
        return process, points, values

    @staticmethod
    def improvement(process: GaussianProcess, best: float) -> Callable[[Array], Array]:
        """Return the function of points to the logarithm of the expected improvement over best."""
        return lambda some: log_expected_improvement(*process.predict(some), best)

    def _fitted(self) -> Array:
        """Return the model's hyperparameters, fitted anew whenever the points grow by a twentieth.

        They depend on the outcomes alone, not on when this is called.
        """
        count = len(self._points)
        count -= count % (1 + count // 20)
        if self._theta[0] != count:
            self._theta = count, fit(*self._data(count), self._categorical, self._dimensions)
        return self._theta[1]

    def _data(self, count: int) -> tuple[Array, Array]:
        """Return the first evaluated points and their values, of which the highest is the best."""
        points, merits = np.array(self._points[:count]), np.array(self._merits[:count])
        finite = np.isfinite(merits)
        merits[~finite] = merits[finite].min() if finite.any() else 0.0
        if count > MODELLED:
            earlier, half = count - MODELLED // 2, MODELLED - MODELLED // 2
            best = np.argsort(-merits[:earlier], kind="stable")[:half]
            kept = np.append(np.sort(best), np.arange(earlier, count))
            points, merits = points[kept], merits[kept]
        return points, normalized(merits)
