"""The next attempts of trials: retries, and outcomes found in trial folders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from experiment.run_files.left_outcomes import LeftBehind
from experiment.run_files.run_state import RunState
from search.trial import FailureKind, Outcome, Trial
from spark_jobs.messages import Attempt


class NextAttempts:
    """Decides which attempt comes next, by the state of the run.

    Args:
        state: The state of the run; only read.
        retries: Maximum number of retries of a trial.
        retry_on: The kinds of failures that are retried.
        held: Returns an outcome after a check of its objectives.
    """

    def __init__(
        self,
        state: RunState,
        *,
        retries: int,
        retry_on: Collection[FailureKind],
        held: Callable[[Outcome], Outcome],
    ) -> None:
        self._state = state
        self._held = held
        self._retries = retries
        self._retry_on = retry_on
        self._left: dict[int, LeftBehind] = {}
        self._least: dict[int, int] = {}  # the least number of a trial's next attempt

    def found(self, left: Iterable[LeftBehind]) -> None:
        """Keep the outcomes found in trial folders."""
        self._left = {found.trial: found for found in left}

    def end_found(self, trial: Trial, stop: str = "") -> tuple[Attempt, Outcome] | None:
        """Return the outcome in a trial's folder, with its attempt; None if it has no such end.

        Call it once, before the trial runs; `stop` as for `is_retried`.
        """
        left = self._left.pop(trial.id, None)
        if left is None:
            return None
        if end := left.end_of(trial):
            attempt, outcome = end[0], self._held(end[1])
            if not self.is_retried(outcome, stop):
                return attempt, outcome
        self._least[trial.id] = left.attempts + 1
        return None

    def is_retried(self, outcome: Outcome, stop: str = "") -> bool:
        """Return whether a trial with this outcome, whose objectives were checked, has not ended.

        It runs again, or ends as stopped if it had to stop; that needs no retry.

        Args:
            outcome: The outcome.
            stop: Why the trial had to stop, or ''.
        """
        error = outcome.error
        return (
            error is not None
            and error.kind in self._retry_on
            and (bool(stop) or self._state.retried[outcome.trial] < self._retries)
        )

    def first(self, trial: Trial) -> Attempt:
        """Return the first attempt of a trial that the searcher has just proposed."""
        return self._numbered(Attempt(trial))

    def again(
        self, pick: Callable[[int], tuple[str, ...]]
    ) -> tuple[Attempt, tuple[str, ...]] | None:
        """Return the next attempt of a trial that is waiting to run again, with its slots, or None.

        Args:
            pick: Returns the slots for a trial; empty if it must not run on those that are free.
        """
        for trial, attempt in self._state.waiting.items():
            if slots := pick(trial):
                return self._numbered(attempt), slots
        return None

    def before(self) -> list[Attempt]:
        """Return the last attempts of the trials that are waiting to run again."""
        waiting = map(self._numbered, self._state.waiting.values())
        return [Attempt(again.trial, again.number - 1) for again in waiting]

    def _numbered(self, attempt: Attempt) -> Attempt:
        """Return the attempt with a number that no folder of its trial has."""
        least = self._least.get(attempt.trial.id, 0)
        return Attempt(attempt.trial, max(attempt.number, least))
