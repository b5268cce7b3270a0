"""The plot of when each slot ran which trial."""

from __future__ import annotations

from typing import Any

from experiment.results.plotting.axes import mark_best
from experiment.results.scored_trials import ScoredTrials
from experiment.results.text import duration

_COLOURS = {
    "finished": "tab:blue",
    "stopped": "tab:purple",
    "failed": "tab:red",
    "cancelled": "tab:gray",
}


def draw_timeline(result: ScoredTrials, ax: Any) -> None:
    """Draw a lane per slot, with a bar for the last attempt at each trial; mark the best trial.

    Trials without times, of an outcome that was found in a trial folder, are left out.
    """
    bars = [(t, time) for t in result.trials if (time := result.time_of(t)) and time.slots]
    slots = sorted({slot for _, time in bars for slot in time.slots}, key=_in_order)
    lanes = {slot: lane for lane, slot in enumerate(slots)}
    first = min((time.start for _, time in bars), default=0.0)
    last = max((time.end for _, time in bars), default=1.0)
    for status, colour in _COLOURS.items():
        some = [time for trial, time in bars if trial.status == status]
        lane_of = [(lanes[slot], time.start, time.end) for time in some for slot in time.slots]
        ax.barh(
            [lane for lane, *_ in lane_of],
            [end - start for _, start, end in lane_of],
            left=[start - first for _, start, _ in lane_of],
            color=colour,
            edgecolor="white",
            linewidth=0.5,
            label=status,
        )
    best = None if result.objectives else result.best
    middles = [((time.start + time.end) / 2 - first, time) for trial, time in bars if trial is best]
    for middle, time in middles:
        mark_best(ax, [middle] * len(time.slots), [lanes[s] for s in time.slots], "best trial")
    busy = sum((time.end - time.start) * len(time.slots) for _, time in bars)
    use = busy / ((last - first) * len(slots)) if slots and last > first else 0.0
    ax.set_yticks(range(len(slots)), slots)
    ax.invert_yaxis()
    ax.set(xlabel="seconds since the first trial", ylabel="slot")
    ax.set_title(f"Trials by slot: {duration(last - first)}, {use:.0%} of the slots' time used")
    if bars:
        ax.legend()


def _in_order(slot: str) -> list[int]:
    return [int(part) for part in slot.split(".")]
