"""One trial of a result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from experiment.results import html
from experiment.results.text import (
    duration,
    hyperparameter,
    hyperparameters,
    number,
    printable,
    unambiguous,
)
from experiment.results.trial_files import files_of_trial
from search.trial import Failure, Outcome, Status, Trial


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class TrialResult:
    """A trial with its outcome. A notebook shows it as a table.

    Attributes:
        id: The trial's number, from 0, in the order of the search.
        params: A dict of hyperparameters to values. Change a copy of it: the result reads it, too.
        value: The objective's value; None if the trial failed, and for several objectives.
        metrics: A dict of all numbers that the train function returned, including the objective.
        status: 'finished', 'failed', 'stopped' or 'cancelled'.
        error: The failure, with `.kind`, `.message`, `.traceback`; None without.
        seconds: Wall time of the train function; with `isolation='spawn'` including its imports.
        reason: Why the trial was stopped, such as "step 7: ..."; '' otherwise.
        logdir: The trial folder, with logs, TensorBoard events and the train function's files.
        attempt: The number of the attempt, from 1.
        values: A dict of several objectives to values; empty if the trial failed.
        max_steps: The number of steps (epochs) after which the trial was to end, counted from the
            start of its training; None for any number.
    """

    id: int
    params: dict[str, Any]
    value: float | None
    metrics: dict[str, float]
    status: Status
    error: Failure | None
    seconds: float
    logdir: str
    reason: str = ""
    attempt: int = 1
    values: dict[str, float] = field(default_factory=dict)
    max_steps: int | None = None

    @property
    def score(self) -> str:
        """The objective's value as text; several by name: "0.9", "accuracy=0.9, latency=3.1"."""
        if self.value is not None:
            return number(self.value)
        return ", ".join(f"{printable(name)}={number(v)}" for name, v in self.values.items())

    @property
    def ending(self) -> str:
        """The status with its reason: "stopped at step 7: ...", "failed: ValueError"."""
        if self.error is not None:
            return f"{self.status}: {self.error}"
        return f"{self.status} at {self.reason}" if self.reason else self.status

    @property
    def files(self) -> list[str]:
        """The train function's files below `experiment.logdir()`: paths or URLs, sorted.

        Raises:
            OSError: The folder cannot be read.
        """
        return files_of_trial(self.logdir)

    def __str__(self) -> str:
        """Return "trial 3 (rate=0.01) finished after 2.0 s with 0.9", or its error."""
        where = f" ({hyperparameters(self.params)})" if self.params else ""
        line = f"trial {self.id}{where} {self.status} after {duration(self.seconds)}"
        if self.reason:
            line += f" at {printable(self.reason)}"
        if self.score:
            line += f" with {self.score}"
        return f"{line}: {printable(str(self.error))}" if self.error else line

    def __repr__(self) -> str:
        return f"<TrialResult: {self}; {printable(self.logdir)}>"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook."""
        traceback = "" if self.error is None else self.error.traceback
        return html.block(
            html.table([f"trial {self.id}", ""], self._facts()),
            html.folded("Traceback", traceback) if traceback else "",
        )

    def _facts(self) -> list[list[str]]:
        """Return the names and values of the table's rows."""
        facts = {"status": self.ending, "value": self.score}
        last = {"took": duration(self.seconds), "folder": self.logdir}
        params = {
            unambiguous(name, facts | last): hyperparameter(value)
            for name, value in self.params.items()
        }
        metrics = {f"metrics.{name}": number(value) for name, value in self.metrics.items()}
        given = {name: value for name, value in facts.items() if value}
        return [list(fact) for fact in (given | params | metrics | last).items()]

    @classmethod
    def of(cls, trial: Trial, outcome: Outcome, logdir: str, attempt: int = 1) -> TrialResult:
        """Return the result of a trial from its outcome."""
        return cls(
            id=trial.id,
            params=dict(trial.params),
            value=outcome.value,
            metrics=dict(outcome.metrics),
            status=outcome.status,
            error=outcome.error,
            seconds=outcome.seconds,
            logdir=logdir,
            reason=outcome.reason,
            attempt=attempt,
            values=dict(outcome.values),
            max_steps=trial.max_steps,
        )
