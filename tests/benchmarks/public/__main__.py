"""Command line of the benchmark: `make bench-public`, or with options, see `--help`."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import functools
import json
import multiprocessing
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests import ROOT
from tests.benchmarks.printed import printed
from tests.benchmarks.public import report
from tests.benchmarks.public.methods import PARALLEL, SEQUENTIAL
from tests.benchmarks.public.problems import GROUPS, NAMES
from tests.benchmarks.public.runs import BUDGETS, SEEDS, WORKERS, Run, Task, run, tasks

_PAGE = ROOT / "build" / "public.md"
_METHODS = tuple(dict.fromkeys([*SEQUENTIAL, *PARALLEL]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark, print each run as a line of JSON, and write the page."""
    options = _parser().parse_args(arguments)
    names = [name for name in NAMES if options.problems is None or _fits(name, options.problems)]
    methods = [name for name in _METHODS if options.methods is None or name in options.methods]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    runs = [run for file in options.add for run in printed(file, Run)]
    known = {run.task for run in runs if run.covers(options.budgets)}
    wanted = tasks(methods, names, seeds, options.workers) if seeds else ()
    try:
        left = [task for task in wanted if task not in known]
        for found in _results(left, options.budgets, options.processes):
            runs.append(found)
            print(json.dumps(dataclasses.asdict(found)), flush=True)
    finally:  # hours that were interrupted leave a page, too
        _write(options.page, runs)


def _results(wanted: Sequence[Task], budgets: Sequence[int], processes: int) -> Iterator[Run]:
    os.environ["OMP_NUM_THREADS"] = "1"  # there is one process per core
    search = functools.partial(run, budgets=budgets)
    if min(processes, len(wanted)) <= 1:
        yield from map(search, wanted)
    else:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            yield from pool.imap_unordered(search, wanted)


def _write(path: Path, runs: Sequence[Run]) -> None:
    ran = {run.problem for run in runs}
    groups = {group: [name for name in names if name in ran] for group, names in GROUPS.items()}
    groups = {group: names for group, names in groups.items() if names}
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.page(runs, groups, date, platform.python_version()), encoding="utf-8")
    print(path, file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.public", description="Compare searches on public problems."
    )
    parser.add_argument(
        "--add", type=Path, nargs="+", default=[], help="files of lines that earlier runs printed"
    )
    parser.add_argument(
        "--methods", nargs="+", choices=_METHODS, metavar="NAME", help="of %(choices)s"
    )
    parser.add_argument("--problems", nargs="+", help="parts of their names; default: all")
    parser.add_argument(
        "--seeds",
        type=int,
        default=SEEDS,
        help="number of seeds; 0 only joins; default: %(default)s",
    )
    parser.add_argument("--first-seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--budgets", type=int, nargs="+", choices=BUDGETS, default=list(BUDGETS))
    parser.add_argument("--workers", type=int, nargs="+", choices=WORKERS, default=list(WORKERS))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--page", type=Path, default=_PAGE, help="default: %(default)s")
    return parser


def _fits(name: str, parts: Sequence[str]) -> bool:
    return any(part.lower() in name.lower() for part in parts)


if __name__ == "__main__":
    main()
