"""Plots of hyperparameters: their importance, the objective by each one and by two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiment.results.importance import importance_of
from experiment.results.plotting.axes import Axis, literal, mark_best, new_axes, score_limits
from experiment.results.scored_trials import ScoredTrials
from search.direction import Direction

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from experiment.results.trial_result import TrialResult

_ACROSS = 4  # panels beside each other
_CELLS = 60  # of each axis of a contour
_WIDTH = 0.08  # of the kernel that smooths a contour, as a share of an axis
_NEAR = 0.05  # sum of the kernels below which nothing is drawn


def draw_importance(result: ScoredTrials, ax: Any) -> None:
    """Draw a bar per hyperparameter, the most important first."""
    shares = importance_of(result)
    names = [literal(name) for name in shares]
    bars = ax.barh(range(len(names)), list(shares.values()))
    ax.bar_label(bars, [f"{share:.0%}" for share in shares.values()], padding=3)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set(xlim=(0, 1.1), xlabel="share of the importance (PED-ANOVA)")
    ax.set_title(literal(f"Importance for {result.objective_title}"))


def draw_parameter(
    result: ScoredTrials,
    scores: Sequence[tuple[TrialResult, float]],
    name: str,
    ax: Any,
    *,
    size: float | None = None,
) -> None:
    """Draw the objective by a hyperparameter: a point per trial that has it, a star for the best.

    `size` is the area of a point in square points; None for matplotlib's default.
    """
    axis = Axis(result, name, [trial.params[name] for trial, _ in scores])
    values, numbers = [value for _, value in scores], [trial.id for trial, _ in scores]
    ax.scatter(axis.positions, values, c=numbers, s=size, label="trial")
    best = result.best
    for position, (trial, value) in zip(axis.positions, scores, strict=True):
        if trial is best:  # none if the best trial lacks the hyperparameter
            mark_best(ax, [position], [value])
    ax.set_xlabel(literal(name) + axis.unit)
    axis.mark(ax, "x")


def draw_slices(result: ScoredTrials, names: Sequence[str]) -> Axes:
    """Draw a panel per hyperparameter, the most important first; return the first one."""
    ordered = _ranked(result, names) or [""]
    figure = new_axes().figure
    figure.clear()
    across = min(len(ordered), _ACROSS)
    rows = -(-len(ordered) // across)
    figure.set_size_inches(max(8.0, 3.2 * across), max(4.5, 3.0 * rows))
    panels = figure.subplots(rows, across, sharey=True, squeeze=False).ravel()
    for panel in panels[len(ordered) :]:
        panel.remove()
    for name, panel in zip(ordered, panels, strict=False):
        scores = [(trial, value) for trial, value in result.scores if name in trial.params]
        draw_parameter(result, scores, name, panel, size=14)
    if result.scores:
        direction = Direction.parse(result.direction)
        panels[0].set_ylim(*score_limits([value for _, value in result.scores], direction))
    panels[0].set_ylabel(literal(result.objective_title))
    figure.suptitle(literal(f"{result.objective_title} by hyperparameter; star: the best trial"))
    first: Axes = panels[0]
    return first


def draw_contour(result: ScoredTrials, names: Sequence[str], ax: Any) -> None:
    """Draw the objective by two hyperparameters: the trials, and their smoothed values.

    Args:
        result: The result.
        names: The hyperparameters; of more than two, the most important ones are drawn.
        ax: The axes.
    """
    across, up = names if len(names) == 2 else _ranked(result, names)[:2]
    scores = [(t, value) for t, value in result.scores if across in t.params and up in t.params]
    x = Axis(result, across, [trial.params[across] for trial, _ in scores])
    y = Axis(result, up, [trial.params[up] for trial, _ in scores])
    if scores:
        values = np.array([value for _, value in scores])
        low, high = score_limits([v for _, v in scores], Direction.parse(result.direction))
        colours = {"vmin": low, "vmax": high, "cmap": "viridis"}
        smooth = _smoothed(np.array(x.heights), np.array(y.heights), np.clip(values, low, high))
        edges = [axis.positions_of(np.linspace(0, 1, _CELLS)) for axis in (x, y)]
        mesh = ax.pcolormesh(*edges, smooth, alpha=0.6, shading="nearest", **colours)
        ax.scatter(x.positions, y.positions, c=values, edgecolors="white", s=26, **colours)
        best = result.best
        for (trial, _), right, top in zip(scores, x.positions, y.positions, strict=True):
            if trial is best:
                mark_best(ax, [right], [top], f"best: {best.score}")
                ax.legend(loc="upper left")  # looking for the best place may take seconds
        ax.figure.colorbar(mesh, ax=ax).set_label(literal(result.objective_title))
    ax.set(xlabel=literal(across) + x.unit, ylabel=literal(up) + y.unit)
    x.mark(ax, "x")
    y.mark(ax, "y")
    ax.set_title(literal(f"{result.objective_title} by {across} and {up}"))


def _ranked(result: ScoredTrials, names: Sequence[str]) -> list[str]:
    """Return hyperparameters, the most important first."""
    shares = importance_of(result)
    return sorted(names, key=lambda name: -shares.get(name, 0.0))


def _smoothed(x: Any, y: Any, values: Any) -> Any:
    """Return the kernel-weighted means of values on a grid of the unit square."""
    grid = np.linspace(0, 1, _CELLS)
    across = np.exp(-(((grid[:, None] - x) / _WIDTH) ** 2) / 2)
    up = np.exp(-(((grid[:, None] - y) / _WIDTH) ** 2) / 2)
    weights = up @ across.T
    largest = np.abs(values).max() or 1.0  # the sums of huge values overflow
    means = (up * (values / largest)) @ across.T / np.maximum(weights, 1e-300) * largest
    return np.ma.masked_where(weights < _NEAR, means)
