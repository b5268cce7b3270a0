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
    DRAWS,
    GaussianProcess,
    draw,
    fit,
    normalized,
)
from search.sequential.volume_improvement import VolumeImprovement
from search.space.domains import Domain, is_unordered

Array = npt.NDArray[np.float64]

MODELLED = 300
"""Maximum evaluated points in the model: half of them the latest, half the best of the others.

And maximum points in flight, the latest: time and memory grow with the square of all of them."""

DRAWN = 100
"""Maximum evaluated points of a model that is averaged over its hyperparameters.

More points leave less doubt about these, and take longer."""

FAILED = 0.1
"""Variance of the error of a failed trial's value, which is a guess: the model need not reach it.

The variance of all values is 1."""

_ONE_THREAD = threading.Lock()
"""Held while linear algebra has one thread: that limit is the process's, and a search that began
under the limit of another one would restore it after both."""


class Model:
    """A Gaussian process per objective, all of the same points.

    Args:
        processes: One per objective.
        varied: The coordinates that they know; the others are constant.
        points: The points that they know, with all coordinates, one per row.
        values: Their normalised values, points x objectives; the higher the better.
    """

    def __init__(
        self,
        processes: Sequence[GaussianProcess],
        varied: Sequence[int],
        points: Array,
        values: Array,
    ) -> None:
        self.processes = processes
        self._varied = varied
        self.points = points
        self.values = values

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Return means and standard deviations, each points x objectives."""
        predicted = [process.predict(points[:, self._varied]) for process in self.processes]
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
            [process] = self.processes
            return lambda some: process.log_expected_improvement(some[:, self._varied], best)
        volume = VolumeImprovement(values)
        return lambda some: volume(*self.predict(some))


class Evidence:
    """The data of a model, which depend on the outcomes alone, and the model.

    Args:
        domains: What each coordinate of a point encodes.
        objectives: Number of objectives.
    """

    def __init__(self, domains: Sequence[Domain], objectives: int = 1) -> None:
        # One at least, also where all are constant.
        self._varied = [axis for axis, domain in enumerate(domains) if domain.size != 1] or [0]
        self._categorical = [is_unordered(domains[axis]) for axis in self._varied]
        self._objectives = objectives
        self._points: list[list[float]] = []
        self._merits: list[Sequence[float]] = []
        self._thetas: tuple[int, list[list[Array]]] = 0, []  # number of points, fitted to them

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
        points, values, errors = self._data(len(self._points))
        model = self._fitted_to(points, values, errors)
        if len(in_flight):
            out = np.array(in_flight[-MODELLED:])
            believed, _ = model.predict(out)
            points, values = np.vstack([points, out]), np.vstack([values, believed])
            model = self._fitted_to(points, values, np.append(errors, np.zeros(len(out))))
        return model

    def _fitted_to(self, points: Array, values: Array, errors: Array) -> Model:
        varied = points[:, self._varied]
        draws = max(1, DRAWS * DRAWN // len(points))  # fewer where many trials are in flight
        processes = [
            GaussianProcess(varied, column, errors, thetas[:draws], self._categorical)
            for column, thetas in zip(values.T, self._fitted(), strict=True)
        ]
        return Model(processes, self._varied, points, values)

    def _fitted(self) -> list[list[Array]]:
        """Return hyperparameters per objective, fitted anew when the points grow by a twentieth.

        They depend on the outcomes alone, not on when this is called. With one objective and up to
        `DRAWN` points there are several, equally probable ones.
        """
        count = len(self._points)
        count -= count % (1 + count // 20)
        if self._thetas[0] != count:
            points, values, errors = self._data(count)
            varied = points[:, self._varied]
            self._thetas = count, [self._thetas_of(varied, column, errors) for column in values.T]
        return self._thetas[1]

    def _thetas_of(self, points: Array, values: Array, errors: Array) -> list[Array]:
        if self._objectives > 1 or len(points) > DRAWN:
            return [fit(points, values, errors, self._categorical)]
        rng = np.random.default_rng(len(points))
        return draw(points, values, errors, self._categorical, rng)

    def _data(self, count: int) -> tuple[Array, Array, Array]:
        """Return the first evaluated points, their values and the variances of the values' errors.

        The highest value is the best.
        """
        points = np.array(self._points[:count])
        merits = np.reshape(self._merits[:count], (count, self._objectives))
        failed = ~np.isfinite(merits).all(axis=1)
        merits[failed] = merits[~failed].min(axis=0) if not failed.all() else 0.0
        if count > MODELLED:
            earlier, half = count - MODELLED // 2, MODELLED - MODELLED // 2
            best = _best_first(merits[:earlier])[:half]
            kept = np.append(np.sort(best), np.arange(earlier, count))
            points, merits, failed = points[kept], merits[kept], failed[kept]
        values = np.column_stack([normalized(column) for column in merits.T])
        return points, values, np.where(failed, FAILED, 0.0)


def _best_first(merits: Array) -> npt.NDArray[np.intp]:
    """Return the rows, the best first; with several objectives first those none dominates."""
    if merits.shape[1] == 1:
        return np.argsort(-merits[:, 0], kind="stable")
    ranks = [np.searchsorted(np.sort(column), column) for column in merits.T]
    return np.lexsort((-np.sum(ranks, axis=0), ~non_dominated(merits)))
