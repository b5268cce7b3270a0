"""Stopping rules: decide from reports which trials end early.

A rule is a value without state. `rule.start(direction)` returns the judge of one search, which
receives the trials' reports and returns why a trial is to stop.

The arguments, their defaults and the meaning of a step are those of Optuna's pruners, except for
`Patience`, which is Keras' `EarlyStopping`.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from array import array
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from search.checks import check_integer, check_number, make_plain
from search.direction import Direction
from search.errors import InvalidArgument, shown
from search.trial import Status
from search.values import is_finite


class StoppingJudge(Protocol):
    """Judges the trials of one search. Not thread safe.

    The judgement depends on the reports and their order only: the same calls get the same answers.
    """

    def report(self, trial: int, step: int, value: float | None) -> str | None:
        """Take in a report of a running trial; return why it is to stop, or None to continue.

        Args:
            trial: The trial's id.
            step: The step, from 0. A step at or before the trial's last one is ignored, so the
                reports of a retried trial count once it gets further than before.
            value: The value; None, NaN and infinities lose to every number.

        Returns:
            The reason in one line, the same one for all further reports of the trial.
        """

    def ended(self, trial: int, status: Status) -> None:
        """Take in the end of a trial; its further reports are ignored.

        Its earlier reports may still count: with `MedianStopping` those of finished trials only; a
        rung of `SuccessiveHalving` keeps every value.
        """


@dataclass(frozen=True, slots=True)
class StoppingRule(ABC):
    """The base of all stopping rules, which have no state and are equal if their arguments are."""

    @abstractmethod
    def start(self, direction: Direction) -> RuleJudge[Any]:
        """Return the judge of a search with this direction."""

    def to_json(self) -> dict[str, Any]:
        """Return the rule as JSON."""
        return {"type": type(self).__name__, **dataclasses.asdict(self)}


@dataclass(frozen=True, slots=True)
class MedianStopping(StoppingRule):
    """Stop a trial whose best value so far is worse than the median of others at this step.

    Golovin et al.: Google Vizier (KDD 2017), section 3.2.1, where the others are the finished
    trials; as in Optuna's `MedianPruner` their values at the step count, not their averages up to
    it. No trial is stopped before `n_startup_trials` have finished: with about as many slots as
    trials, `SuccessiveHalving` saves more.

    Only the first report of each interval is compared, with the others' first report in the same
    interval, so with a wide interval trials need not report at the same steps.

    Args:
        n_startup_trials: Finished trials that must have reported a step before a trial is stopped
            at it, at least 1. Optuna counts finished trials without that report, too.
        n_warmup_steps: No trial is stopped at a step below this one.
        interval_steps: The length of an interval; the first one begins at `n_warmup_steps`.

    Raises:
        InvalidArgument: An argument is not an integer or too small.
    """

    n_startup_trials: int = 5
    n_warmup_steps: int = 0
    interval_steps: int = 1

    def __post_init__(self) -> None:
        make_plain(self)
        check_integer("n_startup_trials", self.n_startup_trials, 1)
        check_integer("n_warmup_steps", self.n_warmup_steps, 0)
        check_integer("interval_steps", self.interval_steps, 1)

    def start(self, direction: Direction) -> RuleJudge[Any]:
        """Return the judge of a search."""
        return _MedianJudge(self, direction)


@dataclass(frozen=True, slots=True)
class SuccessiveHalving(StoppingRule):
    """Stop a trial that is not among the best of those that have reached a rung.

    The asynchronous form, ASHA, of Li et al.: A System for Massively Parallel Hyperparameter Tuning
    (MLSys 2020), as in Optuna's `SuccessiveHalvingPruner`: no trial is paused. A trial reaches rung
    k = 0, 1, 2, ... with its first report at or after step `min_resource * reduction_factor
    ** (min_early_stopping_rate + k)`. The n-th trial to reach a rung continues if fewer than
    max(1, floor(n / reduction_factor)) of those before it have a better value. So the best so far
    always continues, and a value that is not finite never does. If the order of trials has nothing
    to do with their values, about one in `reduction_factor` continues; if each is better than all
    before it, all do.

    Args:
        min_resource: The step of the first rung, at least 1.
        reduction_factor: Ratio of one rung's step to the next, at least 2.
        min_early_stopping_rate: The number of lowest rungs to leave out.

    Raises:
        InvalidArgument: An argument is not an integer or too small.
    """

    min_resource: int = 1
    reduction_factor: int = 4
    min_early_stopping_rate: int = 0

    def __post_init__(self) -> None:
        make_plain(self)
        check_integer("min_resource", self.min_resource, 1)
        check_integer("reduction_factor", self.reduction_factor, 2)
        check_integer("min_early_stopping_rate", self.min_early_stopping_rate, 0)

    def start(self, direction: Direction) -> RuleJudge[Any]:
        """Return the judge of a search."""
        return _HalvingJudge(self, direction)


@dataclass(frozen=True, slots=True)
class Threshold(StoppingRule):
    """Stop a trial that reports a value outside two bounds, or one that is not finite.

    Optuna's `ThresholdPruner`. The bounds hold for either direction.

    Args:
        lower: Lower bound; values below it stop the trial.
        upper: Upper bound; values above it stop the trial.
        n_warmup_steps: No trial is stopped at a step below this one.

    Raises:
        InvalidArgument: Neither bound, a bound that is not finite, or `lower` above `upper`.
    """

    lower: float | None = None
    upper: float | None = None
    n_warmup_steps: int = 0

    def __post_init__(self) -> None:
        make_plain(self)
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if bound is not None:
                check_number(name, bound, "a finite number", is_finite)
        if self.lower is None and self.upper is None:
            raise InvalidArgument("Threshold", "a number for lower, upper or both", "neither")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            got = f"lower={self.lower}, upper={self.upper}"
            raise InvalidArgument("Threshold", "lower at most upper", got)
        check_integer("n_warmup_steps", self.n_warmup_steps, 0)

    def start(self, direction: Direction) -> RuleJudge[Any]:
        """Return the judge of a search."""
        return _ThresholdJudge(self, direction)


@dataclass(frozen=True, slots=True)
class Patience(StoppingRule):
    """Stop a trial that has not improved on its best value for some reports.

    Keras' `EarlyStopping`, for every trial by itself.

    Args:
        patience: Reports in a row without improvement that stop a trial, at least 1. Reports, not
            steps: for a trial that reports every fifth epoch they are five times as many epochs.
        min_delta: Minimum improvement: a value must be better than the best by more than this.

    Raises:
        InvalidArgument: `patience` is not an integer of at least 1, or `min_delta` is below 0.
    """

    patience: int
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        make_plain(self)
        check_integer("patience", self.patience, 1)
        check_number(
            "min_delta",
            self.min_delta,
            "a finite number of at least 0",
            lambda delta: is_finite(delta) and delta >= 0,
        )

    def start(self, direction: Direction) -> RuleJudge[Any]:
        """Return the judge of a search."""
        return _PatienceJudge(self, direction)


def read_rules(stopping: Any) -> tuple[StoppingRule, ...]:
    """Read the user's `stopping=`: None, a rule, or a list of rules.

    Raises:
        InvalidArgument: Anything else.
    """
    rules = () if stopping is None else stopping
    if isinstance(stopping, StoppingRule):
        rules = (stopping,)
    if not isinstance(rules, list | tuple):
        raise _no_rule("stopping", stopping, "a stopping rule or a list of them")
    for number, rule in enumerate(rules):
        if not isinstance(rule, StoppingRule):
            raise _no_rule(f"stopping[{number}]", rule, "a stopping rule")
    return tuple(rules)


def _no_rule(name: str, value: Any, expected: str) -> InvalidArgument:
    hint = "such as MedianStopping()"
    if isinstance(value, type) and issubclass(value, StoppingRule):
        hint = f"write {value.__name__}(...)"
    return InvalidArgument(name, expected, shown(value), hint)


class AnyOf:
    """Stops a trial as soon as one of its judges does."""

    def __init__(self, judges: Sequence[StoppingJudge]) -> None:
        self._judges = judges

    def report(self, trial: int, step: int, value: float | None) -> str | None:
        """Take in a report; return the first judge's reason, or None."""
        reasons = [judge.report(trial, step, value) for judge in self._judges]  # no judge misses it
        return next((reason for reason in reasons if reason is not None), None)

    def ended(self, trial: int, status: Status) -> None:
        """Take in the end of a trial."""
        for judge in self._judges:
            judge.ended(trial, status)


RuleT = TypeVar("RuleT", bound=StoppingRule)


class RuleJudge(ABC, Generic[RuleT]):
    """The base of the judges of all rules. They work with merits, see `Direction.merit`."""

    def __init__(self, rule: RuleT, direction: Direction) -> None:
        self._rule = rule
        self._direction = direction
        self._last: dict[int, float] = {}  # a trial's last step; infinite once it ended
        self._reasons: dict[int, str] = {}

    def report(self, trial: int, step: int, value: float | None) -> str | None:
        """Take in a report; return why the trial is to stop, or None."""
        if trial not in self._reasons and step > self._last.get(trial, -1):
            self._last[trial] = step
            finite = value is not None and math.isfinite(value)
            merit = self._direction.merit(value if finite else None)
            reason = self._judge(trial, step, merit)
            if reason is not None:
                self._reasons[trial] = f"step {step}: {reason}"
        return self._reasons.get(trial)

    def ended(self, trial: int, status: Status) -> None:
        """Take in the end of a trial."""
        self._last[trial] = math.inf
        self._reasons.pop(trial, None)
        self._forget(trial, status)

    def estimate(self, trial: int) -> float | None:
        """Return the value that a stopped trial would have had, until `ended` is called.

        None where its own value counts.
        """
        return None

    def _number(self, merit: float) -> str:
        score = self._direction.weight * merit
        return f"{score + 0.0:.4g}" if math.isfinite(score) else "nan"  # -0.0 + 0.0 is 0.0

    @property
    def _worse(self) -> str:
        return "below" if self._direction is Direction.MAX else "above"

    @abstractmethod
    def _judge(self, trial: int, step: int, merit: float) -> str | None:
        """Return why a trial is to stop, or None; its steps ascend."""

    @abstractmethod
    def _forget(self, trial: int, status: Status) -> None:
        """Drop the data that is kept for a running trial only."""


def median(ascending: Sequence[float]) -> float:
    """Return the median of at least one number, of numbers in ascending order."""
    return ascending[(len(ascending) - 1) // 2] / 2 + ascending[len(ascending) // 2] / 2


class _MedianJudge(RuleJudge[MedianStopping]):
    def __init__(self, rule: MedianStopping, direction: Direction) -> None:
        super().__init__(rule, direction)
        self._best: dict[int, float] = {}
        self._curves: dict[int, dict[int, float]] = {}  # running trials: interval to merit
        self._finished: dict[int, array[float]] = {}  # interval to merits of finished, ascending

    def _judge(self, trial: int, step: int, merit: float) -> str | None:
        best = self._best[trial] = max(merit, self._best.get(trial, -math.inf))
        interval = (step - self._rule.n_warmup_steps) // self._rule.interval_steps
        curve = self._curves.setdefault(trial, {})
        if interval < 0 or interval in curve:
            return None
        curve[interval] = merit
        others = self._finished.get(interval, ())
        if len(others) < self._rule.n_startup_trials:
            return None
        middle = median(others)
        if best >= middle:
            return None
        score, limit = self._number(best), self._number(middle)
        return f"best {score} is {self._worse} the median {limit} of {len(others)} trials"

    def _forget(self, trial: int, status: Status) -> None:
        self._best.pop(trial, None)
        curve = self._curves.pop(trial, {})
        if status == "finished":
            for interval, merit in curve.items():
                insort(self._finished.setdefault(interval, array("d")), merit)


class _HalvingJudge(RuleJudge[SuccessiveHalving]):
    def __init__(self, rule: SuccessiveHalving, direction: Direction) -> None:
        super().__init__(rule, direction)
        self._first = rule.min_resource * rule.reduction_factor**rule.min_early_stopping_rate
        self._rungs: list[array[float]] = []  # merits, ascending
        self._reached: dict[int, int] = {}  # how many rungs a trial has reached

    def _judge(self, trial: int, step: int, merit: float) -> str | None:
        reached = self._reached.get(trial, 0)
        while step >= self._first * self._rule.reduction_factor**reached:
            if reached == len(self._rungs):
                self._rungs.append(array("d"))
            rung = self._rungs[reached]
            insort(rung, merit)
            places = max(1, len(rung) // self._rule.reduction_factor)
            if merit == -math.inf or merit < rung[-places]:
                return f"{self._number(merit)} is not among the best {places} of {len(rung)} trials"
            reached += 1
        self._reached[trial] = reached
        return None

    def _forget(self, trial: int, status: Status) -> None:
        self._reached.pop(trial, None)


class _ThresholdJudge(RuleJudge[Threshold]):
    def _judge(self, trial: int, step: int, merit: float) -> str | None:
        if step < self._rule.n_warmup_steps:
            return None
        if merit == -math.inf:
            return "not a finite number"
        value, lower, upper = self._direction.weight * merit, self._rule.lower, self._rule.upper
        if lower is not None and value < lower:
            return f"{self._number(merit)} is below the threshold {lower:.4g}"
        if upper is not None and value > upper:
            return f"{self._number(merit)} is above the threshold {upper:.4g}"
        return None

    def _forget(self, trial: int, status: Status) -> None:
        """Do nothing: no data is kept."""


class _PatienceJudge(RuleJudge[Patience]):
    def __init__(self, rule: Patience, direction: Direction) -> None:
        super().__init__(rule, direction)
        self._best: dict[int, tuple[float, int]] = {}  # best merit, and reports since

    def _judge(self, trial: int, step: int, merit: float) -> str | None:
        best, waited = self._best.get(trial, (-math.inf, 0))
        improved = merit - self._rule.min_delta > best
        self._best[trial] = (merit, 0) if improved else (best, waited + 1)
        if improved or waited + 1 < self._rule.patience:
            return None
        margin = f" by more than {self._rule.min_delta:.4g}" if self._rule.min_delta else ""
        return f"no better than {self._number(best)}{margin} for {waited + 1} reports"

    def _forget(self, trial: int, status: Status) -> None:
        self._best.pop(trial, None)
