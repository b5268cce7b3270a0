"""How much a point is expected to add to the volume that a Pareto front dominates.

Imported late, as `gaussian_process` is: SciPy takes a part of a second.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

Array = npt.NDArray[np.float64]

MARGIN = 0.1
"""Distance of the reference point below the worst values, as a share of each objective's range."""


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
        values: The values so far, trials x objectives; the higher the better. With three objectives
            a hundred values that no other dominates make about a thousand boxes, with four more
            than ten thousand.
    """

    def __init__(self, values: Array) -> None:
        worst, best = values.min(axis=0), values.max(axis=0)
        reference = worst - MARGIN * np.where(best > worst, best - worst, 1.0)
        lower, upper = _boxes(values[non_dominated(values)], reference)
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
        volumes = np.ones(())
        for (bounds, below, above), means, stds in zip(self._bounds, mean.T, std.T, strict=True):
            z = (means[:, np.newaxis] - bounds) / stds[:, np.newaxis]
            over = z * ndtr(z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
            # How far a value is expected above each bound; the last, infinite bound has none.
            excess = np.column_stack([stds[:, np.newaxis] * over, np.zeros(len(z))])
            volumes = volumes * (excess[:, below] - excess[:, above])
        return np.asarray(np.log(np.maximum(volumes.sum(axis=-1), np.finfo(float).tiny)))


def non_dominated(values: Array) -> npt.NDArray[np.bool_]:
    """Return which rows no other row dominates, the higher the better; of equal rows the first."""
    front, members = np.empty_like(values), 0
    found = np.zeros(len(values), dtype=bool)
    for row in np.lexsort(-values.T[::-1]):  # so no row dominates one before it
        if not (front[:members] >= values[row]).all(axis=1).any():
            front[members], members, found[row] = values[row], members + 1, True
    return found


def _boxes(front: Array, reference: Array) -> tuple[Array, Array]:
    """Return the lower and the upper corners of boxes that fill what a front does not dominate.

    Above the reference point, without an upper end. The last objective is cut where the other
    objectives' front changes: between two cuts it is a problem with one objective fewer.

    Args:
        front: Members x objectives; none dominates another one, and all are above the reference.
        reference: The reference point.
    """
    if len(reference) == 1:
        return np.array([[front.max(initial=reference[0])]]), np.array([[np.inf]])
    lower: list[Array] = []
    upper: list[Array] = []
    above, top = front[:0, :-1], np.inf  # the other objectives' front of the members above the cut
    for member in [*front[np.argsort(-front[:, -1], kind="stable")], reference]:
        others, bottom = member[:-1], member[-1]
        last = member is reference
        if not last and (above >= others).all(axis=1).any():
            continue
        if bottom < top:
            for corners, found, bound in zip(
                (lower, upper), _boxes(above, reference[:-1]), (bottom, top), strict=True
            ):
                corners.append(np.column_stack([found, np.full(len(found), bound)]))
            top = bottom
        above = np.vstack([above[~(above <= others).all(axis=1)], others])
    return np.vstack(lower), np.vstack(upper)
