"""What algorithms share that make one trial after the other for as long as they are asked to."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from search.counted import CountedSearch
from search.searcher import Problem, one_direction
from search.space.tried import Tried
from search.trial import Evaluated, Outcome

TRIES = 20
"""Points made for a trial at the most; they may all be tried already, or not allowed."""


class SampledSearch(CountedSearch):
    """A `CountedSearch` that always has another trial, whatever is still out.

    No configuration besides the points of the user is tried twice, or although it is known, as long
    as the space has others; see `search.space.tried`.

    Args:
        problem: What to search, by one objective.
        rng: Owned by the searcher from now on; that of the problem when left out.
    """

    def __init__(self, problem: Problem, rng: random.Random | None = None) -> None:
        self._direction = one_direction(problem)
        super().__init__(problem)
        self._rng = problem.rng if rng is None else rng
        self._tried = Tried(self._space, self._rng)
        self._out: dict[int, list[float]] = {}  # the point of each trial

    def _params(self, trial: int, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
        point = self._new_point() if given is None else self._space.encode(given)
        self._tried.add(point)
        self._out[trial] = point
        return self._space.decode(point) if given is None else given

    def tell(self, outcome: Outcome) -> None:
        """See `Searcher`."""
        self._take(self._out.pop(outcome.trial), self._score(outcome.value))

    def _take_known(self, known: Sequence[Evaluated]) -> None:
        """Take in what was evaluated before, as if it were told."""
        for evaluated in known:
            point = self._space.encode(evaluated.params)
            self._tried.add(point)
            self._take(point, self._score(evaluated.value))

    def _score(self, value: float | None) -> float | None:
        return value if self._direction.better(value, None) else None

    def _new_point(self) -> list[float]:
        """Return a point that the constraint allows and that was not tried, while there is one."""
        for _ in range(TRIES):
            point = self._propose()
            if point not in self._tried and self._space.allows(point):
                return point
        return self._tried.another()

    @abstractmethod
    def _propose(self) -> list[float]:
        """Return a point for the next trial; one that cannot be used is asked for again."""

    @abstractmethod
    def _take(self, point: list[float], score: float | None) -> None:
        """Take in a point that was evaluated; the score is None where that failed."""
