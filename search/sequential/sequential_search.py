"""What algorithms share that make one trial after the other for as long as they are asked to."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from search.checks import check_integer
from search.direction import Direction
from search.searcher import Problem, one_direction, samples_of
from search.space.points import check_points
from search.space.spaces import Space
from search.space.tried import Tried
from search.trial import Evaluated, Outcome, Trial

TRIES = 20
"""Points made for a trial at the most; they may all be tried already, or not allowed."""


class SampledSearch(ABC):
    """A `Searcher` of a number of trials that always has another one, whatever is still out.

    The first trials are the points that the user gives, literally. No configuration besides is
    tried twice, or although it is known, as long as the space has others; see `search.space.tried`.

    Args:
        space: What to search.
        samples: How many trials, at least 1.
        rng: Owned by the searcher from now on.
        direction: 'max' or 'min' of the objective.
        points: Configurations to try first, counted among the samples.
    """

    def __init__(
        self,
        space: Space,
        *,
        samples: int,
        rng: random.Random,
        direction: Direction,
        points: Sequence[Mapping[str, Any]],
    ) -> None:
        check_integer("samples", samples, 1)
        check_points(points, samples, "samples")
        self.total = samples
        self._space, self._rng, self._direction = space, rng, direction
        self._points, self._tried = points, Tried(space, rng)
        self._asked = 0  # trials handed out, in all
        self._out: dict[int, list[float]] = {}  # the point of each trial

    @property
    def finished(self) -> bool:
        """See `Searcher`."""
        return self._asked >= self.total

    def ask(self) -> Trial | None:
        """See `Searcher`."""
        if self.finished:
            return None
        if self._asked < len(self._points):
            params = dict(self._points[self._asked])
            point = self._space.encode(params)
        else:
            point = self._new_point()
            params = self._space.decode(point)
        trial = Trial(self._asked, params)
        self._tried.add(point)
        self._out[trial.id] = point
        self._asked += 1
        return trial

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


def arguments_of(problem: Problem) -> dict[str, Any]:
    """Return what these searches take of a problem, by the names of their arguments.

    Raises:
        InvalidArgument: It says no number of trials, or has several objectives.
    """
    return {
        "space": problem.space,
        "samples": samples_of(problem),
        "rng": problem.rng,
        "direction": one_direction(problem),
        "points": problem.points,
        "known": problem.known,
    }
