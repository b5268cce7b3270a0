"""Evaluated points, and the Gaussian processes that are fitted to them.

Imported late, as `gaussian_process` is: scikit-learn takes a second.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from search.direction import non_dominated
from search.sequential.gaussian_process import (
    GaussianProcess,
    fit,
    log_expected_improvement,
    normalized,
)
from search.sequential.volume_improvement import VolumeImprovement
from search.space.domains import Domain, count_varying, is_unordered

Array = npt.NDArray[np.float64]

MODELLED = 300
"""Maximum evaluated points in the model: half of them the latest, half the best of the others.

And maximum points in flight, the latest: time and memory grow with the square of all of them."""

_ONE_THREAD = threading.Lock()
"""Held while linear algebra has one thread: that limit is the process's, and a search that began
under the limit of another one would restore it after both."""


class Model:
    """A Gaussian process per objective, all of the same points.

    Args:
        processes: One per objective.
        points: The points that they know, one per row.
        values: Their normalised values, points x objectives; the higher the better.
    """

    def __init__(self, processes: Sequence[GaussianProcess], points: Array, values: Array) -> None:
        self._processes = processes
        self.points = points
        self.values = values

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Return means and standard deviations, each points x objectives."""
        predicted = [process.predict(points) for process in self._processes]
        means, stds = zip(*predicted, strict=True)
        return np.column_stack(means), np.column_stack(stds)

    def good(self, rng: random.Random) -> Array:
        """Return good points, those to look around first.

        The best first; with several objectives those that no other dominates, in random order.
        """
        if self.values.shape[1] == 1:
            return np.asarray(self.points[_best_first(self.values)])
        front = np.flatnonzero(non_dominated(self.values)).tolist()
        rng.shuffle(front)
        return np.asarray(self.points[front])

    def improvement(self, values: Array) -> Callable[[Array], Array]:
        """Return the function of points to the logarithm of their expected improvement.

        Over the best of some values, points x objectives; with several objectives, over the volume
        that these values dominate.
        """
        if values.shape[1] == 1:
            best = float(values.max())
            [process] = self._processes
            return lambda some: log_expected_improvement(*process.predict(some), best)
        volume = VolumeImprovement(values)
        return lambda some: volume(*self.predict(some))


class Evidence:
    """The data of a model, which depend on the outcomes alone, and the model.

    Args:
        domains: What each coordinate of a point encodes.
        objectives: Number of objectives.
    """

    def __init__(self, domains: Sequence[Domain], objectives: int = 1) -> None:
        self._categorical = [is_unordered(domain) for domain in domains]
        self._dimensions = count_varying(domains)
        self._objectives = objectives
        self._points: list[list[float]] = []
        self._merits: list[Sequence[float]] = []
        self._thetas: tuple[int, list[Array]] = 0, []  # number of points, fitted to them

    def add(self, point: list[float], *merits: float) -> None:
        """Add an evaluated point, with a merit per objective; of a failed trial none is finite."""
        self._points.append(point)
        self._merits.append(merits)

    @property
    def values(self) -> int:
        """The number of points with a value."""
        return int(np.isfinite([merits[0] for merits in self._merits]).sum())

    @staticmethod
    @contextlib.contextmanager
    def one_thread() -> Iterator[None]:
        """Limit linear algebra to one thread; use it around all other calls.

        That is enough for small matrices, and the digits are always the same.
        """
        with _ONE_THREAD, threadpool_limits(1, "blas"):
            yield

    def model(self, in_flight: Sequence[list[float]]) -> Model:
        """Return the model of all points.

        Args:
            in_flight: Points in flight, the oldest first. The latest `MODELLED` count as if they
                had the values that the model expects ("kriging believer").
        """
        points, values = self._data(len(self._points))
        model = self._fitted_to(points, values)
        if len(in_flight):
            out = np.array(in_flight[-MODELLED:])
            believed, _ = model.predict(out)
            model = self._fitted_to(np.vstack([points, out]), np.vstack([values, believed]))
        return model

    def _fitted_to(self, points: Array, values: Array) -> Model:
        processes = [
            GaussianProcess(points, column, theta, self._categorical)
            for column, theta in zip(values.T, self._fitted(), strict=True)
        ]
        return Model(processes, points, values)

    def _fitted(self) -> list[Array]:
        """Return hyperparameters per objective, fitted anew when the points grow by a twentieth.

        They depend on the outcomes alone, not on when this is called.
        """
        count = len(self._points)
        count -= count % (1 + count // 20)
        if self._thetas[0] != count:
            points, values = self._data(count)
            fitted = [
                fit(points, column, self._categorical, self._dimensions) for column in values.T
            ]
            self._thetas = count, fitted
        return self._thetas[1]

    def _data(self, count: int) -> tuple[Array, Array]:
        """Return the first evaluated points and their values, of which the highest is the best."""
        points = np.array(self._points[:count])
        merits = np.reshape(self._merits[:count], (count, self._objectives))
        failed = ~np.isfinite(merits).all(axis=1)
        merits[failed] = merits[~failed].min(axis=0) if not failed.all() else 0.0
        if count > MODELLED:
            earlier, half = count - MODELLED // 2, MODELLED - MODELLED // 2
            best = _best_first(merits[:earlier])[:half]
            kept = np.append(np.sort(best), np.arange(earlier, count))
            points, merits = points[kept], merits[kept]
        return points, np.column_stack([normalized(column) for column in merits.T])


def _best_first(merits: Array) -> npt.NDArray[np.intp]:
    """Return the rows, the best first; with several objectives first those none dominates."""
    if merits.shape[1] == 1:
        return np.argsort(-merits[:, 0], kind="stable")
    ranks = [np.searchsorted(np.sort(column), column) for column in merits.T]
    return np.lexsort((-np.sum(ranks, axis=0), ~non_dominated(merits)))
