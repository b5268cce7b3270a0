"""The page of the public problems, in Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from scipy import stats

from tests.benchmarks.public.methods import PARALLEL, SEQUENTIAL, installed
from tests.benchmarks.public.runs import BUDGETS, REFERENCE, Run
from tests.benchmarks.searches import comparison
from tests.benchmarks.searches.comparison import Array
from tests.benchmarks.searches.methods import DEFAULT, RANDOM

_ABOUT = (
    "*nr* is the regret divided by the mean regret of 100 other random searches after as many "
    "trials, or in as much time: 0 is the best value of the problem, 1 as good as random search. "
    "Its interval is that of 95 % by bootstrap over the problems. *rank* is the mean rank over the "
    f"problems. *p* is Wilcoxon's, with Holm's correction, against {DEFAULT}, the default of "
    "`evolutionary_search`. The unit is the problem: a method's regret on it is the mean over its "
    "seeds. With several workers a method has the time in which workers that never wait end as "
    "many trials on average; the durations are log-normal with sigma 1. Nothing was tuned on these "
    "problems."
)


@dataclasses.dataclass(frozen=True)
class Row:
    """A method in one table.

    Attributes:
        name: Its name.
        seeds: The least number of seeds on a problem; 0 without a whole table.
        shares: Its nr on each problem; None with `why`.
        why: Why it has no values.
    """

    name: str
    seeds: int = 0
    shares: Array | None = None
    why: str = ""


def page(runs: Sequence[Run], groups: Mapping[str, Sequence[str]], date: str, python: str) -> str:
    """Return the whole page.

    Args:
        runs: The runs, with the reference random searches of each problem that a group has.
        groups: The names of the problems of each group. Each has its tables; so have all together.
        date: The day on which the page is written.
        python: The version of Python.
    """
    parts = [
        "# Public problems",
        f"`make bench-public` wrote this page on {date}, Python {python}.",
    ]
    parts.append(_ABOUT)
    together = {**groups, "all": [name for names in groups.values() for name in names]}
    # With a single group the tables of all would be the same again.
    sections = together if len(groups) > 1 else groups
    for workers in sorted({run.workers for run in runs}):
        parts.append("## One trial at a time" if workers == 1 else f"## {workers} workers")
        mine = [run for run in runs if run.workers == workers]
        for budget in BUDGETS:
            for group, names in sections.items():
                found = rows(mine, names, budget)
                if any(row.shares is not None for row in found):
                    parts.append(f"### {budget} trials, {len(names)} problems: {group}")
                    parts.append("\n".join(table(found)))
    return "\n\n".join(parts) + "\n"


def rows(runs: Sequence[Run], problems: Sequence[str], budget: int) -> list[Row]:
    """Return the rows of the methods with as many workers as the runs, in the order of the table.

    A method that has not run on every problem has no values.
    """
    if not runs:
        return []
    methods = SEQUENTIAL if runs[0].workers == 1 else PARALLEL
    found: dict[tuple[str, str], dict[int, float]] = {}
    errors: dict[str, str] = {}
    retried = {run.task for run in runs if not run.error}
    for run in runs:
        if run.error and run.task not in retried:
            errors[run.method] = run.error
        regret = run.regrets.get(str(budget))
        if regret is not None:
            found.setdefault((run.method, run.problem), {})[run.seed] = regret
    return [
        _row(name, methods[name].budget, found, errors.get(name, ""), problems, budget)
        for name in methods
    ]


def _row(
    name: str,
    most: int,
    found: Mapping[tuple[str, str], Mapping[int, float]],
    error: str,
    problems: Sequence[str],
    budget: int,
) -> Row:
    shares, seeds = [], []
    for problem in problems:
        of_random = found.get((RANDOM, problem), {})
        reference = _values(of_random, set(REFERENCE) & set(of_random))
        mine = found.get((name, problem), {})
        own = _values(mine, set(mine) - set(REFERENCE))
        if not own.size or not reference.size:
            break
        shares.append(float(comparison.normalised(own, reference)[0]))
        seeds.append(own.size)
    if len(shares) == len(problems):
        return Row(name, min(seeds), np.array(shares))
    return Row(name, why=_why(name, most, error, bool(shares), budget))


def _values(regrets: Mapping[int, float], seeds: Collection[int]) -> Array:
    return np.array([[regrets[seed] for seed in sorted(seeds)]])


def _why(name: str, most: int, error: str, some: bool, budget: int) -> str:
    if budget > most:
        return f"has at most {most} trials here"
    if error:
        return "failed: " + " ".join(error.split()).replace("|", "/")[:80]
    if some:
        return "not run on all problems"
    return "not run" if installed(name) else "not installed"


def table(found: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table: methods with values, by their nr, then the others."""
    shares = {row.name: row.shares for row in found if row.shares is not None}
    ranks = comparison.mean_ranks(shares)
    others = len(shares) > 1 and DEFAULT in shares
    p_values = comparison.against(DEFAULT, shares) if others else {}
    yield "| search | seeds | nr (95 %) | rank | p |"
    yield "| --- | --- | --- | --- | --- |"
    for row in sorted(found, key=lambda row: np.inf if row.shares is None else row.shares.mean()):
        if row.shares is None:
            yield f"| {row.name} | | {row.why} | | |"
        else:
            low, high = interval(row.shares)
            p = f"{p_values[row.name]:.2g}" if row.name in p_values else ""
            nr = f"{row.shares.mean():.2f} ({low:.2f} to {high:.2f})"
            yield f"| {row.name} | {row.seeds} | {nr} | {ranks[row.name]:.1f} | {p} |"


def interval(shares: Array) -> tuple[float, float]:
    """Return the 95 % interval of the mean nr by bootstrap over the problems."""
    if len(shares) < 2 or np.ptp(shares) == 0:
        return float(shares.min()), float(shares.max())
    # The percentiles: BCa's correction is undefined where resamples are all alike.
    drawn = stats.bootstrap((shares,), np.mean, method="percentile", rng=0)
    return float(drawn.confidence_interval.low), float(drawn.confidence_interval.high)
