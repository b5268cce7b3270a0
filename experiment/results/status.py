"""The state of a search at one moment, as a value."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple, Protocol

from experiment.results.trial_result import TrialResult
from spark_jobs.messages import Attempt, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A trial in flight.

    Attributes:
        attempt: The attempt.
        slots: The names of the slots that run it.
        since: The start of the trial, in seconds of the coordinator's clock; None while its slot
            imports the preloaded modules.
        last: The last step, with the last reported value of each metric.
        stop: The reason to stop it; '' for none.
    """

    attempt: Attempt
    slots: tuple[str, ...] = ()
    since: float | None
    last: Report | None = None
    stop: str = ""

    def seconds(self, now: float) -> float:
        """Return the seconds from its start to a time of the coordinator's clock."""
        return 0.0 if self.since is None else now - self.since


class Output(NamedTuple):
    """A piece of a trial's output.

    Attributes:
        trial: The trial's id.
        text: The text.
        worker: The rank of the slot that it comes from.
    """

    trial: int
    text: str
    worker: int = 0


def seconds_of(trials: int, typical: float, at_once: int) -> float:
    """Return the seconds that trials take in all, if no slot ever waits.

    Args:
        trials: Number of trials.
        typical: Mean seconds of a trial.
        at_once: Number of parallel trials.
    """
    return typical * trials / at_once


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The state of a search at one moment, without its trials in flight.

    Attributes:
        total: Number of trials of the whole search.
        results: The results of ended trials, in the order of their ends; the list keeps growing.
        ended: The length of `results` at this moment.
        failed: Number of failed trials.
        cancelled: Number of trials cancelled at the end of the search.
        in_flight: Number of trials in flight.
        slots: Number of slots that have started.
        at_once: Number of trials that these slots run at once.
        best: The best trial so far; None before the first value, and with several objectives.
        objective: The name of the objective, once known.
        output: Pieces of the trials' output, if slots send it; the consumer removes entries.
        typical: Mean seconds of a finished trial; None before the second.
        front: The non-dominated trials so far; with one objective, the best alone.
        notes: Messages to the user about slots; the consumer removes entries.
    """

    total: int
    results: Sequence[TrialResult] = ()
    ended: int = 0
    failed: int = 0
    cancelled: int = 0
    in_flight: int = 0
    slots: int = 0
    at_once: int = 0
    best: TrialResult | None = None
    objective: str | None = None
    typical: float | None = None
    output: deque[Output] = field(default_factory=deque)
    front: tuple[TrialResult, ...] = ()
    notes: deque[str] = field(default_factory=deque)

    @property
    def done(self) -> int:
        """Number of ended trials, failed ones too, without the cancelled ones."""
        return self.ended - self.cancelled

    @property
    def left(self) -> float | None:
        """Estimated seconds until the end, from the trials so far; None if unknown."""
        if self.typical is None or not self.at_once:
            return None
        return seconds_of(self.total - self.done, self.typical, self.at_once)

    def with_running(self, running: tuple[Running, ...]) -> Status:
        """Return the same state with each trial in flight."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return Status(**values | {"in_flight": len(running), "running": running})


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(Overview):
    """The state of a search at one moment, with each trial in flight.

    Attributes:
        running: The trials in flight, in the order in which slots got them.
    """

    running: tuple[Running, ...] = ()

    @property
    def generation(self) -> int | None:
        """The newest generation in flight; None without generations or trials in flight."""
        numbers = [running.attempt.trial.generation for running in self.running]
        return max((number for number in numbers if number is not None), default=None)


class Observer(Protocol):
    """Receives each trial that has ended, after the journal has its record.

    Without the trials in flight: with 10,000 of them a copy for each result takes a while.
    """

    def ended(self, result: TrialResult, status: Overview) -> None:
        """Receive a result, and the state of the search including it."""
