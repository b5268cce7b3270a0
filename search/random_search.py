"""Random search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search.counted import CountedSearch
from search.searcher import Problem
from search.space.sampling import random_point
from search.trial import Outcome

_NEW = 1_000  # points drawn for one that is not known, at the most; all may be


class RandomSearch(CountedSearch):
    """Independent uniform points of the unit cube, of those that the space's constraint allows.

    None of them is known, where the space has others.

    Args:
        problem: What to search. What is known is not tried again.
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
        """See `Searcher`; random search learns nothing."""
