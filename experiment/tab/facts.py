"""The facts of a run in the tab: its state, its counts, its best trial, the time left."""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any, Literal

from experiment.results.status import seconds_of
from experiment.results.text import literal, printable
from experiment.run_files.loading import Run
from experiment.run_files.manifest import Manifest, Summary
from experiment.run_files.ownership import owner_of
from experiment.setup.workers import Workers
from experiment.tab.shown import as_python
from experiment.tab.timeline import Timeline
from search.values import as_unicode
from spark_jobs.run_folder.paths import RunPaths

State = Literal["running", "finished", "ended early", "driver gone", "unknown"]
"""The state of a run; 'unknown' if its driver is on another host and may have been killed."""


def state_of(paths: RunPaths, *, ended: bool, problem: str | None) -> State:
    """Return the state of a run.

    Args:
        paths: The run's paths.
        ended: Whether its search has ended.
        problem: Why it ended early; None if it did not.
    """
    if ended:
        return "finished" if problem is None else "ended early"
    owner = owner_of(paths)
    if owner is None:
        return "unknown"
    if owner.seems_gone:
        return "driver gone"
    return "running" if owner.alive else "unknown"


def facts_of_ended(paths: RunPaths, manifest: Manifest, summary: Summary) -> dict[str, Any]:
    """Return the facts of a run that has ended, without reading its journal."""
    best = None if manifest.of_calls else summary.best
    return {
        **_facts_of_manifest(paths, manifest),
        "state": state_of(paths, ended=True, problem=summary.problem),
        "problem": printable(summary.problem or ""),
        "objective": (best and best.objective) or manifest.optimization_key,
        "total": manifest.trials,
        "counts": {"done": summary.trials, "failed": summary.failed},
        "best": None
        if best is None
        else {"trial": best.trial, "value": best.value, "python": as_python(best.params)},
        "front": [trial.trial for trial in summary.front or ()],
        "ended": _seconds(summary.ended),
    }


def facts_of(run: Run, timeline: Timeline, ended: float | None) -> dict[str, Any]:
    """Return the facts of a run that was read.

    Args:
        run: The run.
        timeline: Its state with its times.
        ended: The time of the end, in seconds since 1970; None before it.
    """
    result = run.result
    statuses = Counter(trial.status for trial in result.trials)
    best = None if result.objectives or run.manifest.of_calls else result.best
    state = state_of(run.paths, ended=run.ended, problem=result.problem)
    going_on = not run.ended and state != "driver gone"
    typical = [trial.seconds for trial in result.trials if trial.status == "finished"]
    workers = Workers.read("workers_per_trial", run.manifest.workers_per_trial)
    at_once = workers.at_once(len(timeline.present))
    left = None
    if len(typical) > 1 and at_once and going_on:
        mean = sum(typical) / len(typical)  # fmean raises where it is too large for a float
        left = seconds_of(result.total - result.done, mean, at_once)
    return {
        **_facts_of_manifest(run.paths, run.manifest),
        "state": state,
        "problem": printable(result.problem or ""),
        "objective": result.objective,
        "total": result.total,
        "counts": {
            "done": result.done,
            **{status: statuses[status] for status in ("failed", "stopped", "cancelled")},
            "running": len(run.running) if going_on else 0,
        },
        "best": None
        if best is None
        else {"trial": best.id, "value": best.value, "python": as_python(best.params)},
        "front": [trial.id for trial in result.front] if result.objectives else [],
        "target": result.target,
        "slots": len(timeline.present),
        "left": left,
        "began": timeline.began,
        "last": timeline.last,
        "ended": ended,
    }


def ended_at(summary: Summary) -> float:
    """Return the time of the end of a search, in seconds since 1970."""
    return _seconds(summary.ended)


def _facts_of_manifest(paths: RunPaths, manifest: Manifest) -> dict[str, Any]:
    several = isinstance(manifest.direction, dict)
    return {
        "title": printable(manifest.name),
        "description": printable(manifest.description, keep="\n"),
        "call": manifest.call,
        "algorithm": {
            name: printable(literal(value)) if name == "points" else value
            for name, value in manifest.arguments.items()
        },
        "settings": {
            "seed": manifest.seed,
            "stopping": manifest.stopping,
            "timeout": manifest.timeout,
            "workers per trial": manifest.workers_per_trial,
            "precision": manifest.precision,
            "train function": printable(manifest.train),
        },
        "direction": "" if several else manifest.direction,
        "objectives": manifest.direction if several else {},
        "created": _seconds(manifest.created),
        "folder": as_unicode(paths.shown()),
    }


def _seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
