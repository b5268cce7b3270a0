"""How far a search is, as a value."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from experiment.results.trial_result import TrialResult
from spark_jobs.messages import Attempt, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A trial that runs on its slots.

    Attributes:
        attempt: What was asked for.
        slots: The names of the slots that run it.
        since: Since when it runs, in seconds of the coordinator's clock; None while its slot
            prepares itself, by importing TensorFlow and what else is preloaded.
        last: Its last step, with what each metric was when it was reported last.
        stop: Why it is to stop; '' where it is not.
    """

    attempt: Attempt
    slots: tuple[str, ...] = ()
    since: float | None
    last: Report | None = None
    stop: str = ""

    def seconds(self, now: float) -> float:
        """Return for how many seconds it has run at a time of the coordinator's clock."""
        return 0.0 if self.since is None else now - self.since


def seconds_of(trials: int, typical: float, slots: int) -> float:
    """Return how many seconds trials take in all, if no slot ever waits.

    Args:
        trials: How many.
        typical: Seconds that one takes on average.
        slots: How many run at once.
    """
    return typical * trials / slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How far a search is.

    Attributes:
        total: Trials of the search in all.
        results: Of those that came to an end, in that order; the list goes on growing.
        ended: How many of `results` there were at this moment.
        failed: How many of them failed.
        cancelled: How many of them were cancelled, since the search ended without them.
        running: Those that are out.
        slots: How many slots are there.
        best: The best so far; None before the first value, and with several objectives.
        objective: What the objective is called, once known.
        output: Trial and text of what trials printed, where slots send it; the consumer removes
            entries.
        typical: Seconds that a finished trial took on average; None before the second.
        front: The trials so far that no other dominates; with one objective, the best alone.
        notes: What people should know of its slots; the consumer removes entries.
    """

    total: int
    results: Sequence[TrialResult] = ()
    ended: int = 0
    failed: int = 0
    cancelled: int = 0
    running: tuple[Running, ...] = ()
    slots: int = 0
    best: TrialResult | None = None
    objective: str | None = None
    typical: float | None = None
    output: deque[tuple[int, str]] = field(default_factory=deque)
    front: tuple[TrialResult, ...] = ()
    notes: deque[str] = field(default_factory=deque)

    @property
    def done(self) -> int:
        """How many trials came to an end of their own, failed ones too."""
        return self.ended - self.cancelled

    @property
    def left(self) -> float | None:
        """Seconds until the end, by what trials took so far; None where nobody can know."""
        if self.typical is None or not self.slots:
            return None
        return seconds_of(self.total - self.done, self.typical, self.slots)

    @property
    def generation(self) -> int | None:
        """The newest generation that is out; None without generations, or when nothing is out."""
        numbers = [out.attempt.trial.generation for out in self.running]
        return max((number for number in numbers if number is not None), default=None)


class Observer(Protocol):
    """Hears of each trial that came to an end, after the journal has it."""

    def ended(self, result: TrialResult, status: Status) -> None:
        """Take in a result, and how far the search is with it."""
