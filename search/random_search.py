"""Random search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search.counted import CountedSearch
from search.searcher import Problem
from search.space.sampling import random_point
from search.space.tried import Tried
from search.trial import Outcome, Trial


class RandomSearch(CountedSearch):
    """Uniform points of the unit cube that the space's constraint allows.

    Independent of each other, except that no configuration is tried twice, prior observations
    included: a space with fewer of them ends the search early. The user's points are tried in any
    case.

    Args:
        problem: The problem to search.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._rng = problem.rng
        self._tried = Tried(self._space, self._rng, problem.given)
        self._try_each_once(self._tried, len(self._points))

    def _params(self, trial: int, given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        if given is not None:
            return given
        point = self._tried.another()
        if point is None:
            return None
        self._tried.add(point)
        return self._space.decode(point)

    def ask_again(self, trial: Trial) -> Trial | None:
        """Return the next trial, or the recorded one if its configuration was tried before.

        Such trials are in runs that were begun when random search drew each trial alone.
        """
        repeated = trial.id >= len(self._points) and self._space.encode(trial.params) in self._tried
        if trial.id != self._asked or not repeated:
            return self.ask()
        random_point(self._space, self._rng)  # as when it was recorded
        self.total = min(self.total + 1, self._budget)
        self._asked += 1
        return trial

    def tell(self, outcome: Outcome) -> None:
        """Do nothing: random search learns nothing."""
