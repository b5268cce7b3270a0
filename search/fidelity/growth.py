"""PASHA's rule: trials train longer only while that changes the ranking of the best.

Bohdal, Balles, Wistuba, Ermis, Archambeau, Zappella: PASHA: Efficient HPO and NAS with Progressive
Resource Allocation (ICLR 2023).
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from search.direction import Direction
from search.trial import Status
from search.values import is_finite

PERCENTILE = 90
"""Percentile of the distances between configurations whose order is noise.

N in the paper's section 4.2."""

CROSSINGS = 2
"""Minimum changes of the better one of two curves, for which their order counts as noise."""


class Growth:
    """The highest rung that trials may reach: at first the second one.

    It grows by one rung when the configurations that have reached it rank otherwise there than in
    the rung below. Configurations whose values there differ by no more than a tolerance count as
    equal. The tolerance is a percentile of the distances between configurations whose curves cross
    at least twice; it needs reports, and is 0 without them. Where fewer than two configurations can
    be compared, `HyperbandSearch` does not limit trials.

    Args:
        rungs: The steps of each rung, ascending.
        direction: Direction of the objective.

    Attributes:
        highest: The highest rung, from 0.
    """

    def __init__(self, rungs: Sequence[int], direction: Direction) -> None:
        self._rungs = rungs
        self._direction = direction
        self.highest = 1
        self._merits: list[dict[int, float]] = [{} for _ in rungs]  # of each rung
        self._configurations: dict[int, int] = {}  # by trial
        self._curves: dict[int, dict[int, float]] = {}  # of each configuration: step to merit
        self._distances = array("d")  # of curves that cross, of those at the highest rung

    @property
    def compared(self) -> bool:
        """Whether configurations were compared at the highest rung, and there are higher ones."""
        return self.highest < len(self._rungs) - 1 and len(self._merits[self.highest]) > 1

    @property
    def why(self) -> str:
        """Why no trial trains longer, in one sentence."""
        longer, shorter = self._rungs[self.highest], self._rungs[self.highest - 1]
        return (
            f"no trial trains for more than {longer} epochs, since the best rank alike after "
            f"{shorter} and {longer}"
        )

    def begin(self, trial: int, configuration: int) -> None:
        """Note the configuration of a trial."""
        self._configurations[trial] = configuration

    def report(self, trial: int, step: int, value: float | None) -> None:
        """Take in a report; see `StoppingJudge`. No trial is stopped."""
        if value is not None and is_finite(value):
            curve = self._curves.setdefault(self._configurations[trial], {})
            curve[step] = self._direction.merit(value)

    def ended(self, trial: int, status: Status) -> None:
        """Ignore the end of a trial; see `reached`."""

    def reached(self, configuration: int, rung: int, score: float) -> None:
        """Take in the score of a configuration at a rung."""
        above = self._merits[rung]
        if self.highest < len(self._rungs) - 1 and rung == self.highest:
            # Only the new pairs: there may be millions, of curves that change no more.
            self._distances.extend(self._distances_from(configuration, above))
            above[configuration] = self._direction.merit(score)
            below = {number: self._merits[rung - 1][number] for number in above}
            if not rank_alike(above, below, self._tolerance):
                self.highest += 1
                self._distances = array("d")
        else:
            above[configuration] = self._direction.merit(score)

    @property
    def _tolerance(self) -> float:
        """The distance up to which values count as equal."""
        return float(np.percentile(self._distances, PERCENTILE)) if self._distances else 0.0

    def _distances_from(self, configuration: int, others: Iterable[int]) -> Iterator[float]:
        """Yield the distance to each of some others whose curve crosses that of a configuration."""
        one = self._curves.get(configuration, {})
        for other in (self._curves.get(number, {}) for number in others):
            steps = sorted(one.keys() & other.keys())
            signs = [one[step] > other[step] for step in steps if one[step] != other[step]]
            if sum(a != b for a, b in itertools.pairwise(signs)) >= CROSSINGS:
                yield abs(one[steps[-1]] - other[steps[-1]])


def rank_alike(above: Mapping[int, float], below: Mapping[int, float], tolerance: float) -> bool:
    """Return whether configurations rank alike in two rungs (soft ranking).

    Args:
        above: Configuration to merit in the upper rung.
        below: The merits of the same ones in the lower rung.
        tolerance: The configuration at each place of the ranking above must be no further from the
            one at this place of the ranking below, by the merits below.
    """
    places = (sorted(merits, key=lambda n: (-merits[n], n)) for merits in (above, below))
    return all(
        abs(below[one] - below[other]) <= tolerance for one, other in zip(*places, strict=True)
    )
