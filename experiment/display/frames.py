"""The content of a progress display at one moment, and the interface of those that show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from experiment.results.status import Running, Status
from experiment.results.tables import best_in_words, front_in_words
from experiment.results.text import count, duration, number

_MOST_METRICS = 3  # metrics shown per running trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The content of a progress display at one moment.

    Attributes:
        name: The name of the search.
        status: The state of the search.
        seconds: Seconds since its start.
        waiting: Why the search waits, other than for its trials; '' if it does not.
        now: The time of `status`, on the clock of its `running`.
        ended: Whether the search has ended, early or not.
    """

    name: str
    status: Status
    seconds: float
    waiting: str
    now: float
    ended: bool = False

    @property
    def counts(self) -> str:
        """Trials done, running and failed, and the time left."""
        status = self.status
        parts = [f"{status.done}/{count(status.total, 'trial')}"]
        if status.running:
            parts.append(f"{len(status.running)} running")
        if status.failed:
            parts.append(f"{status.failed} failed")
        if status.generation is not None:
            parts.append(f"generation {status.generation}")
        if self.ended or status.done == status.total:
            parts.append(f"took {duration(self.seconds)}")
        elif status.left is not None:
            parts.append(f"about {duration(status.left)} left")
        return ", ".join(parts)

    @property
    def best(self) -> str:
        """The best value with its hyperparameters, or the front; '' before the first value."""
        best = best_in_words(self.status.best, self.status.objective)
        return best or front_in_words(self.status.front)

    @property
    def line(self) -> str:
        """The whole frame in one line."""
        return ", ".join(filter(None, [f"{self.name}: {self.counts}", self.waiting, self.best]))


class View(Protocol):
    """One way to show a search."""

    every: float
    """Seconds between two frames."""

    def show(self, frame: Frame) -> None:
        """Show a frame instead of the one before."""

    def write(self, line: str) -> None:
        """Show a line that stays."""

    def close(self) -> None:
        """Stop updating, and leave the last frame; may be called more than once."""


def running_in_words(running: Running) -> str:
    """Return the state of a running trial: "running, step 3: loss=0.21, accuracy=0.9"."""
    if running.since is None:
        return "starting"
    if running.last is None:
        return "running"
    some = list(running.last.metrics)[:_MOST_METRICS]
    values = ", ".join(f"{name}={number(running.last.metrics[name])}" for name in some)
    return f"running, step {running.last.step}: {values}"
