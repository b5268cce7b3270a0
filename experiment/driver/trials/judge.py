"""Checks outcomes against the objective of the search, and reports against its stopping rules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from experiment.run_files.run_state import RunState
from search.direction import Direction, Directions, Goal
from search.errors import shown
from search.stopping.judges_of_groups import JudgesOfGroups
from search.stopping.rules import AnyOf, StoppingJudge, StoppingRule
from search.trial import Outcome
from spark_jobs.messages import Report
from spark_jobs.trial.objective import objective_of
from spark_jobs.trial.trial_process import stopped

_MOST_NAMED = 10  # metrics in a warning


class Judge:
    """Checks the objective's name in outcomes, and applies the stopping rules to reports.

    Args:
        direction: Direction of the objective, or of each of several; then no trial is stopped.
        optimization_key: The name of the objective among the reported metrics.
        stopping: The stopping rules.
        further: The searcher's own judge, or None.
        repeats: Number of calls of the train function in each trial.
        group_of: Returns a trial's group; trials of several groups are not compared.
        state: The state of the run, with the objective's name.
        warn: Called with each warning for the user, once.

    Attributes:
        rules: Whether there are stopping rules.
    """

    def __init__(
        self,
        direction: Goal,
        optimization_key: str | None,
        stopping: Sequence[StoppingRule],
        further: StoppingJudge | None = None,
        *,
        repeats: int = 1,
        group_of: Callable[[int], str] = lambda trial: "",
        state: RunState,
        warn: Callable[[str], None],
    ) -> None:
        self._direction = direction
        self._key = optimization_key
        self._repeats = repeats
        self._state = state
        self._warn = warn
        self._objective_of = objective_of(optimization_key, direction)
        self._rules: StoppingJudge | None = None
        self._own: JudgesOfGroups | None = None
        if (stopping or further is not None) and isinstance(direction, Direction):
            self._own = JudgesOfGroups(stopping, direction, group_of)
            self._rules = AnyOf([self._own] if further is None else [self._own, further])
        # A searcher's judge may stop no trial: it learns from reports which ones to train longer.
        self._who = "stopping=" if stopping else "the searcher"
        self._without = "stops none of them" if stopping else "learns from their outcomes alone"
        self._unjudged: dict[int, list[str]] = {}  # metrics reported instead of the objective
        self._judged = False  # whether any report had the objective
        self._named = False  # whether any trial has returned the objective

    @property
    def rules(self) -> bool:
        """Whether there are stopping rules."""
        return self._rules is not None

    def report(self, trial: int, reports: Sequence[Report]) -> tuple[str | None, list[Report]]:
        """Return why the rules stop a trial, or None, and its reports of the objective alone.

        Raises:
            AmbiguousObjective: It is not clear which metric is the objective.
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
        return reason, judged

    def replay(self, trial: int, step: int, value: float) -> str | None:
        """Pass a value of the objective to the rules; return why the trial has to stop, or None."""
        assert self._rules is not None, "called without stopping rules"
        self._judged = True
        return self._rules.report(trial, step, value)

    def ended(self, outcome: Outcome) -> None:
        """Pass the end of a trial to the rules."""
        error = outcome.error
        unusable = error is not None and error.kind == "invalid value"
        self._named = self._named or unusable or outcome.status == "finished"
        if self._rules is None:
            return
        self._rules.ended(outcome.trial, outcome.status)
        names = self._unjudged.pop(outcome.trial, [])
        if outcome.status == "finished" and not self._judged:
            reported = ", ".join(map(repr, names)) or "nothing"
            wanted = self._key or outcome.objective
            self._warn(
                f"{self._who} needs reports of {wanted!r}, but trials report {reported}, so it "
                f"{self._without}"
            )

    def stopped(self, trial: int, reason: str, last: Report | None, seconds: float) -> Outcome:
        """Return the outcome of a trial that had to stop and sent no outcome itself."""
        report = last if self._repeats == 1 else None  # the last repeat is not the mean
        return self.held(stopped(self._objective_of, trial, reason, report, seconds))

    def scored(self, outcome: Outcome) -> Outcome:
        """Return an outcome for the searcher, which cannot withdraw one.

        A stopped trial's report is its value only once the objective's name is certain.
        """
        sure = self._state.named_by_finished or self._key is not None
        return outcome if sure or outcome.status != "stopped" else replace(outcome, value=None)

    def held(self, outcome: Outcome) -> Outcome:
        """Return an outcome after a check of its objectives, which a slot may not know.

        If the first trials lack the user's key, the key is wrong; later the trial is.
        """
        error = outcome.error
        if error is not None and error.kind == "ambiguous objective" and self._key and self._named:
            return replace(outcome, error=replace(error, kind="invalid value"))
        names = self._direction.names if isinstance(self._direction, Directions) else ()
        if not names and not outcome.values:
            return self._estimated(self._held_to_one(outcome))
        has_none = outcome.value is None and not outcome.values
        if has_none or (names and set(outcome.values) == set(names)):
            return outcome
        wanted = f"the objectives {', '.join(map(repr, names))}" if names else "one objective"
        message = f"want {wanted}, got {shown(dict(outcome.values) or outcome.objective)}"
        return Outcome.failed(outcome.trial, "invalid value", message, seconds=outcome.seconds)

    def _estimated(self, outcome: Outcome) -> Outcome:
        """Return an outcome with the value that a rule estimates for a trial that it stopped.

        Also without a value of its own, as of a trial with repeats that was lost.
        """
        if self._own is None or outcome.status != "stopped":
            return outcome
        if outcome.value is None and outcome.objective is not None:  # of another metric, or NaN
            return outcome
        value = self._own.estimate(outcome.trial)
        if value is None:
            return outcome
        name = self._state.objective_with(outcome)
        metrics = outcome.metrics if name is None else {**outcome.metrics, name: value}
        return replace(outcome, value=value, objective=name, metrics=metrics)

    def _held_to_one(self, outcome: Outcome) -> Outcome:
        """Return an outcome after a check of its objective's name."""
        if outcome.objective is None:
            return outcome
        before, name = self._state.objective, self._state.objective_with(outcome)
        if before not in (None, name):
            self._warn_of_names(before, name)
        if outcome.objective == name:
            return outcome
        if outcome.status == "stopped":  # its report may be of another metric
            self._warn_of_names(outcome.objective, name)
            return replace(outcome, value=None)
        message = f"the objective is {outcome.objective!r}, it was {name!r} before"
        return Outcome.failed(outcome.trial, "invalid value", message, seconds=outcome.seconds)

    def _warn_of_names(self, reported: str | None, returned: str | None) -> None:
        self._warn(
            f"trials report {reported!r} and return {returned!r}, so those that are stopped have "
            f"no value; if the two are the same, set optimization_key={reported!r}"
        )
