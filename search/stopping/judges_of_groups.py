"""Stopping rules that compare the trials of a group with each other only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from search.direction import Direction
from search.stopping.rules import AnyOf, RuleJudge, StoppingRule
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
        self._judges: dict[str, list[RuleJudge[Any]]] = {}

    def report(self, trial: int, step: int, value: float | None) -> str | None:
        """Take in a report; return why the trial is to stop, or None."""
        return AnyOf(self._of(trial)).report(trial, step, value)

    def ended(self, trial: int, status: Status) -> None:
        """Take in the end of a trial."""
        AnyOf(self._of(trial)).ended(trial, status)

    def estimate(self, trial: int) -> float | None:
        """Return the value that a stopped trial would have had, by the first rule that has one."""
        estimates = (judge.estimate(trial) for judge in self._of(trial))
        return next((value for value in estimates if value is not None), None)

    def _of(self, trial: int) -> list[RuleJudge[Any]]:
        group = self._group_of(trial)
        if group not in self._judges:
            self._judges[group] = [rule.start(self._direction) for rule in self._rules]
        return self._judges[group]
