"""The picture of a benchmark: a chart per task, with a line from the least to the most."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.roster import Entry
from tests.benchmarks.peers.runner import Run

_CHARTS = (
    ("null", "ms", "Trials that do nothing: ms a trial"),
    ("start", "second", "Two trials, second call of a session: s"),
    ("keras", "warm", "12 Keras trials, second call of a session: s"),
    ("sleeps", "use", "60 sleeps on 4 slots: use of the slots"),
)
"""Task, value, title."""

_LOGARITHMIC = {"ms", "second"}

_OURS, _OTHERS = "#c44e52", "#4c72b0"


def draw(path: Path, entries: Sequence[Entry], runs: Sequence[Run]) -> None:
    """Write the picture as SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Text stays text, and the same values make the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "peers"}):
        figure = Figure(figsize=(11, 3 + 0.44 * len(entries)), layout="constrained")
        for axes, (task, key, title) in zip(figure.subplots(2, 2).flat, _CHARTS, strict=True):
            _chart(axes, values_of(task, key, entries, runs))
            axes.set_title(title, fontsize=10)
            if key in _LOGARITHMIC:
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter("{x:g}")
            else:
                axes.set_xlim(left=0)
        figure.savefig(path, format="svg", metadata={"Date": None})


def values_of(
    task: str, key: str, entries: Sequence[Entry], runs: Sequence[Run]
) -> list[tuple[Entry, list[float]]]:
    """Return a value of all runs of each peer that has one; the best median first."""
    found = [
        (
            entry,
            [
                run.measured[key]
                for run in runs
                if (run.peer, run.task) == (entry.name, task) and run.measured
            ],
        )
        for entry in entries
    ]
    return sorted(
        [(entry, values) for entry, values in found if values],
        key=lambda pair: statistics.median(pair[1]),
        reverse=key == "use",
    )


def _chart(axes: Any, rows: Sequence[tuple[Entry, list[float]]]) -> None:
    for row, (entry, values) in enumerate(rows):
        color = _OURS if entry.ours else _OTHERS
        axes.plot([min(values), max(values)], [row, row], color=color, linewidth=2)
        axes.plot(statistics.median(values), row, "o", color=color)
    axes.set_yticks(range(len(rows)), [entry.name for entry, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
