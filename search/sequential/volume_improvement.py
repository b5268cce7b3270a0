"""How much a point is expected to add to the volume that a Pareto front dominates.

Imported late, as `gaussian_process` is: SciPy takes a part of a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from search.direction import non_dominated

Array = npt.NDArray[np.float64]

MARGIN = 0.1
"""Distance of the reference point below the worst values, as a share of each objective's range."""

_AT_ONCE = 1_000_000
"""Maximum points times boxes in one array."""


class VolumeImprovement:
    """The logarithm of the expected improvement of the volume that the best values dominate.

    The volume lies between the front and a reference point, which is worse than all values in each
    objective. The exact expectation for independent normal distributions: the space that no value
    dominates is cut into boxes, and over a box the expectation is a product over the objectives.
    Emmerich, Giannakoglou, Naujoks: Single- and multiobjective evolutionary optimization assisted
    by Gaussian random field metamodels (IEEE Transactions on Evolutionary Computation 10, 2006);
    Yang, Emmerich, Deutz, Bäck: Efficient computation of expected hypervolume improvement using box
    decomposition algorithms (Journal of Global Optimization 75, 2019).

    Args:
        values: The values so far, trials x objectives; the higher the better. A hundred values that
            no other dominates make 101 boxes with two objectives, and one to two thousand with
            three that conflict.
    """

    def __init__(self, values: Array) -> None:
        worst, best = values.min(axis=0), values.max(axis=0)
        reference = worst - MARGIN * np.where(best > worst, best - worst, 1.0)
        front = values[non_dominated(values)]
        objectives = np.arange(len(reference))
        # Where two objectives agree, a cut along the wrong one makes n**2 / 2 boxes.
        orders = [np.roll(objectives, shift) for shift in objectives]
        self._order = min(orders, key=lambda order: _size(front[:, order], reference[order]))
        lower, upper = _boxes(front[:, self._order], reference[self._order])
        # Many boxes share their bounds.
        self._bounds = []
        for below, above in zip(lower.T, upper.T, strict=True):
            bounds, places = np.unique(np.append(below, above), return_inverse=True)
            self._bounds.append((bounds[np.isfinite(bounds)], *np.split(places, 2)))

    def __call__(self, mean: Array, std: Array) -> Array:
        """Return the logarithm at points, to be maximised.

        Args:
            mean: Expected values, points x objectives.
            std: Their standard deviations, in the same shape.
        """
        excesses = []
        for (bounds, _, _), objective in zip(self._bounds, self._order, strict=True):
            deviation = std[:, objective, np.newaxis]
            z = (mean[:, objective, np.newaxis] - bounds) / deviation
            over = z * ndtr(z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
            # How far a value is expected above each bound; the last, infinite bound has none.
            excesses.append(np.column_stack([deviation * over, np.zeros(len(z))]))
        boxes = len(self._bounds[0][1])
        step = max(1, _AT_ONCE // len(mean))
        total = np.zeros(len(mean))
        for first in range(0, boxes, step):
            volumes = np.ones(())
            for excess, (_, below, above) in zip(excesses, self._bounds, strict=True):
                some = slice(first, first + step)
                volumes = volumes * (excess[:, below[some]] - excess[:, above[some]])
            total += volumes.sum(axis=-1)
        return np.asarray(np.log(np.maximum(total, np.finfo(float).tiny)))


def _size(front: Array, reference: Array) -> int:
    """Return how many boxes three objectives make in this order; two make as many in any order."""
    return sum(1 + len(others) for others, _, _ in _slabs(front, reference))


def _boxes(front: Array, reference: Array) -> tuple[Array, Array]:
    """Return the lower and the upper corners of boxes that fill what a front does not dominate.

    Above the reference point, without an upper end.
    """
    if len(reference) == 1:
        return np.array([[front.max(initial=reference[0])]]), np.array([[np.inf]])
    lower: list[Array] = []
    upper: list[Array] = []
    for others, bottom, top in _slabs(front, reference):
        for corners, found, bound in zip(
            (lower, upper), _boxes(others, reference[:-1]), (bottom, top), strict=True
        ):
            corners.append(np.column_stack([found, np.full(len(found), bound)]))
    return np.vstack(lower), np.vstack(upper)


def _slabs(front: Array, reference: Array) -> Iterator[tuple[Array, float, float]]:
    """Cut the space along the last objective, where the front of the other objectives changes.

    Between two cuts it is a problem with one objective fewer.

    Args:
        front: Members x objectives; none dominates another one, and all are above the reference.
        reference: The reference point.

    Yields:
        The front of the other objectives, and the lower and the upper end.
    """
    others, top = front[:0, :-1], math.inf
    for member in [*front[np.argsort(-front[:, -1], kind="stable")], reference]:
        merits, bottom = member[:-1], float(member[-1])
        if member is not reference and (others >= merits).all(axis=1).any():
            continue
        if bottom < top:
            yield others, bottom, top
            top = bottom
        others = np.vstack([others[~(others <= merits).all(axis=1)], merits])
