"""Racing: stopping rules for trials whose steps are repeats of the same evaluation."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from search.checks import check_integer, check_number, make_plain
from search.direction import Direction
from search.stopping.rules import Judge, StoppingJudge, StoppingRule, median
from search.trial import Status


@dataclass(frozen=True, slots=True)
class Racing(StoppingRule):
    """Stop a trial whose repeats are significantly worse than those of the best trial.

    Each step of a trial is one repeat of its evaluation: another seed, fold or part of the data,
    the same one at the same step of every trial. A trial is compared, at the steps that it has
    reported, with the finished trial of the best mean, by a one-sided test for pairs. As in
    Optuna's `WilcoxonPruner` it is not stopped while its own mean is no worse than the best one.
    """

    p_threshold: float

    def __post_init__(self) -> None:
        make_plain(self)
        threshold = self.p_threshold
        check_number("p_threshold", threshold, "a number of (0, 1]", lambda p: 0 < p <= 1)


@dataclass(frozen=True, slots=True)
class StudentRacing(Racing):
    """Stop a trial whose repeats are significantly worse than those of the best trial.

    Each step of a trial is one repeat of its evaluation: another seed, fold or part of the data,
    the same one at the same step of every trial. A trial is compared, at the steps that it has
    reported, with the finished trial of the best mean, by Student's t-test for pairs, one-sided, as
    in the races of Birattari: The Problem of Tuning Metaheuristics as Seen from a Machine Learning
    Perspective (2004). A single trial has too few repeats to tell their noise, so the variance of
    the differences is the median of the variances that finished trials had, divided by the median
    of its distribution (chi-squared), and has their degrees of freedom. So a trial may be stopped
    after its first repeat, once two trials have finished. It is not stopped while its own mean is
    no worse than the best one.

    Args:
        p_threshold: A trial is stopped if the test's p is below this number of (0, 1]. The higher,
            the sooner bad trials are stopped, and the more often a good one is.

    Raises:
        InvalidArgument: The argument is out of its range.
    """

    p_threshold: float = 0.05

    def start(self, direction: Direction) -> StoppingJudge:
        """Return the judge of a search."""
        return _StudentJudge(self, direction)


@dataclass(frozen=True, slots=True)
class WilcoxonRacing(Racing):
    """Stop a trial whose repeats are significantly worse than those of the best trial.

    Like `StudentRacing`, by Wilcoxon's signed rank test (Wilcoxon: Individual Comparisons by
    Ranking Methods, Biometrics Bulletin 1, 1945): it supposes nothing about the noise, and saves
    less. With `p_threshold=0.1` no trial is stopped before its fourth repeat, since p is at least
    1 / 2 ** n after n of them.

    Args:
        p_threshold: A trial is stopped if the test's p is below this number of (0, 1]. The higher,
            the sooner bad trials are stopped, and the more often a good one is.
        n_startup_steps: Minimum number of repeats of a trial before it is stopped, at least 1.

    Raises:
        InvalidArgument: An argument is out of its range.
    """

    p_threshold: float = 0.1
    n_startup_steps: int = 2

    def __post_init__(self) -> None:
        Racing.__post_init__(self)
        check_integer("n_startup_steps", self.n_startup_steps, 1)

    def start(self, direction: Direction) -> StoppingJudge:
        """Return the judge of a search."""
        return _WilcoxonJudge(self, direction)


RacingT = TypeVar("RacingT", bound=Racing)


class _RacingJudge(Judge[RacingT]):
    def __init__(self, rule: RacingT, direction: Direction) -> None:
        super().__init__(rule, direction)
        self._merits: dict[int, dict[int, float]] = {}  # of running trials, by step
        self._best: tuple[int, dict[int, float]] | None = None

    def _judge(self, trial: int, step: int, merit: float) -> str | None:
        merits = self._merits.setdefault(trial, {})
        merits[step] = merit
        if self._best is None:
            return None
        number, best = self._best
        if mean(merits.values()) >= mean(best.values()):
            return None
        p = self._p_of_worse(merits, best)
        if p >= self._rule.p_threshold:
            return None
        repeats = f"{len(merits)} repeat{'s' if len(merits) > 1 else ''}"
        return f"worse than trial {number} in {repeats} (p = {p:.2g})"

    def _forget(self, trial: int, status: Status) -> None:
        merits = self._merits.pop(trial, {})
        if status != "finished" or not merits:
            return
        if self._best is not None:
            self._learn(_differences(merits, self._best[1]))
        best = -math.inf if self._best is None else mean(self._best[1].values())
        if mean(merits.values()) > best:
            self._best = trial, merits

    @abstractmethod
    def _p_of_worse(self, merits: Mapping[int, float], best: Mapping[int, float]) -> float:
        """Return p of the test that merits are no worse than those of the best at their steps."""

    def _learn(self, differences: Collection[float]) -> None:
        """Take in how a finished trial differs from the best one before it, at each step."""


class _StudentJudge(_RacingJudge[StudentRacing]):
    def __init__(self, rule: StudentRacing, direction: Direction) -> None:
        super().__init__(rule, direction)
        self._variances: list[float] = []  # of the differences of finished trials, ascending
        self._degrees = 0  # of freedom, of all variances

    def _p_of_worse(self, merits: Mapping[int, float], best: Mapping[int, float]) -> float:
        from scipy.special import stdtr  # late: it takes a fraction of a second

        differences = _differences(merits, best)
        average = mean(differences) if differences else math.nan
        if average == -math.inf:  # a repeat without a value: the mean will have none, too
            return 0.0
        if not self._variances or math.isnan(average):
            return 1.0
        scale = math.sqrt(median(self._variances))
        return float(stdtr(self._degrees, average * math.sqrt(len(differences)) / scale))

    def _learn(self, differences: Collection[float]) -> None:
        degrees = len(differences) - 1
        if degrees < 1:
            return
        average = mean(differences)
        squares = sum((number - average) * (number - average) for number in differences)
        # By Wilson and Hilferty (1931), the median of chi-squared, divided by its degrees.
        variance = squares / degrees / (1 - 2 / (9 * degrees)) ** 3
        # None if both values are the same in all repeats, which tells nothing of the noise.
        if variance > 0:
            insort(self._variances, variance)
            self._degrees += degrees


class _WilcoxonJudge(_RacingJudge[WilcoxonRacing]):
    def _p_of_worse(self, merits: Mapping[int, float], best: Mapping[int, float]) -> float:
        """Return p; a repeat without a value counts as a difference larger than all others."""
        least = 0.5 ** len(merits)  # of all p: known without the test, which takes milliseconds
        if len(merits) < self._rule.n_startup_steps or least >= self._rule.p_threshold:
            return 1.0
        from scipy.stats import wilcoxon  # late: it takes a second

        differences = _differences(merits, best)
        finite = [abs(difference) for difference in differences if math.isfinite(difference)]
        most = 2 * max(finite, default=0.0) + 1
        bounded = [min(max(difference, -most), most) for difference in differences]
        if not any(bounded):
            return 1.0
        return float(wilcoxon(bounded, alternative="less", zero_method="zsplit").pvalue)


def _differences(merits: Mapping[int, float], best: Mapping[int, float]) -> list[float]:
    pairs = [(merits[step], best[step]) for step in merits if step in best]
    return [0.0 if one == other else one - other for one, other in pairs]


def mean(numbers: Collection[float]) -> float:
    """Return the mean of at least one number; NaN if infinite ones have both signs."""
    try:
        return fmean(numbers)
    except (OverflowError, ValueError):  # the sum of finite numbers may be too large for a float
        return sum(number / len(numbers) for number in numbers)
