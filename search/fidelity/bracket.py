"""Rungs and brackets of successive halving, the parts of Hyperband.

Li et al.: Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization (JMLR 18, 2018).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from search.direction import Direction


def rungs_between(low: int, high: int, reduction: int) -> list[int]:
    """Return the steps of the rungs, ascending: `high`, and `reduction` times fewer each.

    They are rounded, and none is below `low`.
    """
    rungs = [high]
    while high / reduction ** len(rungs) >= low:
        rungs.insert(0, max(1, round(high / reduction ** len(rungs))))
    return list(dict.fromkeys(rungs))


def bracket_sizes(rungs: int, reduction: int) -> list[tuple[int, list[int]]]:
    """Return the brackets of one iteration of Hyperband (Algorithm 1).

    Args:
        rungs: Number of rungs.
        reduction: Ratio of the trials of one rung to those of the next.

    Returns:
        The lowest rung of each bracket, from 0, with the numbers of trials of its rungs.
    """
    brackets = []
    for first in range(rungs):
        further = rungs - 1 - first
        count = -(-rungs * reduction**further // (further + 1))  # rounded up
        brackets.append((first, halved(count, further + 1, reduction)))
    return brackets


def halved(count: int, rungs: int, reduction: int) -> list[int]:
    """Return the numbers of trials of rungs, the first of which has `count`; at least 1 if any."""
    return [max(count // reduction**number, min(count, 1)) for number in range(rungs)]


@dataclass(slots=True, kw_only=True)
class _Rung:
    """The trials of a bracket that train equally long.

    Attributes:
        size: The number of trials that it gets in all.
        started: The number of trials that it has got.
        merits: The merits of those that have ended, by trial; None for one without a model.
        ranking: Those with a model, the best first, as (-merit, trial).
        waiting: Those of the ranking that the next rung does not have, in the same order.
    """

    size: int
    started: int = 0
    merits: dict[int, float | None] = field(default_factory=dict)
    ranking: list[tuple[float, int]] = field(default_factory=list)
    waiting: list[tuple[float, int]] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """The number of its trials that have not ended."""
        return self.size - len(self.merits)

    @property
    def ranked(self) -> int:
        """The number of its trials that have a model, or may get one."""
        return self.size - len(self.merits) + len(self.ranking)

    def ended(self, trial: int, merit: float | None) -> None:
        """Take in the merit of a trial; None for one without a model."""
        self.merits[trial] = merit
        if merit is not None:
            insort(self.ranking, (-merit, trial))
            insort(self.waiting, (-merit, trial))

    def best_waiting(self, reach: int) -> int | None:
        """Return the best trial that is not promoted, if it is among the `reach` best of all."""
        if not self.waiting or bisect_left(self.ranking, self.waiting[0]) >= reach:
            return None
        return self.waiting[0][1]

    def promote(self, trial: int) -> None:
        """Let a trial wait for no promotion any more."""
        merit = self.merits[trial]
        assert merit is not None  # it is in the ranking
        del self.waiting[bisect_left(self.waiting, (-merit, trial))]


class Bracket:
    """One bracket of successive halving: of the trials of a rung, the best train longer.

    Args:
        first: The lowest rung, from 0.
        sizes: The number of trials of each rung.
        reduction: Ratio of the trials of one rung to those of the next.
        direction: Direction of the objective.
    """

    def __init__(
        self, first: int, sizes: Sequence[int], reduction: int, direction: Direction
    ) -> None:
        self.first = first
        self._reduction = reduction
        self._direction = direction
        self._rungs = [_Rung(size=size) for size in sizes]

    @property
    def total(self) -> int:
        """The number of its trials; lower once some have failed, or the space is used up."""
        return sum(rung.size for rung in self._rungs)

    @property
    def room(self) -> int:
        """The number of further configurations that it gets."""
        return self._rungs[0].size - self._rungs[0].started

    def ranked(self, rung: int) -> int:
        """Return the number of a rung's trials that have ended with a model, or may do so."""
        return self._rungs[rung - self.first].ranked

    def limit(self, most: int) -> int:
        """Give it no more than `most` further configurations; return how many it gets."""
        count = min(self.room, most)
        sizes = halved(self._rungs[0].started + count, len(self._rungs), self._reduction)
        for rung, size in zip(self._rungs, sizes, strict=True):
            rung.size = max(min(rung.size, size), rung.started)
        self._shrink()
        return count

    def begin(self) -> None:
        """Count a new configuration."""
        self._rungs[0].started += 1

    def promotion(self, highest: int, *, certain: bool) -> tuple[int, int] | None:
        """Return a rung that a trial is promoted to, with the trial; None if there is none.

        Args:
            highest: The highest rung that a trial may reach.
            certain: Whether to promote only trials that will be among the best of their rung
                however its others end. Otherwise those that are among the best so far, as in ASHA
                (Li et al.: A System for Massively Parallel Hyperparameter Tuning, MLSys 2020).
        """
        for number in reversed(range(min(len(self._rungs) - 1, highest - self.first))):
            rung, above = self._rungs[number], self._rungs[number + 1]
            if above.started >= above.size:
                continue
            reach = above.size - rung.missing if certain else len(rung.merits) // self._reduction
            trial = rung.best_waiting(reach)
            if trial is not None:
                return self.first + number + 1, trial
        return None

    def promote(self, rung: int, trial: int) -> None:
        """Count a trial, from the rung below, that is promoted to a rung."""
        self._rungs[rung - self.first].started += 1
        self._rungs[rung - self.first - 1].promote(trial)

    def ended(self, rung: int, trial: int, score: float | None) -> None:
        """Take in the score of a trial of a rung; None if it cannot be promoted."""
        merit = None if score is None else self._direction.merit(score)
        self._rungs[rung - self.first].ended(trial, merit)
        self._shrink()

    def _shrink(self) -> None:
        """Lower the sizes of rungs that cannot get so many trials."""
        for rung, above in zip(self._rungs, self._rungs[1:], strict=False):
            above.size = max(min(above.size, rung.ranked), above.started)
