"""The contract between a search algorithm and whatever evaluates its trials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from search.errors import ExperimentError
from search.trial import Outcome, Trial


class Searcher(Protocol):
    """An algorithm that proposes trials and learns from their outcomes.

    Not thread safe: one caller at a time. Several trials may be out at once, and outcomes may be
    told in any order, each once.
    """

    @property
    def total(self) -> int:
        """How many trials there will be in all."""

    @property
    def finished(self) -> bool:
        """True from the moment on when `ask` will never return a trial again.

        Trials may still be out then.
        """

    def ask(self) -> Trial | None:
        """Return the next trial, or None when there is none until something is told."""

    def tell(self, outcome: Outcome) -> None:
        """Take in the outcome of a trial that was asked for, failed ones too."""


def drive(searcher: Searcher, evaluate: Callable[[Trial], Outcome]) -> list[Outcome]:
    """Run a search with a plain function, one trial after the other.

    Returns:
        The outcomes in the order of the trials.

    Raises:
        ExperimentError: The searcher has nothing to ask although it was told everything.
    """
    outcomes: list[Outcome] = []
    while not searcher.finished:
        trial = searcher.ask()
        if trial is None:
            raise ExperimentError(f"{type(searcher).__name__} waits for an outcome, none is out")
        outcome = evaluate(trial)
        outcomes.append(outcome)
        searcher.tell(outcome)
    return outcomes
