"""What searches share that are told how many trials to make: the points of the user come first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from search.searcher import Problem, samples_of
from search.space.points import check_points
from search.trial import Trial


class CountedSearch(ABC):
    """A `Searcher` of a number of trials; the first ones are the points that the user gives.

    Args:
        problem: What to search. `samples` is required.

    Attributes:
        total: See `Searcher`.

    Raises:
        InvalidArgument: No `samples`, or more points than those.
    """

    def __init__(self, problem: Problem) -> None:
        self.total = samples_of(problem)
        check_points(problem.points, self.total, "samples")
        self._space = problem.space
        self._points = problem.points
        self._asked = 0  # trials handed out, in all

    @property
    def finished(self) -> bool:
        """See `Searcher`."""
        return self._asked >= self.total

    def ask(self) -> Trial | None:
        """See `Searcher`."""
        if self.finished:
            return None
        first = self._asked < len(self._points)
        params = self._params(self._asked, self._points[self._asked] if first else None)
        trial = Trial(self._asked, params)
        self._asked += 1
        return trial

    @abstractmethod
    def _params(self, trial: int, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return what a trial tries: what the user gives, literally, or a new point for None."""
