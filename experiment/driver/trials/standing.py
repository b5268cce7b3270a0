"""The status of a search: counts, the best trials, the output of trials, notes about slots."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from experiment.results.status import Observer, Output, Overview
from experiment.results.trial_result import TrialResult
from experiment.run_files.run_state import RunState
from search.direction import Direction, Goal

_MOST_OUTPUT = 1_000  # pieces that wait to be shown


class Standing:
    """Keeps the status of a search, and passes each result to observers.

    `overview` is thread safe: each part of it is read at once.

    Args:
        state: The state of the run, which has the results.
        direction: Direction of the objective, or of each of several.
        target: The objective's value at which the search ends, or None.
        observers: Observers that receive each result, in this order.
        warn: Called with each warning for the user.

    Attributes:
        observers: The remaining observers: one that raises is removed.
        failed: Number of failed trials.
        output: Pieces of the trials' output; the consumer removes entries.
        notes: Notes about the slots for the user; the consumer removes entries.
    """

    def __init__(
        self,
        state: RunState,
        *,
        direction: Goal,
        target: float | None,
        observers: Iterable[Observer],
        warn: Callable[[str], None],
    ) -> None:
        self._state = state
        self._direction = direction
        self._target = target
        self._warn = warn
        self.observers = list(observers)
        self.output: deque[Output] = deque(maxlen=_MOST_OUTPUT)
        self.notes: deque[str] = deque(maxlen=_MOST_OUTPUT)
        self.failed = 0
        self._cancelled = 0
        self._finished = 0
        self._seconds = 0.0  # total of the finished trials
        self._objective: str | None = None  # the objective of the front's values
        self._front: list[TrialResult] = []  # replaced, never changed: other threads read it

    @property
    def target_reached(self) -> bool:
        """Whether the best trial has reached the target, so that the search ends."""
        if not isinstance(self._direction, Direction):
            return False
        return any(self._direction.reaches(best.value, self._target) for best in self._front)

    def take(self, result: TrialResult) -> None:
        """Count the newest result of the run's state."""
        if self._objective not in (None, self._state.objective):
            self._front = []  # its values were of another metric
        self._objective = self._state.objective
        self.failed += result.status == "failed"
        self._cancelled += result.status == "cancelled"
        if result.status == "finished":  # failed ones may end at once, and distort the estimate
            self._finished += 1
            self._seconds += result.seconds
        self._front = self._direction.joined(self._front, result)

    def tell(self, result: TrialResult, overview: Overview) -> None:
        """Pass a result to the observers."""
        for observer in list(self.observers):
            try:
                observer.ended(result, overview)
            except Exception as error:  # a full disk under TensorBoard's files must not end it
                self.observers.remove(observer)
                self._warn(f"{type(observer).__name__} is left out from now on: {error}")

    def overview(self, *, total: int, in_flight: int, slots: int, at_once: int) -> Overview:
        """Return the state of the search.

        Args:
            total: Number of trials of the search.
            in_flight: Number of trials in flight.
            slots: Number of slots.
            at_once: Number of trials that these slots run at once.
        """
        front, results = tuple(self._front), self._state.results
        return Overview(
            total=total,
            results=results,
            ended=len(results),
            failed=self.failed,
            cancelled=self._cancelled,
            in_flight=in_flight,
            slots=slots,
            at_once=at_once,
            best=front[0] if front and isinstance(self._direction, Direction) else None,
            objective=self._state.objective,
            typical=self._seconds / self._finished if self._finished > 1 else None,
            output=self.output,
            front=front,
            notes=self.notes,
        )
