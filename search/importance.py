"""The importance of hyperparameters, by PED-ANOVA.

It measures how much the distribution of a hyperparameter among the best trials differs from that
among all.
Watanabe, Bansal, Hutter: "PED-ANOVA: Efficiently quantifying hyperparameter importance in arbitrary
subspaces", IJCAI 2023; for conditional hyperparameters Fukushima et al.: "Conditional PED-ANOVA",
arXiv 2601.20800. Bandwidths and grids are those of Optuna's `PedAnovaImportanceEvaluator`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from search.direction import Direction
from search.space.bounds import wide
from search.space.spaces import LARGEST_INTEGER, Choice, Domain, Float, Integer
from search.values import is_finite

_BEST = 0.1  # share of the trials that count as the best
_STEPS = 50  # points of the grid of a numerical hyperparameter
_LEAST = 2  # trials with, or without, a conditional hyperparameter that can be compared
_NARROWEST = 0.5 / 1.64  # of a kernel, in steps: 90 % of it lies in its own step

_Counts = npt.NDArray[np.int64]
_Density = npt.NDArray[np.float64]


def importance(
    trials: Sequence[tuple[Mapping[str, Any], float]],
    direction: Direction,
    domains: Mapping[str, Domain] | None = None,
) -> dict[str, float]:
    """Return the importance of each hyperparameter, the most important first.

    Args:
        trials: Hyperparameters and finite value of each trial that finished.
        direction: The direction of the values.
        domains: The domain of each hyperparameter; without one, it is made of the trials' values.

    Returns:
        Name to share of the total importance; the shares add up to 1. All are equal if the trials
        show no differences, as with fewer than two. Empty without hyperparameters.
    """
    tried, given = [params for params, _ in trials], domains or {}
    best = _best([value for _, value in trials], direction)
    found = {}
    for name in dict.fromkeys([*itertools.chain.from_iterable(tried), *given]):
        domain = given[name] if name in given else _domain_found(name, tried)
        found[name] = _divergence(domain, name, tried, best)
    total = sum(found.values())
    if not total:
        return {name: 1 / len(found) for name in found}
    shares = {name: value / total for name, value in found.items()}
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def _best(values: Sequence[float], direction: Direction) -> list[bool]:
    """Return which values are among the best, with all that equal the worst of these."""
    if len(values) < 2:
        return [False] * len(values)
    merits = sorted(map(direction.merit, values), reverse=True)
    least = merits[math.ceil(_BEST * len(merits)) - 1]
    return [direction.merit(value) >= least for value in values]


def _divergence(
    domain: Domain, name: str, trials: Sequence[Mapping[str, Any]], best: Sequence[bool]
) -> float:
    """Return the Pearson divergence of the best trials from all, for one hyperparameter."""
    values = [params[name] for params in trials if name in params]
    good = [p[name] for p, is_best in zip(trials, best, strict=True) if is_best and name in p]
    if domain.size == 1 or len(values) < _LEAST or not good:
        return 0.0
    counts, of_best = _counts(domain, values), _counts(domain, good)
    estimate = _of_choices if _has_no_order(domain) else _of_numbers
    everywhere, among_best = estimate(counts) + 1e-12, estimate(of_best) + 1e-12
    divergence = float(everywhere @ (among_best / everywhere - 1) ** 2)
    share_of_best, share = len(good) / sum(best), len(values) / len(trials)
    return share_of_best**2 / share * divergence


def _counts(domain: Domain, values: Sequence[Any]) -> _Counts:
    """Return how many values lie at each point of a hyperparameter's grid."""
    if isinstance(domain, Choice):
        values = [domain.index(value) for value in values]
        if _has_no_order(domain):
            return np.bincount(values, minlength=len(domain.values))
        last = len(domain.values) - 1  # of a range, perhaps beyond the integers of a domain
        domain = Integer(0, last) if last <= LARGEST_INTEGER else Float(0.0, float(last))
    low, high, steps = float(domain.low), float(domain.high), _STEPS
    log = domain.is_logarithmic if isinstance(domain, Integer) else domain.log
    if isinstance(domain, Integer) and log:
        steps = min(math.ceil(math.log2(high - low + 1)) + 1, steps)
    elif domain.size is not None:
        steps = min(domain.size, steps)
    numbers = np.asarray(values, dtype=np.float64)
    if log:
        low, high, numbers = math.log(low), math.log(high), np.log(numbers)
    half_step = (high / 2 - low / 2) / (steps - 1)  # halves: the span of huge bounds overflows
    if not half_step:  # bounds that are closer than floats can tell
        return np.bincount([0] * len(values), minlength=steps)
    places = np.ceil((numbers / 2 - low / 2) / half_step - 0.5).astype(np.int64)
    return np.bincount(np.clip(places, 0, steps - 1), minlength=steps)


def _has_no_order(domain: Domain) -> bool:
    return isinstance(domain, Choice) and not (domain.ordered or isinstance(domain.values, range))


def _of_choices(counts: _Counts) -> _Density:
    """Return the estimated probability of each choice.

    It is the mean of a kernel for each value, `(1 + kernels * [its choice]) / (choices + kernels)`,
    and of an even prior. `kernels` counts the prior and the choices that occur.
    """
    # Summed up beforehand: a row for each kernel would take the square of the number of choices.
    choices, kernels, values = len(counts), np.count_nonzero(counts) + 1, counts.sum()
    of_values = (values + kernels * counts) / (choices + kernels)
    density: _Density = (of_values + 1.0 / choices) / (values + 1)
    return density


def _of_numbers(counts: _Counts) -> _Density:
    """Return the estimated probability of each point of a grid, by Parzen's estimator.

    The bandwidth follows Scott's rule; a wide kernel in the middle is the prior.
    """
    places = np.flatnonzero(counts)
    weights, last = counts[places], len(counts) - 1
    total = int(weights.sum())
    mean = places @ weights / total
    spread = math.sqrt((places - mean) ** 2 @ weights / max(1, total - 1))
    cumulated = np.cumsum(weights)
    first = places[np.searchsorted(cumulated, total // 4, side="left")]
    third = np.searchsorted(cumulated, total * 3 // 4, side="right")
    quartiles = places[min(len(places) - 1, int(third))] - first
    width = 1.059 * min(quartiles / 1.34, spread) * total**-0.2
    centres = np.append(places, last / 2)
    widths = np.append(np.full(len(places), max(width, _NARROWEST)), last + 1)
    edges = np.arange(len(counts) + 1) - 0.5
    below = ndtr((edges - centres[:, None]) / widths[:, None])
    mass = np.diff(below, axis=1) / (below[:, -1:] - below[:, :1])
    shares = np.append(weights, 1.0)
    density: _Density = shares / shares.sum() @ mass
    return density


def _domain_found(name: str, trials: Sequence[Mapping[str, Any]]) -> Domain:
    """Return a domain made of the values that trials have of a hyperparameter."""
    values = [params[name] for params in trials if name in params]
    if not all(map(is_finite, values)):
        return Choice(list({repr(value): value for value in values}.values()))
    low, high = min(values), max(values)
    whole = all(isinstance(v, int) and abs(v) <= LARGEST_INTEGER for v in values)
    return (Integer if whole else Float)(low, high, log=wide(low, high))
