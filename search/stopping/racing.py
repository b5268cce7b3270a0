"""Racing: a stopping rule for trials whose steps are repeats of the same evaluation."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import fmean

from search.checks import check_integer, check_number, make_plain
from search.direction import Direction
from search.stopping.rules import Judge, StoppingJudge, StoppingRule
from search.trial import Status


@dataclass(frozen=True, slots=True)
class WilcoxonRacing(StoppingRule):
    """Stop a trial whose repeats are significantly worse than those of the best trial.

    Each step of a trial is one repeat of its evaluation: another seed, fold or part of the data,
    the same one at the same step of every trial. A trial is compared, at the steps that it has
    reported, with the finished trial of the best mean, by Wilcoxon's signed rank test for pairs
    (Wilcoxon: Individual Comparisons by Ranking Methods, Biometrics Bulletin 1, 1945), one-sided.
    As in Optuna's `WilcoxonPruner` it is not stopped while its own mean is no worse than the best
    one. With `p_threshold=0.1` no trial is stopped before its fourth repeat, since p is at least
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
        make_plain(self)
        threshold = self.p_threshold
        check_number("p_threshold", threshold, "a number of (0, 1]", lambda p: 0 < p <= 1)
        check_integer("n_startup_steps", self.n_startup_steps, 1)

    def start(self, direction: Direction) -> StoppingJudge:
        """Return the judge of a search."""
        return _WilcoxonJudge(self, direction)


class _WilcoxonJudge(Judge[WilcoxonRacing]):
    def __init__(self, rule: WilcoxonRacing, direction: Direction) -> None:
        super().__init__(rule, direction)
        self._merits: dict[int, dict[int, float]] = {}  # of running trials, by step
        self._best: tuple[int, dict[int, float]] | None = None

    def _judge(self, trial: int, step: int, merit: float) -> str | None:
        merits = self._merits.setdefault(trial, {})
        merits[step] = merit
        if self._best is None or len(merits) < self._rule.n_startup_steps:
            return None
        number, best = self._best
        least = 0.5 ** len(merits)  # of all p: known without the test, which takes milliseconds
        if least >= self._rule.p_threshold or mean(merits.values()) >= mean(best.values()):
            return None
        p = _p_of_worse(merits, best)
        if p >= self._rule.p_threshold:
            return None
        return f"worse than trial {number} in {len(merits)} repeats (p = {p:.2g})"

    def _forget(self, trial: int, status: Status) -> None:
        merits = self._merits.pop(trial, {})
        best = -math.inf if self._best is None else mean(self._best[1].values())
        if status == "finished" and merits and mean(merits.values()) > best:
            self._best = trial, merits


def mean(numbers: Collection[float]) -> float:
    """Return the mean of at least one number; NaN if infinite ones have both signs."""
    try:
        return fmean(numbers)
    except (OverflowError, ValueError):  # the sum of finite numbers may be too large for a float
        return sum(number / len(numbers) for number in numbers)


def _p_of_worse(merits: Mapping[int, float], best: Mapping[int, float]) -> float:
    """Return p of Wilcoxon's test that merits are no worse than those of the best at their steps.

    A repeat without a value counts as a difference larger than all others.
    """
    from scipy.stats import wilcoxon  # late: it takes a second

    pairs = [(merits[step], best[step]) for step in merits if step in best]
    differences = [0.0 if one == other else one - other for one, other in pairs]
    finite = [abs(difference) for difference in differences if math.isfinite(difference)]
    most = 2 * max(finite, default=0.0) + 1
    bounded = [min(max(difference, -most), most) for difference in differences]
    if not any(bounded):
        return 1.0
    return float(wilcoxon(bounded, alternative="less", zero_method="zsplit").pvalue)
