"""What a search returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from search.direction import Direction
from search.errors import ExperimentError, shown
from search.trial import Failure, Outcome, Status, Trial

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class TrialResult:
    """A trial and what became of it.

    Attributes:
        id: Its number, from 0 in the order of the search.
        params: Hyperparameter name to value.
        value: The objective; None where it failed.
        metrics: Every number that the train function returned, the objective included.
        status: 'finished', 'failed', 'stopped' or 'cancelled'.
        error: Why it failed, with `.kind`, `.message`, `.traceback`; None otherwise.
        seconds: Wall time of the train function.
        logdir: Its folder: logs, TensorBoard events, what it wrote.
    """

    id: int
    params: dict[str, Any]
    value: float | None
    metrics: dict[str, float]
    status: Status
    error: Failure | None
    seconds: float
    logdir: str

    @classmethod
    def of(cls, trial: Trial, outcome: Outcome, logdir: str) -> TrialResult:
        """Return a trial with its outcome."""
        return cls(
            trial.id,
            dict(trial.params),
            outcome.value,
            dict(outcome.metrics),
            outcome.status,
            outcome.error,
            outcome.seconds,
            logdir,
        )


class Result:
    """The trials of a search. Immutable.

    Attributes:
        trials: All that came to an end, failed ones too, in the order of their ids.
        direction: 'max' or 'min'.
        logdir: The run's folder; `tensorboard --logdir` opens it.
    """

    def __init__(self, trials: Sequence[TrialResult], direction: Direction, logdir: str) -> None:
        self.trials = sorted(trials, key=lambda trial: trial.id)
        self.direction = direction.value
        self.logdir = logdir

    @property
    def best(self) -> TrialResult | None:
        """The trial with the best value, the first of equals; None when none finished."""
        return Direction(self.direction).best(self.trials, lambda trial: trial.value)

    @property
    def failed(self) -> list[TrialResult]:
        """The trials that failed."""
        return [trial for trial in self.trials if trial.status == "failed"]

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row per trial, failed ones too, in order of id.

        Columns: trial, status, value, seconds, error, logdir; each parameter under its own name, or
        as `params.<name>` where that is taken; `metrics.<key>` for each number returned.
        """
        import pandas

        rows = [_row(trial) for trial in self.trials]
        return pandas.DataFrame(rows, columns=_columns(rows))

    def __len__(self) -> int:
        return len(self.trials)

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        best = self.best
        summary = ""
        if best is not None:
            summary = f", best {best.value:.6g} in trial {best.id} {shown(best.params)}"
        return f"<Result of {len(self.trials)} trials{failed}{summary}, {self.logdir}>"


_FIXED_COLUMNS = ("trial", "status", "value", "seconds", "error", "logdir")


def _row(trial: TrialResult) -> dict[str, Any]:
    row: dict[str, Any] = {
        "trial": trial.id,
        "status": trial.status,
        "value": trial.value,
        "seconds": trial.seconds,
        "error": None if trial.error is None else str(trial.error),
        "logdir": trial.logdir,
    }
    metrics = {f"metrics.{key}": value for key, value in trial.metrics.items()}
    for name, value in trial.params.items():
        clash = name in _FIXED_COLUMNS or name.startswith(("metrics.", "params."))
        row[f"params.{name}" if clash else name] = value
    return row | metrics


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    """Return all columns: the fixed ones, then the parameters, then the metrics."""
    names = dict.fromkeys(_FIXED_COLUMNS) | dict.fromkeys(name for row in rows for name in row)
    return sorted(names, key=lambda name: name.startswith("metrics."))


class SearchFailed(ExperimentError):
    """A search that ended without being done, or in which every trial failed.

    Attributes:
        result: What there is: a `Result`.
    """

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message, result)
        self.result = result

    def __str__(self) -> str:
        return str(self.args[0])
