"""Whether a run is in progress, and how to continue it, in words."""

from __future__ import annotations

import time

from experiment.results.text import duration, how_to_resume
from experiment.run_files.loading import Run
from experiment.run_files.ownership import owner_of
from spark_jobs.run_folder.paths import RunPaths


def state_of(run: Run) -> str:
    """Return whether a run is in progress, has ended, or has lost its driver."""
    owner = owner_of(run.paths)
    if owner is not None and owner.alive:
        return f"running on {owner}"
    if run.result.problem is not None:
        return f"ended early: {run.result.problem}"
    if run.ended:
        return "finished"
    files = [run.paths.manifest, *run.paths.journal.glob("*.jsonl")]
    state = f"not ended, last update {_ago(max(path.stat().st_mtime for path in files))}"
    if owner is None:
        return state
    if owner.alive is None:
        return f"{state}, last sign of life of its driver ({owner}) {_ago(owner.seen)}"
    return f"{state}, its driver ({owner}) is gone"


def _ago(when: float) -> str:
    return f"{duration(max(0.0, time.time() - when))} ago"


def running_on(paths: RunPaths) -> str:
    """Return the active driver of a run as text; '' if there is none or it is unknown."""
    owner = owner_of(paths)
    return f"running on {owner}" if owner is not None and owner.alive else ""


def may_run(run: Run) -> bool:
    """Return whether a run may have an active driver."""
    owner = owner_of(run.paths)
    if owner is None:  # released; or never taken, if there are no owner files
        return not run.ended and not run.paths.owners.is_dir()
    return not run.ended if owner.alive is None else owner.alive


def how_to_continue(run: Run) -> str:
    """Return how to resume a run; '' if nothing is left, or it seems to be in progress."""
    whole = run.ended and run.result.problem is None and run.result.done == run.result.total
    whole = whole or not run.manifest.trials  # only the caller of an executor has the calls
    owner = owner_of(run.paths)
    in_progress = may_run(run) and not (owner is not None and owner.seems_gone)
    return "" if whole or in_progress else how_to_resume(run.paths.shown())
