"""Comparison of searches over problems: normalised regret, ranks, wins, significance tests.

The unit is the problem: seeds of one problem are no independent evidence about another one. So all
that is counted or tested is first averaged over the seeds of a problem (Demšar: Statistical
comparisons of classifiers over multiple data sets, JMLR 7, 2006).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]


def normalised(regrets: Array, of_random: Array) -> Array:
    """Return the regret on each problem as a share of random search's.

    The regret of a run is f(what the search holds best) - best known value, without noise. With the
    means over runs, nr = mean regret of the method / mean regret of random search after as many
    evaluations of the same problem: 0 is the best known value, 1 as good as random. A method's nr
    is the mean of this over the problems.

    Args:
        regrets: The regrets of a method, problems x seeds.
        of_random: The regrets of random search after as many evaluations, problems x runs.
    """
    return np.asarray(regrets.mean(axis=1) / of_random.mean(axis=1))


def mean_ranks(shares: Mapping[str, Array]) -> dict[str, float]:
    """Return each method's mean rank over the problems; 1 is the best, and ties share a rank."""
    ranks = stats.rankdata(np.array(list(shares.values())), axis=0)
    return dict(zip(shares, ranks.mean(axis=1).tolist(), strict=True))


def wins(shares: Array, others: Array) -> int:
    """Return the number of problems on which a method has the lower mean regret."""
    return int((shares < others).sum())


def friedman(shares: Mapping[str, Array]) -> float:
    """Return p of Friedman's test that all methods, at least three, are equally good."""
    return float(stats.friedmanchisquare(*shares.values()).pvalue)


def against(name: str, shares: Mapping[str, Array]) -> dict[str, float]:
    """Return p of Wilcoxon's signed rank test for every other method, corrected by Holm's method.

    It is the probability of differences as large as these between the nr of problems, had `name`
    and the other the same median; two-sided.
    """
    others = [other for other in shares if other != name]
    values = [stats.wilcoxon(shares[name], shares[other]).pvalue for other in others]
    return dict(zip(others, holm(values), strict=True))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple tests (Holm, Scand. J. of Statistics 6, 1979)."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(np.argsort(p_values)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
