"""Trials and their outcomes, as values that all layers of the project share.

msgspec encodes them, with the hooks of `search.values`, in messages, in a run's files and in its
journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec.structs import force_setattr

from search.values import Metrics, MetricsLike, Params, ParamsLike

Step = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""The step of a report; an event file holds 64 bits."""

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
"""Failures after which a trial is retried by default."""

UNNAMED_OBJECTIVE = "metric"
"""The objective's name when a train function returns a single number."""


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One configuration, to be evaluated once.

    Attributes:
        id: The trial's number, 0, 1, 2, ... in the order in which the searcher proposed them.
        params: Hyperparameter name to value, the keyword arguments of the train function.
        generation: The trial's generation, for algorithms that have generations.
        parent: The trial from whose checkpoint this one resumes; None to start from scratch.
        max_steps: The number of steps (epochs) after which it ends, counted from the start of the
            training, also if it resumes from a checkpoint; None for any number.
    """

    id: int
    params: ParamsLike
    generation: int | None = None
    parent: int | None = None
    max_steps: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.params, Mapping):  # `CheckedSearcher` refuses anything else
            force_setattr(self, "params", Params.of(self.params))


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Why a trial has no value.

    Attributes:
        kind: 'user error' (the train function raised), 'exit' (its process ended by itself or by a
            signal), 'time' (the time limit), 'memory' (the host's, or the trial's share of it, was
            exhausted), 'gpu memory', 'invalid value' (the returned value is no score), 'ambiguous
            objective' (several numbers and no `optimization_key`, or none of that name), 'machine'
            (the host failed, not the trial), 'lost executor' (its executor or host was lost more
            often than `retries` allows).
        message: The message in one line.
        traceback: The traceback in the trial's process, or ''.
        unreached: Whether a worker of the trial did not reach another one, which may be the cause.
        of_store: Whether the store of the trial's data, or of the run, did not answer, which is not
            the host's fault.
    """

    kind: FailureKind
    message: str
    traceback: str = ""
    unreached: bool = False
    of_store: bool = False

    def __str__(self) -> str:
        return self.message


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a trial ended. A failure is a value of this type, never an exception.

    Attributes:
        trial: The trial's id.
        status: 'finished', 'failed', 'stopped' or 'cancelled'.
        value: The objective: a finite number when finished, None when failed. For a stopped trial
            the returned value, else the last reported one; None if that is no number. The
            driver replaces that of a trial that lost a race by an estimate, see `StudentRacing`.
        objective: The name of the objective, if the train function gives one.
        metrics: Every number that the train function returned, the objective included.
        error: Why the trial failed; None otherwise.
        seconds: Wall time of the train function.
        reason: Why the trial was stopped, such as "step 7: ..."; '' otherwise.
        step: The last reported step, if any.
        values: Objective name to finite number if there are several objectives and the trial did
            not fail, with `value` None; empty otherwise.

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
        return cls(
            trial,
            "failed",
            error=Failure(kind=kind, message=message, traceback=traceback),
            seconds=seconds,
        )


class Evaluated(msgspec.Struct, frozen=True):
    """A prior observation: a configuration whose score is known before the search.

    Attributes:
        params: Hyperparameter name to value, a configuration of the space.
        value: The objective; None for a failed trial, and with several objectives.
        values: Objective name to number, if there are several objectives.
    """

    params: ParamsLike
    value: float | None
    values: Mapping[str, float] = {}

    def __post_init__(self) -> None:
        force_setattr(self, "params", Params.of(self.params))
