"""The base of algorithms that propose one new configuration per `ask`."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from search.counted import CountedSearch
from search.searcher import Problem
from search.space.sampling import TRIES
from search.space.tried import Tried
from search.trial import Evaluated, Outcome


class SequentialSearch(CountedSearch):
    """A `CountedSearch` that always has another trial, whatever is in flight.

    No configuration except the user's points is tried twice, prior observations included: a space
    with fewer of them than trials ends the search early.

    Args:
        problem: The problem to search.
        rng: The generator, owned by the searcher from now on. Default: the problem's.
        repeats: Whether a configuration may be tried again once all were tried.
    """

    def __init__(
        self, problem: Problem, rng: random.Random | None = None, *, repeats: bool = False
    ) -> None:
        super().__init__(problem)
        self._goal = problem.direction
        self._rng = problem.rng if rng is None else rng
        self._tried = Tried(self._space, self._rng, problem.given, repeats=repeats)
        self._try_each_once(self._tried, len(self._points))
        self._in_flight: dict[int, list[float]] = {}  # the point of each trial

    def _params(self, trial: int, given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        point = self._new_point() if given is None else self._space.encode(given)
        if point is None:
            return None
        if given is None:  # the user's points count as tried from the start
            self._tried.add(point)
        self._in_flight[trial] = point
        return self._space.decode(point) if given is None else given

    def tell(self, outcome: Outcome) -> None:
        """Take in the scores of a trial."""
        self._take(self._in_flight.pop(outcome.trial), self._goal.scores(outcome))

    def _take_known(self, known: Sequence[Evaluated]) -> None:
        """Take in prior observations as if they were outcomes."""
        for evaluated in known:
            self._take(self._space.encode(evaluated.params), self._goal.scores(evaluated))

    def _new_point(self) -> list[float] | None:
        """Return a new point that the constraint allows; None if there is none."""
        for _ in range(TRIES):
            point = self._propose()
            if self._tried.is_new(point):
                return point
        return self._tried.another()

    @abstractmethod
    def _propose(self) -> list[float]:
        """Return a point for the next trial; called again if the point cannot be used."""

    @abstractmethod
    def _take(self, point: list[float], scores: tuple[float, ...] | None) -> None:
        """Take in an evaluated point with a score per objective; None of a failed trial."""
