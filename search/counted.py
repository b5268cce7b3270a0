"""The bases of searches with a given number of trials."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from search.searcher import Problem, samples_of
from search.space.points import check_points
from search.space.tried import NONE_LEFT, Tried
from search.trial import Trial


class BudgetedSearch:
    """A `Searcher` of at most a given number of trials.

    Args:
        budget: The number of trials.

    Attributes:
        total: The number of trials; fewer than `budget` where the space is too small.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self.total = budget
        self._asked = 0  # trials handed out, in all

    @property
    def finished(self) -> bool:
        """Whether all trials were handed out."""
        return self._asked >= self.total

    @property
    def exhausted(self) -> str | None:
        """Why there are fewer trials than the budget; None if there are not."""
        return NONE_LEFT if self.total < self._budget else None

    def _try_each_once(self, tried: Tried, given: int) -> None:
        """Limit the trials to those that the user gave and the configurations not yet tried."""
        self.total = given + tried.left(self.total - given)


class CountedSearch(BudgetedSearch, ABC):
    """A `Searcher` of `samples` trials; the first ones are the user's points.

    Args:
        problem: The problem to search. `samples` is required.

    Raises:
        InvalidArgument: No `samples`, or more points than `samples`.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(samples_of(problem))
        check_points(problem.points, self.total, "samples")
        self._space = problem.space
        self._points = problem.points

    def ask(self) -> Trial | None:
        """Return the next trial, the user's points first; None after the last."""
        if self.finished:
            return None
        first = self._asked < len(self._points)
        params = self._params(self._asked, self._points[self._asked] if first else None)
        if params is None:
            self.total = self._asked
            return None
        trial = Trial(self._asked, params)
        self._asked += 1
        return trial

    @abstractmethod
    def _params(self, trial: int, given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the hyperparameters of a trial: the user's point, or new ones for None.

        None where none are left, which ends the search.
        """
