"""All about one trial: its attempts, error, curves, output and files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiment.results.text import printable
from experiment.results.trial_result import TrialResult
from experiment.tab.shown import as_python, shown_value
from experiment.tab.timeline import TimedAttempt, Timeline
from experiment.tab.trial_files import TrialFiles, bytes_of, has_link, regular_files
from search.values import as_unicode, is_finite
from spark_jobs.run_folder.paths import WORKERS, RunPaths, attempt_name, is_event_file, is_ours
from spark_jobs.slot.trial_events import is_curve
from spark_jobs.trial.events.event_scalars import scalars_in

_MOST_EVENTS = 64_000_000  # bytes of event files of a trial
_MOST_POINTS = 2_000  # of a curve


def trial_page(paths: RunPaths, timeline: Timeline, trial: int) -> dict[str, Any] | None:
    """Return what the journal has about a trial; None if it was not planned.

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
    generation, parent = timeline.origins[trial]
    return {
        "trial": trial,
        "params": [(name, shown_value(value)) for name, value in params.items()],
        "python": as_python(params),
        "generation": generation,
        "parent": parent,
        "attempts": list(map(_attempt, attempts)),
        "attempt": number,
        "status": attempts[-1].status(result),
        **_outcome(result),
        "folder": as_unicode(paths.shown_attempt(trial, number)),
    }


def page_of_files(
    paths: RunPaths, files: TrialFiles, trial: int, number: int, workers: int
) -> dict[str, Any]:
    """Return the content of an attempt's files: its curves, the ends of its output, its files.

    Args:
        paths: The run's paths.
        files: The files of its trials.
        trial: The trial's id.
        number: The attempt's number.
        workers: How many workers it has.
    """
    folder = attempt_name(trial, number)
    outputs = dict(_outputs(workers))
    missing, sizes, ends = "", dict[str, int](), dict[str, bytes]()
    curves = []
    try:
        curves = [] if has_link(paths.root, folder) else _curves(paths.root / folder)
        sizes, ends = files.look(folder, outputs.values())
    except OSError as error:  # the rest of the page does not need the store
        missing = printable(str(error))
    return {
        "curves": curves,
        "output": [
            {"name": name, "text": printable(re.sub("\r\n?", "\n", text), keep="\n\t")}
            for name, path in outputs.items()
            if (text := ends.get(path, b"").decode(errors="replace"))
        ],
        "files": [
            {"name": printable(name), "size": size}
            for name, size in sizes.items()
            if not is_ours(name)
        ],
        "missing": missing,
    }


def _outputs(workers: int) -> Iterator[tuple[str, str]]:
    """Yield the titles of the output files of an attempt, and their paths in its folder."""
    for rank in range(max(1, workers)):
        for name in ("stdout", "stderr"):
            if rank == 0:
                yield name, f"{name}.log"
            else:
                yield f"{name} of worker {rank}", f"{WORKERS}/{rank}/{name}.log"


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
        return {"value": None, "seconds": None, "metrics": [], "error": None}
    error = result.error
    return {
        "value": result.value,
        "seconds": result.seconds,
        "reason": printable(result.reason),
        "metrics": [
            (name, value if is_finite(value) else str(value))
            for name, value in result.metrics.items()
        ],
        "error": None
        if error is None
        else {
            "kind": error.kind,
            "message": printable(error.message, keep="\n"),
            "traceback": printable(error.traceback, keep="\n\t"),
        },
    }


def _curves(folder: Path) -> list[dict[str, Any]]:
    """Return the curves in the event files of an attempt's folder, and of the folders in it."""
    curves: dict[str, tuple[list[int], list[float | None]]] = {}
    left = _MOST_EVENTS
    files = [
        (path.relative_to(folder).as_posix(), path, size) for path, size in regular_files(folder)
    ]
    # What the trial has reported comes before what it wrote itself, which may be too much.
    for name, path, size in sorted(files, key=lambda file: not is_ours(file[0])):
        if not is_event_file(path.name) or size > left:
            continue
        left -= size
        prefix = name.removesuffix(path.name)
        for point in scalars_in(bytes_of(path, 0)):
            if is_curve(point.tag):
                steps, values = curves.setdefault(prefix + point.tag, ([], []))
                steps.append(point.step)
                values.append(point.value if is_finite(point.value) else None)
    return [
        {"tag": printable(tag), "steps": _some(steps), "values": _some(values)}
        for tag, (steps, values) in sorted(curves.items())
    ]


def _some(points: list[Any]) -> list[Any]:
    """Return every n-th point, and the last one, if there are too many."""
    every = -(-len(points) // _MOST_POINTS)
    return points if every <= 1 else [*points[:-1:every], points[-1]]
