"""Problems for multi-fidelity searches, whose values change with the steps of a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from search.space.spaces import Float, Space
from tests.benchmarks.searches.problems import keras_curves

MAX_STEPS = 81

_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
_BIAS = 0.1


class Curves(Protocol):
    """A function of a configuration and a number of steps, to be minimised."""

    @property
    def name(self) -> str:
        """A name that no other one has."""

    @property
    def space(self) -> Space:
        """The search space."""

    @property
    def best(self) -> float:
        """The lowest value after `MAX_STEPS`."""

    def value(self, params: Mapping[str, Any], steps: int) -> float:
        """Return the value of a configuration after a number of steps, from 1 to `MAX_STEPS`."""


@dataclass(frozen=True)
class Hartmann:
    """Hartmann's function with the fidelity of Kandasamy, Dasarathy, Schneider, Póczos.

    The weight of each of its four peaks is less by 0.1 (1 - z) at fidelity z: Multi-fidelity
    Bayesian Optimisation with Continuous Approximations (ICML 2017, arXiv 1703.06240).

    Attributes:
        name: See `Curves`.
        widths: A of Hartmann's function, peaks x dimensions.
        peaks: P, peaks x dimensions.
        best: See `Curves`.
    """

    name: str
    widths: Sequence[Sequence[float]]
    peaks: Sequence[Sequence[float]]
    best: float

    @property
    def space(self) -> Space:
        """The unit cube."""
        return Space({f"x{axis}": Float(0.0, 1.0) for axis in range(len(self.widths[0]))})

    def value(self, params: Mapping[str, Any], steps: int) -> float:
        """Return the value of a configuration after a number of steps; see `Curves`."""
        offsets = np.array(list(params.values())) - np.array(self.peaks)
        weights = _WEIGHTS - _BIAS * (1 - steps / MAX_STEPS)
        return -float(weights @ np.exp(-(np.array(self.widths) * offsets**2).sum(axis=1)))


CURVES: tuple[Curves, ...] = (
    Hartmann(
        "MF-Hartmann 3",
        ((3, 10, 30), (0.1, 10, 35), (3, 10, 30), (0.1, 10, 35)),
        (
            (0.3689, 0.1170, 0.2673),
            (0.4699, 0.4387, 0.7470),
            (0.1091, 0.8732, 0.5547),
            (0.0381, 0.5743, 0.8828),
        ),
        -3.86278,
    ),
    Hartmann(
        "MF-Hartmann 6",
        (
            (10, 3, 17, 3.5, 1.7, 8),
            (0.05, 10, 17, 0.1, 8, 14),
            (3, 3.5, 1.7, 10, 17, 8),
            (17, 8, 0.05, 10, 0.1, 14),
        ),
        (
            (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
            (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
            (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
            (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
        ),
        -3.32237,
    ),
    keras_curves.DigitsCurves(),
)
