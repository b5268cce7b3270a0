"""Axes of plots: of hyperparameters and of the objective."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from experiment.results.scored_trials import ScoredTrials
from experiment.results.text import hyperparameter, printable
from search.direction import Direction
from search.space.spaces import Choice, Float, Integer
from search.values import is_finite

MOST_TICKS = 12  # ticks of an axis of choices
INACTIVE = -0.1  # height of a trial's line at the axis of a hyperparameter that it lacks
_SHOWN = 0.9  # share of the trials, the best ones, that limits leave in view


class Axis:
    """An axis for a hyperparameter, or for the objective if there is no name.

    Attributes:
        positions: The positions of the values, in order: numbers, or indices of choices.
        ticks: Position and text of each choice, in the order of the domain; empty for numbers.
        log: Whether the scale is logarithmic.
        unit: The suffix of the name.
    """

    def __init__(self, result: ScoredTrials, name: str | None, values: list[Any]) -> None:
        domain = None if result.space is None or name is None else result.space.get(name)
        self.log = isinstance(domain, Float | Integer) and domain.log
        self.unit = " (log)" if self.log else ""
        self.ticks: list[tuple[float, str]] = []
        if all(is_finite(value) for value in values):
            self.positions = [float(value) for value in values]
        else:
            # By their repr: 1, True and 1.0 are three values here.
            known = {repr(value): value for value in values}
            if isinstance(domain, Choice) and all(value in domain for value in known.values()):
                known = dict(sorted(known.items(), key=lambda item: domain.index(item[1])))
            order = {key: float(place) for place, key in enumerate(known)}
            self.positions = [order[repr(value)] for value in values]
            ticks = [(order[k], literal(hyperparameter(v, 20))) for k, v in known.items()]
            self.ticks = ticks[:MOST_TICKS]
        scaled = [math.log(p) for p in self.positions] if self.log else self.positions
        self._low = min(scaled, default=0.0)
        self._high = max(scaled, default=1.0)
        self.heights = [self._height(position) for position in scaled]

    def _height(self, scaled: float) -> float:
        span = self._high / 2 - self._low / 2  # halves: the span of two huge values overflows
        return (scaled / 2 - self._low / 2) / span if span > 0 else 0.5

    def positions_of(self, heights: Any) -> Any:
        """Return the positions at heights, from 0 to 1; an array for an array."""
        low, high = self._low, self._high
        if low == high:  # a constant is in the middle
            low, high = low - 0.5, high + 0.5
        scaled = low * (1 - heights) + high * heights
        return np.exp(scaled) if self.log else scaled

    def mark(self, ax: Any, which: Literal["x", "y"]) -> None:
        """Give the x axis or the y axis of a plot this axis' scale and choices."""
        if self.ticks:
            getattr(ax, f"set_{which}ticks")(*zip(*self.ticks, strict=True))
        elif self.log:
            getattr(ax, f"set_{which}scale")("log")

    def heights_of(self, there: Sequence[bool]) -> list[float]:
        """Return the height of each trial; below the axis without the hyperparameter."""
        heights = iter(self.heights)
        return [next(heights) if has else INACTIVE for has in there]

    def labels(self) -> list[tuple[float, str]]:
        """Return the texts along the axis with their heights."""
        if self.ticks:
            return [(self._height(position), text) for position, text in self.ticks]
        ends = [self._low, self._low / 2 + self._high / 2, self._high]
        ends = ends if self._high > self._low else ends[:1]
        return [(self._height(x), f"{math.exp(x) if self.log else x:.4g}") for x in ends]


def score_limits(values: Sequence[float], direction: Direction) -> tuple[float, float]:
    """Return the limits of an axis of scores, which outliers do not rule.

    The best two values and all but the worst tenth are in view; all values if that saves little.

    Args:
        values: The values; at least one.
        direction: Their direction.
    """
    ranked = sorted(values, key=direction.merit, reverse=True)
    last = len(ranked) - 1
    best, worst, typical = ranked[0], ranked[-1], ranked[min(last, max(1, int(last * _SHOWN)))]
    # Halves do not overflow; 2.001 rather than 2, so that rounding hides none of three even values.
    if abs(worst / 2 - best / 2) <= 2.001 * abs(typical / 2 - best / 2):
        typical = worst
    low, high = min(best, typical), max(best, typical)
    margin = (high / 2 - low / 2) / 10 or abs(high) / 20 or 1.0
    return max(low - margin, -sys.float_info.max), min(high + margin, sys.float_info.max)


def mark_best(ax: Any, across: Sequence[float], up: Sequence[float], label: str = "") -> None:
    """Mark the best trial with a star at one place or several, above all else in a plot."""
    ax.plot(across, up, "*", color="tab:red", markersize=12, zorder=3, label=label or None)


def new_axes() -> Any:
    """Return the axes of a new figure; ImportError without matplotlib."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plot() needs matplotlib: pip install matplotlib") from error
    return pyplot.subplots(figsize=(8, 4.5), layout="constrained")[1]


def literal(text: str) -> str:
    """Return text that matplotlib shows literally, without formulas between dollar signs."""
    return printable(text).replace("$", r"\$")
