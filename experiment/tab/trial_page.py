"""All about one trial: its attempts, error, curves, output and files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from experiment.results.text import printable
from experiment.results.trial_result import TrialResult
from experiment.tab.shown import as_python, shown_value
from experiment.tab.timeline import TimedAttempt, Timeline
from spark_jobs.run_folder.paths import AttemptPaths, RunPaths, is_ours
from spark_jobs.slot.trial_events import is_curve
from spark_jobs.trial.events.event_scalars import scalars_in

_TAIL = 20_000  # bytes of each output
_MOST_EVENTS = 64_000_000  # bytes of event files of a trial
_MOST_POINTS = 2_000  # of a curve
_MOST_FILES = 500


def trial_page(paths: RunPaths, timeline: Timeline, trial: int) -> bytes | None:
    """Return all about a trial as JSON; None if it was not planned.

    Args:
        paths: The run's paths.
        timeline: Its state with its times.
        trial: The trial's id.
    """
    attempts = timeline.attempts.get(trial)
    if not attempts:
        return None
    result = timeline.ended_trials.get(trial)
    planned = timeline.trials.get(trial)
    params = result.params if result is not None else dict(planned.params if planned else {})
    number = attempts[-1].number if result is None else result.attempt
    files = paths.attempt(trial, number)
    generation, parent = timeline.origins[trial]
    return msgspec.json.encode(
        {
            "trial": trial,
            "params": [(name, shown_value(value)) for name, value in params.items()],
            "python": as_python(params),
            "generation": generation,
            "parent": parent,
            "attempts": list(map(_attempt, attempts)),
            **_outcome(result),
            "folder": paths.shown_attempt(trial, number),
            "copied": bool(paths.kept_at),  # without output and files
            "curves": _curves(files.folder),
            "output": list(_output(paths, trial, number, attempts[-1])),
            "files": _files(files.folder),
        }
    )


def _attempt(attempt: TimedAttempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "slots": attempt.slots,
        "start": attempt.start,
        "end": attempt.end,
        "ending": attempt.ending,
        "why": printable(attempt.why),
    }


def _outcome(result: TrialResult | None) -> dict[str, Any]:
    if result is None:
        return {"status": "running", "value": None, "seconds": None, "metrics": [], "error": None}
    error = result.error
    return {
        "status": result.status,
        "value": result.value,
        "seconds": result.seconds,
        "reason": printable(result.reason),
        "metrics": [(name, _number(value)) for name, value in result.metrics.items()],
        "error": None
        if error is None
        else {
            "kind": error.kind,
            "message": printable(error.message, keep="\n"),
            "traceback": printable(error.traceback, keep="\n\t"),
        },
    }


def _number(value: float) -> float | str:
    return value if abs(value) < float("inf") else str(value)


def _curves(folder: Path) -> list[dict[str, Any]]:
    """Return the curves in the event files of an attempt's folder, and of the folders in it."""
    curves: dict[str, tuple[list[int], list[float | None]]] = {}
    left = _MOST_EVENTS
    for path, size in _regular_files(folder):
        if "tfevents" not in path.name or size > left:
            continue
        left -= size
        below = path.parent.relative_to(folder).as_posix()
        prefix = "" if below == "." else f"{below}/"
        for point in scalars_in(_bytes_of(path, 0)):
            if is_curve(point.tag):
                steps, values = curves.setdefault(prefix + point.tag, ([], []))
                steps.append(point.step)
                values.append(point.value if abs(point.value) < float("inf") else None)
    return [
        {"tag": printable(tag), "steps": _some(steps), "values": _some(values)}
        for tag, (steps, values) in sorted(curves.items())
    ]


def _some(points: list[Any]) -> list[Any]:
    """Return every n-th point, and the last one, if there are too many."""
    every = -(-len(points) // _MOST_POINTS)
    return points if every <= 1 else [*points[:-1:every], points[-1]]


def _output(
    paths: RunPaths, trial: int, number: int, attempt: TimedAttempt
) -> Iterator[dict[str, Any]]:
    """Yield the ends of the output files of an attempt, and of its workers."""
    for rank in range(max(1, len(attempt.slots))):
        files: AttemptPaths = paths.attempt(trial, number, rank)
        for name, path in (("stdout", files.stdout), ("stderr", files.stderr)):
            text = _bytes_of(path, _TAIL).decode(errors="replace")
            if text:
                yield {
                    "name": name if rank == 0 else f"{name} of worker {rank}",
                    "text": printable(text, keep="\n\t"),
                }


def _files(folder: Path) -> list[dict[str, Any]]:
    """Return the files that the train function wrote, with their sizes."""
    found = []
    for path, size in _regular_files(folder):
        name = path.relative_to(folder).as_posix()
        if not is_ours(path.name):
            found.append({"name": printable(name), "size": size})
        if len(found) == _MOST_FILES:
            break
    return found


def _regular_files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files below a folder in order, without links, which may lead out of it."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            try:
                status = path.lstat()
            except OSError:  # removed meanwhile
                continue
            if stat.S_ISREG(status.st_mode):
                yield path, status.st_size


def _bytes_of(path: Path, most: int) -> bytes:
    """Return the last bytes of a file; all for `most` 0; empty if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b""
        if most and status.st_size > most:
            file.seek(status.st_size - most)
        return file.read()
