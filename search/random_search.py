"""Random search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search.counted import CountedSearch
from search.searcher import Problem
from search.space.sampling import random_point
from search.trial import Outcome

_NEW = 1_000  # maximum draws for a new point; all points may be prior observations


class RandomSearch(CountedSearch):
    """Independent uniform points of the unit cube that the space's constraint allows.

    Args:
        problem: The problem to search. Prior observations are not tried again while the space has
            other points.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._rng = problem.rng
        self._known = {self._space.snap(self._space.encode(item.params)) for item in problem.known}

    def _params(self, trial: int, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
        return self._space.decode(self._draw()) if given is None else given

    def _draw(self) -> list[float]:
        for _ in range(_NEW):
            point = random_point(self._space, self._rng)
            if not self._known or self._space.snap(point) not in self._known:
                break
        return point

    def tell(self, outcome: Outcome) -> None:
        """Do nothing: random search learns nothing."""
