"""The runs in a folder, and the newest of them."""

from __future__ import annotations

import os

from experiment.cli.activity import state_of
from experiment.cli.console import print_table
from experiment.results.result import Result
from experiment.results.text import count
from experiment.run_files.loading import Run, find_runs, opened, read_run
from search.errors import ExperimentError, InvalidArgument
from spark_jobs.storage.locations import Location

LOGDIR = "experiments"
"""The folder of runs by default, also of searches."""
_LATEST = "latest"


def list_runs(logdir: str) -> None:
    """Print a line per run of a folder."""
    rows = []
    for run in runs_in(logdir, "logdir"):
        try:
            with opened(str(run)) as reader:
                rows.append((run.name, *_list_row(read_run(reader.paths))))
        except ExperimentError as error:  # one broken run hides no other
            rows.append((run.name, "", f"cannot be read: {error}", "", "", ""))
    print_table(("run", "started (UTC)", "state", "trials", "failed", "best"), rows)


def runs_in(logdir: str, name: str) -> list[Location]:
    """Return the folders of the runs in a folder, at least one, the newest last.

    Args:
        logdir: The folder.
        name: The name of the argument, for the error.
    """
    try:
        runs = find_runs(Location.parse(logdir, name))
    except OSError as error:
        got = f"{logdir!r}: {error.strerror or error}"
        raise InvalidArgument(name, "a folder of runs", got) from None
    if not runs:
        raise InvalidArgument(name, "a folder of runs", f"{logdir!r}, which has none")
    return runs


def run_meant(run: str) -> str:
    """Return a run's folder; `latest`, `LOGDIR/latest` name the newest run unless they exist."""
    folder, _, name = run.rpartition("/")
    if name != _LATEST or os.path.lexists(run):
        return run
    return str(runs_in(folder or LOGDIR, "run")[-1])


def _list_row(run: Run) -> tuple[str, ...]:
    result, state = run.result, state_of(run)
    counts, best = f"{result.done}/{result.total}", _best(result)
    if run.manifest.of_calls:
        state, counts, best = f"executor, {state}", count(result.done, "call"), ""
    started = run.manifest.created.replace("T", " ").removesuffix("+00:00")
    return started, state, counts, str(len(result.failed)), best


def _best(result: Result) -> str:
    """Return "accuracy 0.9", or "front 7"; '' without a value."""
    if not result.front:
        return ""
    if result.objectives:
        return f"front {len(result.front)}"
    stopped = " (stopped early)" if result.front[0].status == "stopped" else ""
    return f"{result.objective} {result.front[0].score}{stopped}"
