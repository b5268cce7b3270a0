"""Plots of a result. They need matplotlib, an optional package that is imported when used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from experiment.results.scored_trials import ScoredTrials
from experiment.results.text import hyperparameter, printable
from search.direction import Direction
from search.errors import InvalidArgument, shown
from search.space.spaces import Float, Integer
from search.values import is_finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from experiment.results.trial_result import TrialResult

    Scores = Sequence[tuple[TrialResult, float]]

PlotKind = Literal["convergence", "parallel", "parameter"]

_MOST_TICKS = 12  # ticks of an axis of choices
_INACTIVE = -0.1  # height of a trial's line at the axis of a hyperparameter that it lacks


def draw(result: ScoredTrials, kind: str, parameter: str | None, ax: Any) -> Axes:
    """Draw a result; see `Result.plot`."""
    kinds = get_args(PlotKind)
    if kind not in kinds:
        raise InvalidArgument("kind", " or ".join(map(repr, kinds)), shown(kind))
    if result.objectives:
        got = ", ".join(map(repr, result.objectives))
        hint = f"use result.by({next(iter(result.objectives))!r}).plot(), or result.plot_front()"
        raise InvalidArgument("result", "one objective", got, hint)
    names = list(dict.fromkeys(name for trial in result.trials for name in trial.params))
    if parameter is not None and kind != "parameter":
        raise InvalidArgument("parameter", f"None with kind={kind!r}", shown(parameter))
    if kind == "parameter":
        if parameter is None and len(names) == 1:
            parameter = names[0]
        if parameter not in names:
            known = " or ".join(map(repr, names)) or "a search with a trial"
            raise InvalidArgument("parameter", known, shown(parameter))
    if ax is None:
        ax = _new_axes()
    if kind == "convergence":
        _convergence(result, ax)
    elif kind == "parallel":
        conditional = () if result.space is None else result.space.conditional
        needed = [name for name in names if name not in conditional]
        scores = [(t, value) for t, value in result.scores if all(n in t.params for n in needed)]
        _parallel(result, scores, names, ax)
    else:
        scores = [(t, value) for t, value in result.scores if parameter in t.params]
        _parameter(result, scores, str(parameter), ax)
    axes: Axes = ax
    return axes


def draw_front(result: ScoredTrials, across: str | None, up: str | None, ax: Any) -> Axes:
    """Draw two objectives of a result; see `Result.plot_front`."""
    titles = dict(zip(result.objectives, result.objective_titles, strict=False))
    if not titles:
        raise InvalidArgument("result", "several objectives", repr(result.objective))
    x = next(iter(titles)) if across is None else across
    y = next(name for name in titles if name != x) if up is None else up
    for argument, name in (("across", x), ("up", y)):
        if name not in titles:
            raise InvalidArgument(argument, " or ".join(map(repr, titles)), shown(name))
    axes: Axes = _new_axes() if ax is None else ax
    front = {trial.id for trial in result.front}
    for trials, label in (
        ([t for t in result.trials if t.values and t.id not in front], "trial"),
        (result.front, "front"),
    ):
        axes.scatter([t.values[x] for t in trials], [t.values[y] for t in trials], label=label)
    axes.set(xlabel=_literal(titles[x]), ylabel=_literal(titles[y]))
    axes.legend()
    return axes


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "plot() needs matplotlib: pip install matplotlib, or this package with its extra 'plot'"
        ) from error
    return pyplot.subplots(figsize=(8, 4.5), layout="constrained")[1]


def _convergence(result: ScoredTrials, ax: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    direction = Direction.parse(result.direction)
    best: list[float] = []
    for _, value in result.scores:
        best.append(value if not best or direction.better(value, best[-1]) else best[-1])
    numbers = [trial.id for trial, _ in result.scores]
    ax.plot(numbers, [value for _, value in result.scores], "o", alpha=0.5, label="trial")
    ax.step(numbers, best, where="post", label="best so far")
    if result.failed:  # they have no value: drawn at the lower edge
        bottom, edge = [0.02] * len(result.failed), ax.get_xaxis_transform()
        failed = [trial.id for trial in result.failed]
        ax.plot(failed, bottom, "x", color="tab:red", transform=edge, label="failed")
    ax.set(xlabel="trial", ylabel=_literal(result.objective_title))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend()


def _parameter(result: ScoredTrials, scores: Scores, name: str, ax: Any) -> None:
    axis = _Axis(result, name, [trial.params[name] for trial, _ in scores])
    ax.scatter(axis.positions, [value for _, value in scores], c=[t.id for t, _ in scores])
    ax.collections[-1].set_label("trial")
    bar = ax.figure.colorbar(ax.collections[-1], ax=ax)
    bar.set_label("trial")
    ax.set(xlabel=_literal(name) + axis.unit, ylabel=_literal(result.objective_title))
    if axis.ticks:
        ax.set_xticks(*zip(*axis.ticks, strict=True))
    elif axis.log:
        ax.set_xscale("log")


def _parallel(result: ScoredTrials, scores: Scores, names: list[str], ax: Any) -> None:
    from matplotlib.collections import LineCollection

    has = [[name in trial.params for trial, _ in scores] for name in names]
    values = [[t.params[name] for t, _ in scores if name in t.params] for name in names]
    axes = [_Axis(result, name, some) for name, some in zip(names, values, strict=True)]
    columns = [axis.heights_of(there) for axis, there in zip(axes, has, strict=True)]
    axes.append(_Axis(result, None, [value for _, value in scores]))
    columns.append(axes[-1].heights)
    lines = [list(enumerate(heights)) for heights in zip(*columns, strict=True)]
    collection = LineCollection(lines, cmap="viridis", linewidths=1.2, alpha=0.7)
    collection.set_array([value for _, value in scores])
    ax.add_collection(collection)
    inactive = [(_INACTIVE, "inactive")]
    for place, axis in enumerate(axes):
        ax.axvline(place, color="black", linewidth=0.8)
        lacking = inactive if _INACTIVE in columns[place] else []
        for height, text in [*axis.labels(), *lacking]:
            ax.annotate(
                text,
                (place, height),
                xytext=(4, 0),
                textcoords="offset points",
                fontsize=8,
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1},
            )
    titles = [_literal(name) + axis.unit for name, axis in zip(names, axes, strict=False)]
    ax.set_xticks(range(len(axes)), [*titles, _literal(result.objective_title)])
    lowest = min(map(min, columns)) if scores else 0.0
    ax.set(xlim=(-0.2, len(axes) - 0.6), ylim=(lowest - 0.05, 1.05), yticks=[])
    ax.figure.colorbar(collection, ax=ax).set_label(_literal(result.objective_title))


class _Axis:
    """An axis for a hyperparameter, or for the objective if there is no name.

    Attributes:
        positions: The positions of the values, in order: numbers, or indices of choices.
        ticks: Position and text of each choice; empty for numbers.
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
            order = {key: float(place) for place, key in enumerate(known)}
            self.positions = [order[repr(value)] for value in values]
            ticks = [(order[k], _literal(hyperparameter(v, 20))) for k, v in known.items()]
            self.ticks = ticks[:_MOST_TICKS]
        scaled = [math.log(p) for p in self.positions] if self.log else self.positions
        self._low = min(scaled, default=0.0)
        self._high = max(scaled, default=1.0)
        self.heights = [self._height(position) for position in scaled]

    def _height(self, scaled: float) -> float:
        span = self._high / 2 - self._low / 2  # halves: the span of two huge values overflows
        return (scaled / 2 - self._low / 2) / span if span > 0 else 0.5

    def heights_of(self, there: Sequence[bool]) -> list[float]:
        """Return the height of each trial; below the axis without the hyperparameter."""
        heights = iter(self.heights)
        return [next(heights) if has else _INACTIVE for has in there]

    def labels(self) -> list[tuple[float, str]]:
        """Return the texts along the axis with their heights."""
        if self.ticks:
            return [(self._height(position), text) for position, text in self.ticks]
        ends = [self._low, self._low / 2 + self._high / 2, self._high]
        ends = ends if self._high > self._low else ends[:1]
        return [(self._height(x), f"{math.exp(x) if self.log else x:.4g}") for x in ends]


def _literal(text: str) -> str:
    """Return text that matplotlib shows literally, without formulas between dollar signs."""
    return printable(text).replace("$", r"\$")
