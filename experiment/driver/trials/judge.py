"""What trials report and return, held to the objective of the search and to its stopping rules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from experiment.run_files.run_state import RunState
from search.direction import Direction, Directions, Goal
from search.errors import shown
from search.stopping import StoppingJudge, StoppingRule, start_all
from search.trial import Outcome
from spark_jobs.messages import Report
from spark_jobs.trial.objective import objective_of
from spark_jobs.trial.trial_process import stopped

_MOST_NAMED = 10  # metrics in a warning


class Verdict(NamedTuple):
    """What the rules make of reports.

    Attributes:
        reason: Why the trial is to stop; None where it may go on.
        reports: What was reported of the objective, and of nothing else.
    """

    reason: str | None
    reports: list[Report]


class Judge:
    """Holds outcomes to the objective's name, and asks the rules which trials are to stop.

    Args:
        direction: Of the objective, or of each of several; then there is no stopping.
        optimization_key: Which of the metrics that trials report is the objective.
        stopping: Rules by which trials are stopped.
        further: Stops trials, too; None where only the rules do.
        state: Of the run: what its outcomes have called the objective.
        warn: Shows the user a sentence, each once.

    Attributes:
        rules: Are there any?
    """

    def __init__(
        self,
        direction: Goal,
        optimization_key: str | None,
        stopping: Sequence[StoppingRule],
        further: StoppingJudge | None = None,
        *,
        state: RunState,
        warn: Callable[[str], None],
    ) -> None:
        self._direction = direction
        self._key = optimization_key
        self._state = state
        self._warn = warn
        self._objective_of = objective_of(optimization_key, direction)
        self._rules = None
        if (stopping or further is not None) and isinstance(direction, Direction):
            self._rules = start_all(stopping, direction, further)
        self._who = "stopping=" if stopping else "the searcher's pruner"
        self._unjudged: dict[int, list[str]] = {}  # what trials reported instead of the objective
        self._judged = False  # has any report told the rules of the objective?
        self._named = False  # has any trial returned something by the name of the objective?

    @property
    def rules(self) -> bool:
        """Are there rules by which trials are stopped?"""
        return self._rules is not None

    def report(self, trial: int, reports: Sequence[Report]) -> Verdict:
        """Return what the rules make of what a trial reported.

        Raises:
            AmbiguousObjective: Nobody can say which metric is the objective.
        """
        reason: str | None = None
        judged: list[Report] = []
        for report in reports if self._rules is not None else ():
            name = self._objective_of.reported(report.metrics)
            if name is None:
                self._unjudged[trial] = list(itertools.islice(report.metrics, _MOST_NAMED))
            else:
                value = report.metrics[name]
                judged.append(Report(report.step, {name: value}))
                reason = self.replay(trial, report.step, value)
        return Verdict(reason, judged)

    def replay(self, trial: int, step: int, value: float) -> str | None:
        """Tell the rules of a value of the objective; return why the trial is to stop."""
        assert self._rules is not None, "only where there are any"
        self._judged = True
        return self._rules.report(trial, step, value)

    def ended(self, outcome: Outcome) -> None:
        """Take in the end of a trial, and tell the rules of it."""
        error = outcome.error
        unusable = error is not None and error.kind == "invalid value"
        self._named = self._named or unusable or outcome.status == "finished"
        if self._rules is None:
            return
        self._rules.ended(outcome.trial, outcome.status)
        names = self._unjudged.pop(outcome.trial, [])
        if outcome.status == "finished" and not self._judged:
            said = ", ".join(map(repr, names)) or "nothing"
            wanted = self._key or outcome.objective
            self._warn(
                f"{self._who} goes by what trials report of {wanted!r}, and they report {said}: "
                "none of them is judged"
            )

    def stopped(self, trial: int, reason: str, last: Report | None, seconds: float) -> Outcome:
        """Return the outcome of a trial that was to stop and did not come to say so itself."""
        return stopped(self._objective_of, trial, reason, last, seconds)

    def scored(self, outcome: Outcome) -> Outcome:
        """Return an outcome for the searcher, which takes back nothing that it was told.

        What a stopped trial reported is its value once it is sure that it is called so.
        """
        sure = self._state.named_by_finished or self._key is not None
        return outcome if sure or outcome.status != "stopped" else replace(outcome, value=None)

    def held(self, outcome: Outcome) -> Outcome:
        """Hold an outcome to the objectives of the search, which a slot may not know.

        A key of the user that the first trials lack is wrong; later, it is the trial that is.
        """
        error = outcome.error
        if error is not None and error.kind == "ambiguous objective" and self._key and self._named:
            return replace(outcome, error=replace(error, kind="invalid value"))
        names = self._direction.names if isinstance(self._direction, Directions) else ()
        if not names and not outcome.values:
            return self.held_to_one(outcome)
        has_none = outcome.value is None and not outcome.values
        if has_none or (names and set(outcome.values) == set(names)):
            return outcome
        wanted = f"the objectives {', '.join(map(repr, names))}" if names else "one objective"
        message = f"want {wanted}, got {shown(dict(outcome.values) or outcome.objective)}"
        return Outcome.failed(outcome.trial, "invalid value", message, seconds=outcome.seconds)

    def held_to_one(self, outcome: Outcome) -> Outcome:
        """Hold an outcome to the objective's name, which the state of the run knows."""
        if outcome.objective is None:
            return outcome
        before, name = self._state.objective, self._state.objective_with(outcome)
        if before not in (None, name):
            self._warn_of_names(before, name)
        if outcome.objective == name:
            return outcome
        if outcome.status == "stopped":  # what it reported cannot be told from another quantity
            self._warn_of_names(outcome.objective, name)
            return replace(outcome, value=None)
        message = f"the objective is {outcome.objective!r}, it was {name!r} before"
        return Outcome.failed(outcome.trial, "invalid value", message, seconds=outcome.seconds)

    def _warn_of_names(self, reported: str | None, returned: str | None) -> None:
        self._warn(
            f"trials report {reported!r} and return {returned!r}, so those that are stopped have "
            f"no value; if the two are the same, say optimization_key={reported!r}"
        )
