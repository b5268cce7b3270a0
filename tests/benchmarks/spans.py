"""Where the time of a short search goes, from the call to its return: a part of `make bench`.

A process of its own runs searches of two trials that do nothing, with TensorFlow preloaded. The
module `span_marks/sitecustomize.py` records the parts, in the driver and on the executor.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

import experiment
from tests import ROOT
from tests.benchmarks.sessions import session

_SEARCHES = 6
_MARKS = Path(__file__).parent / "span_marks"
_LEAST = 0.005  # seconds of a part that is shown


class Span(msgspec.Struct, frozen=True):
    """A part of a search.

    Attributes:
        name: Its name.
        begin: Its begin, seconds since 1970.
        end: Its end.
        pid: The process.
    """

    name: str
    begin: float
    end: float
    pid: int


class Call(msgspec.Struct, frozen=True):
    """A search.

    Attributes:
        begin: Time of the call, seconds since 1970.
        end: Time of its return.
        lines: Time of each trial's first line.
    """

    begin: float
    end: float
    lines: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A part of one search, in milliseconds.

    Attributes:
        name: Its name.
        at: From the call to its begin; of several processes, of the first one.
        took: Its duration; of several processes, the longest.
    """

    name: str
    at: float
    took: float


def rows_of(call: Call, spans: Iterable[Span]) -> list[Row]:
    """Return the parts of a search, in the order of their begin."""
    found: dict[str, list[Span]] = {}
    for span in spans:
        if call.begin <= span.begin <= call.end:
            found.setdefault(span.name, []).append(span)
    trials = max((span.end for span in found.get("zygote: trial", ())), default=call.end)
    rows = [
        Row(
            name,
            1000 * (min(span.begin for span in same) - call.begin),
            1000 * max(span.end - span.begin for span in same),
        )
        for name, same in found.items()
    ]
    rows += [
        Row(
            "**from the call to the first trial's first line**", 0, _ms(call.begin, min(call.lines))
        ),
        Row(
            "**from the last trial's end to the return**",
            _ms(call.begin, trials),
            _ms(trials, call.end),
        ),
    ]
    return sorted(rows, key=lambda row: row.at)


def _ms(begin: float, end: float) -> float:
    return 1000 * (end - begin)


def medians(searches: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the median of each part that most of these searches have."""
    same: dict[str, list[Row]] = {}
    for rows in searches:
        for row in rows:
            same.setdefault(row.name, []).append(row)
    found = [
        Row(name, statistics.median(r.at for r in rows), statistics.median(r.took for r in rows))
        for name, rows in same.items()
        if len(rows) > len(searches) / 2
    ]
    return sorted(found, key=lambda row: row.at)


def table(title: str, rows: Iterable[Row]) -> str:
    """Return rows as a table, without parts that take next to no time."""
    lines = [f"| {title} | begins after, ms | takes, ms |", "| --- | --- | --- |"]
    for row in rows:
        if row.took >= 1000 * _LEAST or row.name.startswith("**"):
            lines.append(f"| {row.name} | {row.at:.0f} | {row.took:.0f} |")
    return "\n".join(lines)


def measure() -> tuple[list[Row], list[Row]]:
    """Return the parts of the first search of a session, and the medians of later ones."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = Path(folder, "spans")
        path = os.pathsep.join((str(_MARKS), str(ROOT)))
        ended = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.spans"],
            env=os.environ | {"SPANS": str(recorded), "PYTHONPATH": path},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
        )
        calls = msgspec.json.decode(ended.stdout.splitlines()[-1], type=list[Call])
        lines = recorded.read_bytes().splitlines()
    spans = [msgspec.json.decode(line, type=Span) for line in lines]
    first, *later = (rows_of(call, spans) for call in calls)
    return first, medians(later)


def _now(trial: int) -> float:
    return time.time()


def _run_searches() -> list[Call]:
    spark = session(2)
    calls = []
    for _ in range(_SEARCHES):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.time()
            result = experiment.launch(
                spark, _now, {"trial": [1, 2]}, logdir=folder, preload=("tensorflow",), verbose=0
            )
            end = time.time()
        calls.append(Call(begin, end, tuple(trial.value for trial in result.trials)))
    spark.stop()
    return calls


if __name__ == "__main__":
    print(msgspec.json.encode(_run_searches()).decode())
