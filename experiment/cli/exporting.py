"""The trials of a run as CSV and JSON."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Collection
from typing import Any

import msgspec

from experiment.results.tables import columns_of_params
from experiment.results.text import printable
from experiment.results.trial_result import TrialResult
from experiment.run_files.loading import load
from search.values import as_unicode


def export(run: str, *, as_csv: bool) -> None:
    """Print all trials of a run: as CSV, a line per trial, else as JSON, a list of objects.

    Raises:
        InvalidArgument: The folder is no run.
    """
    result = load(run)
    if as_csv:
        import pandas  # late: it takes a part of a second

        # All text in quotes: otherwise a lone carriage return would be read as the end of a line.
        frame = result.to_pandas()
        for name in columns_of_params(result):  # pandas writes None as it writes a missing one
            if frame[name].dtype == object:
                values = ["None" if value is None else value for value in frame[name]]
                frame[name] = pandas.Series(values, dtype=object)
        text = frame.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)
        text = as_unicode(text)  # the folder may be no UTF-8
        sys.stdout.write(printable(text, keep="\n\t") if sys.stdout.isatty() else text)
        return
    front = {trial.id for trial in result.front} if result.objectives else None
    trials = [_as_json(trial, front) for trial in result.trials]
    json.dump(trials, sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")


def _as_json(trial: TrialResult, front: Collection[int] | None) -> dict[str, Any]:
    """Return a trial as an object.

    Args:
        trial: The trial.
        front: The ids of the trials on the front; None with a single objective.
    """
    score: dict[str, Any] = {"value": trial.value}
    if front is not None:
        score = {"values": trial.values, "on_front": trial.id in front}
    return {
        "trial": trial.id,
        "status": trial.status,
        "attempt": trial.attempt,
        **({} if trial.max_steps is None else {"max_steps": trial.max_steps}),
        **score,
        "params": _finite(trial.params),
        "metrics": _finite(trial.metrics),
        "error": None if trial.error is None else msgspec.structs.asdict(trial.error),
        "reason": trial.reason,
        "seconds": trial.seconds,
        "logdir": trial.logdir,
    }


def _finite(value: Any) -> Any:
    """Return a value in standard JSON: infinities and NaN as text, tuples as lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
