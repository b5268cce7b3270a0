"""Plots of a result. They need matplotlib, an optional package that is imported when used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from experiment.results.plotting.axes import (
    INACTIVE,
    Axis,
    literal,
    mark_best,
    new_axes,
    score_limits,
)
from experiment.results.plotting.parameters import (
    draw_contour,
    draw_importance,
    draw_parameter,
    draw_slices,
)
from experiment.results.plotting.timeline import draw_timeline
from experiment.results.scored_trials import ScoredTrials
from search.direction import Direction
from search.errors import InvalidArgument, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from experiment.results.trial_result import TrialResult

    Scores = Sequence[tuple[TrialResult, float]]

Parameter: TypeAlias = str | tuple[str, str] | None
PlotKind = Literal[
    "convergence", "parallel", "parameter", "importance", "slice", "contour", "timeline"
]


def draw(result: ScoredTrials, kind: str, parameter: Parameter, ax: Any) -> Axes:
    """Draw a result; see `Result.plot`."""
    kinds = get_args(PlotKind)
    if kind not in kinds:
        raise InvalidArgument("kind", " or ".join(map(repr, kinds)), shown(kind))
    if result.objectives and kind != "timeline":
        got = ", ".join(map(repr, result.objectives))
        hint = f"use result.by({next(iter(result.objectives))!r}).plot(), or result.plot_front()"
        raise InvalidArgument("result", "one objective", got, hint)
    names = list(dict.fromkeys(name for trial in result.trials for name in trial.params))
    chosen = _chosen(kind, parameter, names)
    if kind == "slice":
        if ax is not None:
            raise InvalidArgument("ax", "None with kind='slice', which draws several", shown(ax))
        return draw_slices(result, names)
    axes: Axes = new_axes() if ax is None else ax
    if kind == "convergence":
        _convergence(result, axes)
    elif kind == "parallel":
        _parallel(result, names, axes)
    elif kind == "importance":
        draw_importance(result, axes)
    elif kind == "contour":
        draw_contour(result, chosen, axes)
    elif kind == "timeline":
        draw_timeline(result, axes)
    else:
        (name,) = chosen
        scores = [(t, value) for t, value in result.scores if name in t.params]
        _parameter(result, scores, name, axes)
    return axes


def _chosen(kind: str, parameter: Parameter, names: Sequence[str]) -> Sequence[str]:
    """Return the hyperparameters that the user chose, or those that may be meant."""
    known = " or ".join(map(repr, names)) or "a search with a trial"
    if kind == "contour":
        chosen = tuple(parameter) if isinstance(parameter, tuple | list) else ()
        fits = len(chosen) == 2 and all(name in names for name in chosen)
        if (parameter is not None and not fits) or len(names) < 2:
            raise InvalidArgument("parameter", f"two of {known}", shown(parameter))
        return chosen or names
    if kind != "parameter":
        if parameter is not None:
            raise InvalidArgument("parameter", f"None with kind={kind!r}", shown(parameter))
        return ()
    if parameter is None and len(names) == 1:
        return names
    if parameter not in names:
        raise InvalidArgument("parameter", known, shown(parameter))
    return (str(parameter),)


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
    axes: Axes = new_axes() if ax is None else ax
    front = {trial.id for trial in result.front}
    for trials, label in (
        ([t for t in result.trials if t.values and t.id not in front], "trial"),
        (result.front, "front"),
    ):
        axes.scatter([t.values[x] for t in trials], [t.values[y] for t in trials], label=label)
    axes.set(xlabel=literal(titles[x]), ylabel=literal(titles[y]))
    axes.legend()
    return axes


def _convergence(result: ScoredTrials, ax: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    direction = Direction.parse(result.direction)
    best: list[float] = []
    for _, value in result.scores:
        best.append(value if not best or direction.better(value, best[-1]) else best[-1])
    numbers = [trial.id for trial, _ in result.scores]
    ax.plot(numbers, [value for _, value in result.scores], "o", alpha=0.5, label="trial")
    ax.step(numbers, best, where="post", label="best so far")
    if result.best is not None:
        mark_best(ax, [result.best.id], best[-1:], "best trial")
    if result.failed:  # they have no value: drawn at the lower edge
        bottom, edge = [0.02] * len(result.failed), ax.get_xaxis_transform()
        failed = [trial.id for trial in result.failed]
        ax.plot(failed, bottom, "x", color="tab:red", transform=edge, label="failed")
    ax.set(xlabel="trial", ylabel=literal(result.objective_title))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if best:
        ax.set_ylim(*score_limits([value for _, value in result.scores], direction))
    ax.set_title(literal(f"Best {result.objective_title} so far"))
    ax.legend()


def _parameter(result: ScoredTrials, scores: Scores, name: str, ax: Any) -> None:
    draw_parameter(result, scores, name, ax)
    ax.figure.colorbar(ax.collections[-1], ax=ax).set_label("trial")
    ax.set_ylabel(literal(result.objective_title))
    if scores:
        direction = Direction.parse(result.direction)
        ax.set_ylim(*score_limits([value for _, value in scores], direction))
    ax.set_title(literal(f"{result.objective_title} by {name}; star: the best trial"))


def _parallel(result: ScoredTrials, names: list[str], ax: Any) -> None:
    from matplotlib.collections import LineCollection

    scores = result.scores
    has = [[name in trial.params for trial, _ in scores] for name in names]
    values = [[t.params[name] for t, _ in scores if name in t.params] for name in names]
    axes = [Axis(result, name, some) for name, some in zip(names, values, strict=True)]
    columns = [axis.heights_of(there) for axis, there in zip(axes, has, strict=True)]
    shown = [value for _, value in scores]
    low, high = score_limits(shown or [0.0], Direction.parse(result.direction))
    beyond = "min" if min(shown, default=low) < low else "max"
    beyond = beyond if any(not low <= value <= high for value in shown) else "neither"
    shown = [min(max(value, low), high) for value in shown]  # outliers are at the edge
    axes.append(Axis(result, None, shown))
    columns.append(axes[-1].heights)
    lines = [list(enumerate(heights)) for heights in zip(*columns, strict=True)]
    collection = LineCollection(lines, cmap="viridis", linewidths=1.2, alpha=0.7)
    collection.set_array(shown)
    ax.add_collection(collection)
    best = result.best
    for (trial, _), line in zip(scores, lines, strict=True):
        if trial is best:
            across, heights = zip(*line, strict=True)
            ax.plot(across, heights, color="tab:red", linewidth=2)
            mark_best(ax, across[-1:], heights[-1:])
    inactive = [(INACTIVE, "not given" if result.space is None else "inactive")]
    for place, axis in enumerate(axes):
        ax.axvline(place, color="black", linewidth=0.8)
        lacking = inactive if INACTIVE in columns[place] else []
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
    titles = [literal(name) + axis.unit for name, axis in zip(names, axes, strict=False)]
    ax.set_xticks(range(len(axes)), [*titles, literal(result.objective_title)])
    lowest = min(map(min, columns)) if scores else 0.0
    ax.set(xlim=(-0.2, len(axes) - 0.6), ylim=(lowest - 0.05, 1.05), yticks=[])
    bar = ax.figure.colorbar(collection, ax=ax, extend=beyond)
    bar.set_label(literal(result.objective_title))
    ax.set_title(literal(f"{result.objective_title} by all hyperparameters; star: the best trial"))
