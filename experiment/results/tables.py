"""Trials as text and as tables, for users and for pandas."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from experiment.results.scored_trials import ScoredTrials
from experiment.results.text import (
    hyperparameter,
    hyperparameters,
    number,
    printable,
    unambiguous,
)
from experiment.results.trial_result import TrialResult
from search.space.spaces import LARGEST_INTEGER
from search.trial import UNNAMED_OBJECTIVE

if TYPE_CHECKING:
    import pandas

_LAST_COLUMNS = ("max_steps", "seconds", "error", "reason", "logdir")
_IF_ANY = ("max_steps", "reason")  # columns that most results lack


def best_in_words(best: TrialResult | None, objective: str | None) -> str:
    """Return "best accuracy 0.9 in trial 3: learning_rate=0.01"; '' without a value.

    With "(stopped early)" if the trial was stopped: its value is the last one that it reported.
    """
    if best is None or best.value is None:
        return ""
    name = printable(objective or UNNAMED_OBJECTIVE)
    params = f": {hyperparameters(best.params)}" if best.params else ""
    stopped = " (stopped early)" if best.status == "stopped" else ""
    return f"best {name} {number(best.value)} in trial {best.id}{stopped}{params}"


def front_in_words(front: Sequence[TrialResult]) -> str:
    """Return "front 7: accuracy 0.8 to 0.9, latency 2 to 3.1"; '' without several objectives."""
    names = front[0].values if front else {}
    ranges = [_range(name, [trial.values[name] for trial in front]) for name in names]
    return f"front {len(front)}: {', '.join(ranges)}" if ranges else ""


def _range(name: str, values: Sequence[float]) -> str:
    low, high = number(min(values)), number(max(values))
    return f"{printable(name)} {low}" if low == high else f"{printable(name)} {low} to {high}"


def table_of(
    result: ScoredTrials, trials: Sequence[TrialResult]
) -> tuple[list[str], list[list[str]]]:
    """Return head and rows, as text, of a table of some trials of a result."""
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    metrics = dict.fromkeys(name for trial in trials for name in trial.metrics)
    objectives = result.objectives or [result.objective]
    others = [name for name in metrics if name not in objectives]
    titles = [*result.objective_titles, *(["front"] if result.objectives else [])]
    last = ["seconds", "status"]
    fixed = {"trial", *titles, *last}
    head = [
        "trial",
        *titles,
        *(unambiguous(name, fixed.union(others)) for name in names),
        *(unambiguous(name, fixed, "metrics") for name in others),
        *last,
    ]
    front = {trial.id for trial in result.front}
    rows = [
        [
            str(trial.id),
            *_scores(result, trial, front),
            *(hyperparameter(trial.params[name]) if name in trial.params else "" for name in names),
            *(number(trial.metrics[m]) if m in trial.metrics else "" for m in others),
            f"{trial.seconds:.1f}",
            trial.ending,
        ]
        for trial in trials
    ]
    return head, rows


def _scores(result: ScoredTrials, trial: TrialResult, front: Collection[int]) -> list[str]:
    if not result.objectives:
        return [trial.score]
    numbers = [number(trial.values[n]) if n in trial.values else "" for n in result.objectives]
    return [*numbers, "yes" if trial.id in front else ""]


def frame_of(result: ScoredTrials) -> pandas.DataFrame:
    """Return the DataFrame of `Result.to_pandas`."""
    import pandas

    front = {trial.id for trial in result.front} if result.objectives else None
    first = _first_columns(result)
    rows = [_row(trial, front, (*first, *_LAST_COLUMNS)) for trial in result.trials]
    given = columns_of_params(result)
    columns = {}
    for name in _columns(rows, first):
        values = [row.get(name, math.nan) for row in rows]
        changed = any(
            (value is None and name in given)
            or (isinstance(value, int) and abs(value) > LARGEST_INTEGER)
            for value in values
        )
        columns[name] = pandas.Series(values, dtype=object if changed else None)
    return pandas.DataFrame(columns)


def columns_of_params(result: ScoredTrials) -> set[str]:
    """Return the names of the columns of hyperparameters in `frame_of`."""
    others = (*_first_columns(result), *_LAST_COLUMNS)
    return {unambiguous(name, others) for trial in result.trials for name in trial.params}


def _first_columns(result: ScoredTrials) -> tuple[str, ...]:
    return ("trial", "status", "on_front" if result.objectives else "value")


def _row(
    trial: TrialResult, front: Collection[int] | None, fixed: Collection[str]
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "trial": trial.id,
        "status": trial.status,
        "seconds": trial.seconds,
        "error": None if trial.error is None else str(trial.error),
        "logdir": trial.logdir,
    }
    row |= {"value": trial.value} if front is None else {"on_front": trial.id in front}
    if trial.reason:
        row["reason"] = trial.reason
    if trial.max_steps is not None:
        row["max_steps"] = trial.max_steps
    metrics = {f"metrics.{key}": value for key, value in trial.metrics.items()}
    for name, value in trial.params.items():
        row[unambiguous(name, fixed)] = value
    return row | metrics


def _columns(rows: list[dict[str, Any]], first: Sequence[str]) -> list[str]:
    """Return all columns: the outcome, the hyperparameters, the metrics, and the rest."""
    fixed = (*first, *_LAST_COLUMNS)
    names = [name for row in rows for name in row if name not in fixed]
    middle = sorted(dict.fromkeys(names), key=lambda name: name.startswith("metrics."))
    last = [n for n in _LAST_COLUMNS if n not in _IF_ANY or any(n in row for row in rows)]
    return [*first, *middle, *last]
