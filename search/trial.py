"""What goes to a trial and what comes back: values that cross every border of the project.

msgspec encodes them as they are, with the hooks of `search.values`: in messages, in the files of a
run and in its journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec.structs import force_setattr

from search.values import Metrics, MetricsLike, Params, ParamsLike

Step = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Of a trial that reports: what an event file holds."""

Status = Literal["finished", "failed", "stopped", "cancelled"]
FailureKind = Literal[
    "user error",
    "exit",
    "time",
    "memory",
    "gpu memory",
    "invalid value",
    "ambiguous objective",
    "machine",
    "lost executor",
]

RETRIED: tuple[FailureKind, ...] = ("lost executor", "machine")
"""Failures after which a trial runs again, where the user says nothing else."""

UNNAMED_OBJECTIVE = "metric"
"""What the objective is called when a train function returns a lone number."""


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One point of the space, to be evaluated once.

    Attributes:
        id: 0, 1, 2, ... in the order in which the searcher handed them out.
        params: Hyperparameter name to value, the keyword arguments of the train function.
        generation: The generation it belongs to, for algorithms that have generations.
        parent: The trial from whose checkpoint it goes on; None where it begins anew.
    """

    id: int
    params: ParamsLike
    generation: int | None = None
    parent: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.params, Mapping):  # what a searcher asks for is checked elsewhere
            force_setattr(self, "params", Params.of(self.params))


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a trial has no value.

    Attributes:
        kind: 'user error' (the train function raised), 'exit' (its process ended by itself or by a
            signal), 'time' (the time limit), 'memory' (of its host, or what it may have of that),
            'gpu memory', 'invalid value' (what it returned cannot be a score), 'ambiguous
            objective' (several numbers and no `optimization_key`, or none of that name), 'machine'
            (what runs the trial failed, not the trial), 'lost executor' (the executor or host that
            ran it was lost, more often than `retries` allows).
        message: One line.
        traceback: The traceback in the trial's process, or ''.
    """

    kind: FailureKind
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        return self.message


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of a trial. A failure is a value of this type, never an exception.

    Attributes:
        trial: The id of the trial.
        status: 'finished', 'failed', 'stopped' or 'cancelled'.
        value: The objective; a finite number when finished, None when failed. Of a trial that was
            stopped what it returned, else what it reported last; None where that is no number.
        objective: What the train function calls its objective, where it has said so.
        metrics: Every number that the train function returned, the objective included.
        error: Why it failed; None otherwise.
        seconds: Wall time of the train function.
        reason: Why it was stopped, such as "step 7: ..."; '' otherwise.
        step: The step that it reported last, if it reported any.
        values: Where there are several objectives, each by name, finite numbers, and `value` is
            None; empty when failed, and otherwise.

    Raises:
        ValueError: Status, error and values contradict each other.
    """

    trial: int
    status: Status
    value: float | None = None
    objective: str | None = None
    metrics: MetricsLike = {}
    error: Failure | None = None
    seconds: float = 0.0
    reason: str = ""
    step: Step | None = None
    values: Mapping[str, float] = {}

    def __post_init__(self) -> None:
        force_setattr(self, "metrics", Metrics.of(self.metrics))
        failed, valued = self.error is not None, self.value is not None or bool(self.values)
        fits = self.status == "stopped" or valued == (self.status == "finished")
        one_and_several = self.value is not None and self.values
        if failed != (self.status == "failed") or not fits or one_and_several:
            raise ValueError(f"status {self.status!r} contradicts the rest of the outcome")

    @classmethod
    def failed(
        cls, trial: int, kind: FailureKind, message: str, traceback: str = "", seconds: float = 0.0
    ) -> Outcome:
        """Return the outcome of a trial that failed."""
        return cls(trial, "failed", error=Failure(kind, message, traceback), seconds=seconds)


class Evaluated(msgspec.Struct, frozen=True):
    """A configuration whose score is known from elsewhere.

    Attributes:
        params: Hyperparameter name to value, a configuration of the space.
        value: The objective; None where the trial failed.
        values: Where there are several objectives, each by name, and `value` is None.
    """

    params: ParamsLike
    value: float | None
    values: Mapping[str, float] = {}

    def __post_init__(self) -> None:
        force_setattr(self, "params", Params.of(self.params))
