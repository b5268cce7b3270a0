"""Stopping rules that compare the trials of a group with each other only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from search.direction import Direction
from search.stopping.rules import StoppingJudge, StoppingRule, start_all
from search.trial import Status


class JudgesOfGroups:
    """Judges each trial by the rules of its group; see `StoppingJudge`.

    Args:
        rules: The rules, which are started for each group.
        direction: Direction of the objective.
        group_of: Returns a trial's group.
    """

    def __init__(
        self,
        rules: Sequence[StoppingRule],
        direction: Direction,
        group_of: Callable[[int], str],
    ) -> None:
        self._rules = rules
        self._direction = direction
        self._group_of = group_of
        self._judges: dict[str, StoppingJudge] = {}

    def report(self, trial: int, step: int, value: float | None) -> str | None:
        """Take in a report; return why the trial is to stop, or None."""
        return self._of(trial).report(trial, step, value)

    def ended(self, trial: int, status: Status = "finished") -> None:
        """Take in the end of a trial."""
        self._of(trial).ended(trial, status)

    def _of(self, trial: int) -> StoppingJudge:
        group = self._group_of(trial)
        if group not in self._judges:
            self._judges[group] = start_all(self._rules, self._direction)
        return self._judges[group]
