"""Command line of the benchmark: `make bench-peers`, or with options, see `--help`."""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from tests import ROOT
from tests.benchmarks.peers import report, roster, runner, tasks
from tests.benchmarks.peers.environments import versions_of
from tests.benchmarks.peers.picture import draw
from tests.benchmarks.peers.roster import Entry
from tests.benchmarks.peers.runner import Run
from tests.benchmarks.peers.tasks import Task
from tests.benchmarks.printed import printed

_PAGE = ROOT / "build" / "peers.md"
_ROUNDS = 5


def main() -> None:
    """Run the benchmark and write its report."""
    options = _parser().parse_args()
    entries = [entry for entry in roster.ENTRIES if _fits(entry.name, options.peers)]
    chosen = [task for task in tasks.TASKS if task.name in (options.tasks or _TASKS)]
    runs = [run for file in options.add for run in printed(file, Run)]
    pythons = runner.pythons(entries) if options.rounds else {}
    ended = False
    try:
        for number in range(1 if options.quick else options.rounds):
            for run in runner.one_round(entries, chosen, number, pythons, quick=options.quick):
                runs.append(run)
                print(json.dumps(vars(run)), flush=True)
        ended = True
    finally:  # hours that were interrupted leave a page, too
        about = _circumstances(entries, runs, quick=options.quick, ended=ended)
        _write(options.page, entries, chosen, runs, about)


def _write(
    path: Path,
    entries: Sequence[Entry],
    chosen: Sequence[Task],
    runs: Sequence[Run],
    about: report.Circumstances,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = path.with_suffix(".svg")
    draw(picture, entries, runs)
    path.write_text(report.page(entries, chosen, runs, about, picture.name), encoding="utf-8")
    print(path, file=sys.stderr)


def _circumstances(
    entries: Sequence[Entry], runs: Sequence[Run], *, quick: bool, ended: bool
) -> report.Circumstances:
    repeated = collections.Counter((run.peer, run.task) for run in runs)
    return report.Circumstances(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        rounds=max(repeated.values(), default=0),
        quick=quick,
        ended=ended,
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        versions=_versions(entries),
    )


_NAMED = (
    "pyspark",
    "joblibspark",
    "joblib",
    "distributed",
    "optuna",
    "ray",
    "hyperopt",
    "scipy",
    "dehb",
    "mlflow",
    "tensorflow_cpu",
)
"""Packages whose versions the report names."""

_TASKS = [task.name for task in tasks.TASKS]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.peers", description="Compare ours with other libraries."
    )
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="default: %(default)s")
    parser.add_argument(
        "--add", type=Path, nargs="+", default=[], help="files of lines that earlier runs printed"
    )
    parser.add_argument("--quick", action="store_true", help="one round of few, short trials")
    parser.add_argument("--tasks", nargs="+", choices=_TASKS, help="default: all")
    parser.add_argument("--peers", nargs="+", help="parts of the names of rows; default: all")
    parser.add_argument("--page", type=Path, default=_PAGE, help="default: %(default)s")
    return parser


def _fits(name: str, parts: Sequence[str] | None) -> bool:
    return parts is None or any(part.lower() in name.lower() for part in parts)


def _versions(entries: Sequence[Entry]) -> list[str]:
    """Return the pinned versions of the packages after which environments are named."""
    found = {}
    for entry in entries:
        if entry.environment:
            found.update(versions_of(entry.environment))
    return [f"{package} {found[package]}" for package in _NAMED if package in found]


if __name__ == "__main__":
    main()
