"""The report of a benchmark, as a page in Markdown."""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Iterable, Sequence

from tests.benchmarks.peers.roster import Entry
from tests.benchmarks.peers.runner import Run
from tests.benchmarks.peers.tasks import Column, Task

_LONGEST = 160  # characters of an error


@dataclasses.dataclass(frozen=True)
class Circumstances:
    """Where, when and how a benchmark ran.

    Attributes:
        date: The day on which it ended, as YYYY-MM-DD.
        rounds: The number of rounds that began.
        quick: Whether the settings were those of quick runs.
        ended: Whether the last round ended; it may have been interrupted.
        cores: Processor cores of the machine.
        python: The version of Python.
        versions: Packages of the peers and their versions.
    """

    date: str
    rounds: int
    quick: bool
    ended: bool
    cores: int
    python: str
    versions: Sequence[str]


def page(
    entries: Sequence[Entry],
    tasks: Sequence[Task],
    runs: Sequence[Run],
    about: Circumstances,
    picture: str,
) -> str:
    """Return the whole page.

    Args:
        entries: The peers, in the order of their notes.
        tasks: What they did.
        runs: What it came to.
        about: The circumstances.
        picture: The picture's path, relative to the page.
    """
    timed = [task for task in tasks if task.kind != "fault"]
    faults = [task for task in tasks if task.kind == "fault"]
    parts = [
        "# Beside other libraries",
        _introduction(runs, about),
        f"![Medians of four tasks, with the least and the most]({picture})",
    ]
    for task in timed:
        parts += [f"## {task.title}", task.text, table(task, entries, runs)]
    if faults:
        text = f"{_OF_FAULTS} {_rounds(faults, runs)}"
        parts += ["## A trial that goes wrong", text, fault_table(faults, entries, runs)]
    parts += ["## What the rows are", notes(entries), f"Versions: {', '.join(about.versions)}."]
    return "\n\n".join(part for part in parts if part) + "\n"


_OF_FAULTS = (
    "Eight trials on 2 slots, of which the fourth goes wrong: what became of the call, and how "
    "many of the other seven trials ran to their end. In the last column, ours has a time limit of "
    "30 s for each trial, which `isolation='none'` cannot have; other libraries have it for the "
    "search, or for waiting, if they offer that. *Hung*: 90 s after its start the call had not "
    "returned, or the session not ended."
)


def _rounds(tasks: Iterable[Task], runs: Iterable[Run]) -> str:
    """Return a sentence on the rounds of tasks with a fault, which may be fewer than of others."""
    names = {task.name for task in tasks}
    counted = collections.Counter((run.peer, run.task) for run in runs if run.task in names)
    most = max(counted.values(), default=0)
    if most == 1:
        return "One round."
    return f"{most} rounds; those that came to different ends are counted."


def _introduction(runs: Iterable[Run], about: Circumstances) -> str:
    others = [run.measured["others"] for run in runs if run.measured and "others" in run.measured]
    load = (
        f"Other work kept {statistics.median(others):.2f} of {about.cores} cores busy (median of "
        f"the runs; at most {max(others):.2f})."
        if others
        else ""
    )
    quick = (
        "\n\n**This was a quick run, which only shows that all works: its trials are few and "
        "short. Do not compare its values.**"
        if about.quick
        else ""
    )
    last = "" if about.ended else ", the last one interrupted"
    plural = "s" if about.rounds > 1 else ""
    return (
        f"`make bench-peers` wrote this page on {about.date}: {about.rounds} round{plural}{last}, "
        f"{about.cores} cores, Python {about.python}. {load} A round runs each task of each "
        "library once, in processes of their own, which end before the next one begins. A value is "
        f"the median, in brackets the least and the most.{quick}"
    )


def table(task: Task, entries: Sequence[Entry], runs: Sequence[Run]) -> str:
    """Return the table of a task: the best first, those with an error last."""
    rows, failed = [], []
    for entry in entries:
        mine = [run for run in runs if (run.peer, run.task) == (entry.name, task.name)]
        measured = [run.measured for run in mine if run.measured]
        errors = [run.error for run in mine if run.error]
        if measured:
            cells = [
                cell([one[column.key] for one in measured if column.key in one], column)
                for column in task.columns
            ]
            if errors:
                cells[0] += f"; {len(errors)} of {len(mine)} runs: {clipped(errors[-1])}"
            middle = statistics.median(one[task.columns[0].key] for one in measured)
            rows.append((-middle if task.more_is_better else middle, [_name(entry), *cells]))
        elif errors:
            failed.append([_name(entry), clipped(errors[-1]), *[""] * (len(task.columns) - 1)])
    ordered = [row for _, row in sorted(rows, key=lambda row: row[0])]
    return markdown(["", *(column.heading for column in task.columns)], ordered + failed)


def fault_table(tasks: Sequence[Task], entries: Sequence[Entry], runs: Sequence[Run]) -> str:
    """Return the table of what happened to a search with a bad trial."""
    rows = []
    for entry in entries:
        mine = [run for run in runs if run.peer == entry.name]
        found = [fates([run for run in mine if run.task == task.name]) for task in tasks]
        if any(found):
            rows.append([_name(entry), *found])
    headings = [task.title.removeprefix("One of eight trials ") for task in tasks]
    return markdown(["the trial", *headings], rows)


def fates(runs: Sequence[Run]) -> str:
    """Return what happened in the rounds of one task, the most frequent first; '' without runs."""
    counted = collections.Counter(fate(run) for run in runs).most_common()
    if len(counted) <= 1:
        return "".join(text for text, _ in counted)
    return ". ".join(f"{count} of {len(runs)} rounds: {text}" for text, count in counted)


def fate(run: Run) -> str:
    """Return what happened to a call with a bad trial, and to the seven others."""
    if run.measured is None:
        call = clipped(run.error)
    elif run.error:
        call = f"{run.measured['call']}, but the session's end: {clipped(run.error)}"
    else:
        call = run.measured["call"]
    return call if run.done is None else f"{call}; {run.done} of 7 ran"


def notes(entries: Iterable[Entry]) -> str:
    """Return a table of the rows that need an explanation."""
    return markdown(["row", "is"], [[_name(entry), entry.note] for entry in entries if entry.note])


def cell(values: Sequence[float], column: Column) -> str:
    """Return median, least and most of a value; empty without values, one if all are equal."""
    if not values:
        return ""
    digits = column.digits
    middle = f"{statistics.median(values):,.{digits}f}"
    least, most = f"{min(values):,.{digits}f}", f"{max(values):,.{digits}f}"
    return middle if least == most else f"{middle} ({least} to {most})"


def clipped(error: str) -> str:
    """Return an error as it fits into a cell of a table."""
    text = " ".join(error.split())
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    plain = text.replace("`", "'").replace("|", "/")
    return plain if plain in {"", "hung"} else f"`{plain}`"


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _name(entry: Entry) -> str:
    return f"**{entry.name}**" if entry.ours else entry.name
