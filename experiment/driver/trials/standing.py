"""What is shown of a search: counts, the best trials, what trials print, notes about slots."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from experiment.results.status import Observer, Running, Status
from experiment.results.trial_result import TrialResult
from experiment.run_files.run_state import RunState
from search.direction import Direction, Goal

_MOST_OUTPUT = 1_000  # pieces that wait to be shown


class Standing:
    """Keeps what is shown of a search, and tells observers of each result.

    `status` is safe to call from another thread: each part of it is read at once.

    Args:
        state: The state of the run, which has the results.
        direction: Direction of the objective, or of each of several.
        target: A value of the objective with which the search ends; None goes on without.
        observers: They hear of each result in this order.
        warn: Shows the user a sentence.

    Attributes:
        observers: Those that hear of results; one that raises is left out from then on.
        failed: The number of failed trials.
        output: Trial and text of what trials printed, until it is shown.
        notes: What people should know of the slots, until it is shown.
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
        self.output: deque[tuple[int, str]] = deque(maxlen=_MOST_OUTPUT)
        self.notes: deque[str] = deque(maxlen=_MOST_OUTPUT)
        self.failed = 0
        self._cancelled = 0
        self._finished = 0
        self._seconds = 0.0  # that the finished trials took in all
        self._objective: str | None = None  # which the values of the front are of
        self._front: list[TrialResult] = []  # replaced, since other threads look at it

    @property
    def target_reached(self) -> bool:
        """Is the best trial as good as the target, so that no more is to be tried?"""
        if not isinstance(self._direction, Direction):
            return False
        return any(self._direction.reaches(best.value, self._target) for best in self._front)

    def take(self, result: TrialResult) -> None:
        """Count the newest result of the run's state."""
        if self._objective not in (None, self._state.objective):
            self._front = []  # of trials whose values are another quantity's
        self._objective = self._state.objective
        self.failed += result.status == "failed"
        self._cancelled += result.status == "cancelled"
        if result.status == "finished":  # failed ones may end at once, and would promise too much
            self._finished += 1
            self._seconds += result.seconds
        self._front = self._direction.joined(self._front, result)

    def tell(self, result: TrialResult, status: Status) -> None:
        """Tell the observers of a result."""
        for observer in list(self.observers):
            try:
                observer.ended(result, status)
            except Exception as error:  # a full disk under TensorBoard's files ends no search
                self.observers.remove(observer)
                self._warn(f"{type(observer).__name__} is left out from now on: {error}")

    def status(self, *, total: int, running: tuple[Running, ...], slots: int) -> Status:
        """Return how far the search is.

        Args:
            total: The number of trials of the search.
            running: The trials that run.
            slots: The number of slots.
        """
        front, results = tuple(self._front), self._state.results
        return Status(
            total=total,
            results=results,
            ended=len(results),
            failed=self.failed,
            cancelled=self._cancelled,
            running=running,
            slots=slots,
            best=front[0] if front and isinstance(self._direction, Direction) else None,
            objective=self._state.objective,
            typical=self._seconds / self._finished if self._finished > 1 else None,
            output=self.output,
            front=front,
            notes=self.notes,
        )
