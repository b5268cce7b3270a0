"""Racing: stopping rules for trials whose steps are repeats of the same evaluation."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from search.checks import check_integer, check_number, make_plain
from search.direction import Direction
from search.stopping.rules import RuleJudge, StoppingRule, median
from search.trial import Status

_LEAST_VARIANCES = 2
"""Trials that are compared with the best one before any is stopped."""

_UNLIKE = 10.0
"""Ratio of a trial's variance to the median from which it is judged by its own repeats alone.

With normal noise that is the same in all trials, one in 600 has such a ratio after two repeats.
"""


@dataclass(frozen=True, slots=True)
class Racing(StoppingRule):
    """The base of the rules that compare repeats with those of the best trial by a paired test."""

    p_threshold: float
    n_startup_steps: int = 2

    def __post_init__(self) -> None:
        make_plain(self)
        threshold = self.p_threshold
        check_number("p_threshold", threshold, "a number of (0, 1]", lambda p: 0 < p <= 1)
        check_integer("n_startup_steps", self.n_startup_steps, 1)


@dataclass(frozen=True, slots=True)
class StudentRacing(Racing):
    """Stop a trial whose repeats are significantly worse than those of the best trial.

    Each step of a trial is one repeat of its evaluation: another seed, fold or part of the data,
    the same one at the same step of every trial. A trial is compared, at the steps that it has
    reported, with the finished trial of the best mean, approximately by Student's t-test for pairs,
    one-sided, as in the races of Birattari: The Problem of Tuning Metaheuristics as Seen from a
    Machine Learning Perspective (2004). As in Optuna's `WilcoxonPruner` it is not stopped while its
    own mean is no worse than the best one. No trial is stopped before three have finished.

    Few repeats say little about the variance of the differences. So the test takes the median of
    the variances of all trials before, corrected for its bias. If the trial's own variance is
    larger, it takes this one, and if it is more than ten times as large, its own degrees of
    freedom, too. Repeats without a value are left out, and trials without any difference.

    The value of a stopped trial is the best mean plus the mean of its differences from the best
    trial: a mean of its own repeats alone would depend on how hard these are.

    Args:
        p_threshold: A trial is stopped if the test's p is below this number of (0, 1]. The higher,
            the sooner bad trials are stopped, and the more often a good one is.
        n_startup_steps: Minimum number of repeats of a trial before it is stopped, at least 1.

    Raises:
        InvalidArgument: An argument is out of its range.
    """

    p_threshold: float = 0.05

    def start(self, direction: Direction) -> RuleJudge[Any]:
        """Return the judge of a search."""
        return _StudentJudge(self, direction)


@dataclass(frozen=True, slots=True)
class WilcoxonRacing(Racing):
    """Stop a trial whose repeats are significantly worse than those of the best trial.

    Like `StudentRacing`, but by Wilcoxon's signed rank test (Wilcoxon: Individual Comparisons by
    Ranking Methods, Biometrics Bulletin 1, 1945), which does not suppose normal noise. It needs
    more repeats: with `p_threshold=0.1` at least four, since p is at least 1 / 2 ** n after n
    repeats; but only one finished trial.

    Args:
        p_threshold: A trial is stopped if the test's p is below this number of (0, 1]. The higher,
            the sooner bad trials are stopped, and the more often a good one is.
        n_startup_steps: Minimum number of repeats of a trial before it is stopped, at least 1.

    Raises:
        InvalidArgument: An argument is out of its range.
    """

    p_threshold: float = 0.1

    def start(self, direction: Direction) -> RuleJudge[Any]:
        """Return the judge of a search."""
        return _WilcoxonJudge(self, direction)


class _RacingJudge(RuleJudge[Racing]):
    def __init__(self, rule: Racing, direction: Direction) -> None:
        super().__init__(rule, direction)
        self._merits: dict[int, dict[int, float]] = {}  # of running trials, by step
        self._best: tuple[int, dict[int, float]] | None = None

    def estimate(self, trial: int) -> float | None:
        """Return the estimated mean of all repeats of a trial that was stopped, by any rule.

        Without a trial that has made all of them there is none.
        """
        if self._best is None:
            return None
        best = self._best[1]
        known = _finite(_differences(self._merits.get(trial, {}), best))
        return self._direction.weight * (mean(best.values()) + mean(known)) if known else None

    def _judge(self, trial: int, step: int, merit: float) -> str | None:
        merits = self._merits.setdefault(trial, {})
        merits[step] = merit
        if self._best is None or len(merits) < self._rule.n_startup_steps:
            return None
        number, best = self._best
        if mean(merits.values()) >= mean(best.values()):
            return None
        differences = _differences(merits, best)
        known = _finite(differences)
        if not differences or (known and mean(known) >= 0):
            return None
        p = self._p_of_worse(differences)
        if p >= self._rule.p_threshold:
            return None
        repeats = f"{len(merits)} repeat{'s' if len(merits) > 1 else ''}"
        return f"worse than trial {number} in {repeats} (p = {p:.2g})"

    def _forget(self, trial: int, status: Status) -> None:
        merits = self._merits.pop(trial, {})
        if self._best is not None and status in ("finished", "stopped"):
            self._learn(_differences(merits, self._best[1]))
        best = -math.inf if self._best is None else mean(self._best[1].values())
        if status == "finished" and merits and mean(merits.values()) > best:
            self._best = trial, merits

    @abstractmethod
    def _p_of_worse(self, differences: Sequence[float]) -> float:
        """Return p of the test that merits are no worse than those of the best at their steps."""

    def _learn(self, differences: Sequence[float]) -> None:
        """Take in how an ended trial differs from the best one before it, at each step."""


class _StudentJudge(_RacingJudge):
    def __init__(self, rule: Racing, direction: Direction) -> None:
        super().__init__(rule, direction)
        self._variances: list[float] = []  # of the differences of ended trials, ascending
        self._degrees = 0  # of freedom, of all variances

    def _p_of_worse(self, differences: Sequence[float]) -> float:
        from scipy.special import stdtr  # late: it takes a fraction of a second

        known = _finite(differences)
        least = self._rule.n_startup_steps
        if len(known) < least or len(self._variances) < _LEAST_VARIANCES:
            return 1.0
        usual, own = median(self._variances), _variance(known) if len(known) > 1 else 0.0
        # A median is about as certain as a mean of half as many.
        degrees = len(known) - 1 if own > _UNLIKE * usual else self._degrees / 2
        scale = math.sqrt(max(usual, own) / len(known))
        return float(stdtr(degrees, mean(known) / scale)) if scale > 0 else 0.0

    def _learn(self, differences: Sequence[float]) -> None:
        known = _finite(differences)
        degrees = len(known) - 1
        # A twin of the best trial, equal in each repeat, shows nothing about the noise.
        if degrees > 0 and any(known):
            # By Wilson and Hilferty (1931), the median of chi-squared, divided by its degrees.
            bias = (1 - 2 / (9 * degrees)) ** 3
            insort(self._variances, _variance(known) / bias)
            self._degrees += degrees


class _WilcoxonJudge(_RacingJudge):
    def _p_of_worse(self, differences: Sequence[float]) -> float:
        """Return p; a repeat without a value counts as a difference larger than all others."""
        # The least p is known without the test, which takes milliseconds.
        if 0.5 ** len(differences) >= self._rule.p_threshold:
            return 1.0
        from scipy.stats import wilcoxon  # late: it takes a second

        most = 2 * max(map(abs, _finite(differences)), default=0.0) + 1
        bounded = [min(max(difference, -most), most) for difference in differences]
        if not any(bounded):
            return 1.0
        return float(wilcoxon(bounded, alternative="less", zero_method="zsplit").pvalue)


def _differences(merits: Mapping[int, float], best: Mapping[int, float]) -> list[float]:
    pairs = [(merits[step], best[step]) for step in merits if step in best]
    return [0.0 if one == other else one - other for one, other in pairs]


def _finite(numbers: Sequence[float]) -> list[float]:
    return [number for number in numbers if math.isfinite(number)]


def _variance(numbers: Sequence[float]) -> float:
    """Return the variance of a sample of at least two finite numbers; infinite if it overflows."""
    average = mean(numbers)
    squares = sum((number - average) * (number - average) for number in numbers)
    return squares / (len(numbers) - 1)


def mean(numbers: Collection[float]) -> float:
    """Return the mean of at least one number; NaN if infinite ones have both signs."""
    try:
        return fmean(numbers)
    except (OverflowError, ValueError):  # the sum of finite numbers may be too large for a float
        average = sum(number / len(numbers) for number in numbers)
        return min(max(average, min(numbers)), max(numbers))  # a share may be rounded up
