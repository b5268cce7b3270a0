"""The plot of when each slot ran which trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiment.results.plotting.axes import mark_best
from experiment.results.scored_trials import ScoredTrials
from experiment.results.text import duration
from experiment.results.trial_times import TrialTime

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
    slots = sorted({slot for _, time in bars for slot in _slots(time)}, key=_in_order)
    lanes = {slot: lane for lane, slot in enumerate(slots)}
    first = min((time.start for _, time in bars), default=0.0)
    last = max((time.end for _, time in bars), default=1.0)
    for status, colour in _COLOURS.items():
        some = [time for trial, time in bars if trial.status == status]
        lane_of = [(lanes[slot], time.start, time.end) for time in some for slot in _slots(time)]
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
        places = [lanes[slot] for slot in _slots(time)]
        mark_best(ax, [middle] * len(places), places, "best trial")
    busy = sum((time.end - time.start) * len(time.slots) for _, time in bars)
    there = _time_of_slots([time for _, time in bars])
    use = busy / there if there else 0.0
    ax.set_yticks(range(len(slots)), [slot for _, slot in slots])
    ax.invert_yaxis()
    ax.set(xlabel="seconds since the first trial", ylabel="slot")
    ax.set_title(f"Trials by slot: {duration(last - first)}, {use:.0%} of the slots' time used")
    if bars:
        ax.legend()


def _slots(time: TrialTime) -> list[tuple[int, str]]:
    """Return the slots of a trial, each with the number of its application."""
    return [(time.application, slot) for slot in time.slots]


def _time_of_slots(times: Sequence[TrialTime]) -> float:
    """Return the seconds of all slots, each from its first trial to its application's last one.

    A slot that has replaced a lost one is the next attempt at the same task, and counts with it.
    """
    starts: dict[tuple[int, str], float] = {}
    ends: dict[int, float] = {}
    for time in times:
        ends[time.application] = max(time.end, ends.get(time.application, time.end))
        for application, slot in _slots(time):
            task = application, slot.rpartition(".")[0]
            starts[task] = min(time.start, starts.get(task, time.start))
    return sum(ends[application] - start for (application, _), start in starts.items())


def _in_order(slot: tuple[int, str]) -> tuple[int, list[int]]:
    application, name = slot
    return application, [int(part) for part in name.split(".")]
