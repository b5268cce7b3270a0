"""The quality of our searches, compared with others' in one run: `make bench-search`.

See `problems.py` for the problems, `methods.py` for the searches and `comparison.py` for what the
columns mean. Seeds 0 to 19 are those of the report: nothing was tuned on them.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from search.algorithms import Evolution
from search.direction import Direction
from search.random_search import RandomSearch
from search.searcher import Problem, Searcher
from search.trial import Evaluated, Outcome
from tests.benchmarks.searches import comparison, many_parameters, multi_fidelity, pareto, racing
from tests.benchmarks.searches.comparison import Array
from tests.benchmarks.searches.methods import (
    DEFAULT,
    METHODS,
    OPTUNA_GP,
    OUR_GP,
    OURS,
    RANDOM,
    SCIPY,
    SEARCHERS,
    TPE,
    Start,
    regrets,
    started_on,
)
from tests.benchmarks.searches.problems import surrogates
from tests.benchmarks.searches.problems.functions import NAMES, problem
from tests.benchmarks.searches.workers import Simulated, expected_running_time, simulate
from tests.search.fakes import started

_BUDGETS = {30: 0.49, 100: 0.28, 300: 0.20}  # evaluations, and the required nr after them
_SEEDS = 20
_REFERENCE = range(1_000_000, 1_000_100)  # seeds of the reference random searches of nr

_WORKERS = (10, 50)
_SIGMAS = (0.3, 1.0)
_RUNS = 5  # seeds of a simulation
_TRIALS = 3_000  # until a simulated search gives up
_TARGET = 0.1  # its regret, as a share of random search's after 300 evaluations

_FINISHED = 1_000  # trials before the asks that are timed
_ASKS = 100

Run = tuple[str, str, int]
"""Method, problem and seed."""

Bar = tuple[str, str, str]
"""The name of a measurement, its value, the required value."""


def main() -> None:
    """Print all tables; the required values last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first-seed", type=int, default=0, help="1000 or more while tuning")
    parser.add_argument("--seeds", type=int, default=_SEEDS, help="number of seeds")
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=[name for name, method in METHODS.items() if method.seeds is None],
        metavar="NAME",
        help="print only the comparison of these with scipy's; p is against the first: %(choices)s",
    )
    parser.add_argument(
        "--no-surrogates",
        action="store_true",
        help="with --methods: leave out the problems with surrogates, whose fits take long",
    )
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    os.environ["OMP_NUM_THREADS"] = "1"  # there is one process per core
    processes = os.cpu_count() or 1
    if arguments.methods:
        names = NAMES
        if arguments.no_surrogates:
            names = tuple(n for n in NAMES if not any(task in n for task in surrogates.TASKS))
        else:
            surrogates.prepare(processes)
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            _print_some(pool, arguments.methods, names, seeds)
        return
    surrogates.prepare(processes)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        runs = list(_runs(METHODS, NAMES, seeds))
        results = dict(zip(runs, pool.map(_regrets, runs, chunksize=5), strict=True))
        bars = _print_comparisons(results, seeds)
        bars += _print_workers(pool, _targets(results), seeds[:_RUNS])
        short = multi_fidelity.tasks(seeds)
        found = dict(zip(short, pool.map(multi_fidelity.run_task, short, chunksize=1), strict=True))
        several = pareto.tasks(seeds)
        fronts = dict(zip(several, pool.map(pareto.run_task, several, chunksize=1), strict=True))
        many = many_parameters.tasks(seeds[:2])
        asked = dict(zip(many, pool.map(many_parameters.run_task, many, chunksize=1), strict=True))
    _print_table(*_head_and_rows(multi_fidelity.rows(found, seeds)))
    _print_table(*_head_and_rows(pareto.rows(fronts)))
    _print_table(*_head_and_rows(many_parameters.rows(asked)))
    _print_table(*_head_and_rows(racing.rows(range(racing.SEEDS))))
    bars += _print_asks()
    _print_table(("measure", "value", "bar"), bars)


def _print_some(
    pool: Any, methods: Sequence[str], names: Sequence[str], seeds: Sequence[int]
) -> None:
    methods = list(dict.fromkeys([*methods, SCIPY]))
    runs = list(_runs(methods, names, seeds))
    results = dict(zip(runs, pool.map(_regrets, runs, chunksize=5), strict=True))
    for budget, shares in _shares(results, methods, names, seeds).items():
        title = f"{budget} evaluations, {len(seeds)} seeds, {len(names)} problems"
        _print_comparison(title, shares, methods[0])


def _runs(methods: Iterable[str], names: Sequence[str], seeds: Sequence[int]) -> Iterable[Run]:
    """Yield the longest runs first, so that no core waits at the end."""
    for method in sorted(methods, key=lambda name: METHODS[name].seeds or math.inf):
        yield from itertools.product([method], names, seeds[: METHODS[method].seeds])
    yield from itertools.product([RANDOM], names, _REFERENCE)


def _regrets(run: Run) -> list[float]:
    method, name, seed = run
    return regrets(METHODS[method], problem(name), list(_BUDGETS), seed)


def _print_comparisons(results: Mapping[Run, Sequence[float]], seeds: Sequence[int]) -> list[Bar]:
    few = min(method.seeds or len(seeds) for method in METHODS.values())
    always = [name for name, method in METHODS.items() if method.seeds is None]
    shares = _shares(results, METHODS, NAMES, seeds[:few])[min(_BUDGETS)]
    _print_comparison(f"{min(_BUDGETS)} evaluations, {few} seeds", shares, OUR_GP)
    bars = [
        (
            f"nr after {min(_BUDGETS)}, {OUR_GP}",
            f"{shares[OUR_GP].mean():.3f}",
            f"{shares[OPTUNA_GP].mean():.3f} ({OPTUNA_GP})",
        )
    ]
    of_problems = _shares(results, always, NAMES, seeds)
    for budget, bar in _BUDGETS.items():
        shares = of_problems[budget]
        _print_comparison(f"{budget} evaluations, {len(seeds)} seeds", shares, OURS)
        least = "" if budget > 100 else f"{math.ceil(0.8 * len(NAMES))}"
        for name in (OURS, DEFAULT):
            won = comparison.wins(shares[name], shares[SCIPY])
            bars.append((f"nr after {budget}, {name}", f"{shares[name].mean():.3f}", f"{bar}"))
            bars.append((f"problems won against {SCIPY} after {budget}, {name}", f"{won}", least))
    shown = (OURS, SCIPY, TPE)
    _print_table(
        ("nr after " + ", ".join(map(str, _BUDGETS)), *shown),
        [
            (name, *(" ".join(f"{of_problems[b][m][row]:.3f}" for b in _BUDGETS) for m in shown))
            for row, name in enumerate(NAMES)
        ],
    )
    return bars


def _shares(
    results: Mapping[Run, Sequence[float]],
    methods: Iterable[str],
    names: Sequence[str],
    seeds: Sequence[int],
) -> dict[int, dict[str, Array]]:
    """Return the nr of each problem after each budget, by method."""

    def regret(method: str, seeds: Sequence[int]) -> Array:  # problems x seeds x budgets
        return np.array([[results[method, name, seed] for seed in seeds] for name in names])

    reference = regret(RANDOM, _REFERENCE)
    found = {method: regret(method, seeds) for method in methods}
    return {
        budget: {
            method: comparison.normalised(found[method][..., index], reference[..., index])
            for method in found
        }
        for index, budget in enumerate(_BUDGETS)
    }


def _print_comparison(title: str, shares: Mapping[str, Array], name: str) -> None:
    ranks = comparison.mean_ranks(shares)
    p_values = comparison.against(name, shares)
    won = {method: comparison.wins(share, shares[SCIPY]) for method, share in shares.items()}
    _print_table(
        (title, "nr", "mean rank", f"problems won against {SCIPY}", f"p against {name}"),
        [
            (
                method,
                f"{share.mean():.3f}",
                f"{ranks[method]:.2f}",
                "" if method == SCIPY else f"{won[method]} of {len(share)}",
                "" if method == name else f"{p_values[method]:.2g}",
            )
            for method, share in shares.items()
        ],
    )
    if len(shares) > 2:
        p = comparison.friedman(shares)
        print(f"Friedman's test that all are equally good: p = {p:.2g}.\n")


Simulation = tuple[str, float, int, float, int]
"""Problem, target, workers, sigma and seed."""


def _targets(results: Mapping[Run, Sequence[float]]) -> dict[str, float]:
    """Return the target values of the problems without noise or surrogate."""
    names = [name for name in NAMES if name not in surrogates.TASKS and not problem(name).noise]
    return {
        name: problem(name).best
        + _TARGET * statistics.mean(results[RANDOM, name, seed][-1] for seed in _REFERENCE)
        for name in names
    }


def _print_workers(pool: Any, targets: Mapping[str, float], seeds: Sequence[int]) -> list[Bar]:
    rows, ratios, uses = [], {}, {}
    for workers, sigma in itertools.product(_WORKERS, _SIGMAS):
        simulations = [(n, t, workers, sigma, s) for n, t in targets.items() for s in seeds]
        runs = pool.map(_simulate, simulations, chunksize=1)
        of_problems = (
            runs[first : first + len(seeds)] for first in range(0, len(runs), len(seeds))
        )
        times = [
            list(map(expected_running_time, zip(*pairs, strict=True))) for pairs in of_problems
        ]
        both = [old / new for old, new in times if math.isfinite(old) and math.isfinite(new)]
        ratios[workers, sigma] = statistics.geometric_mean(both)
        uses[workers, sigma] = [statistics.mean(pair[w].use for pair in runs) for w in (0, 1)]
        reached = [sum(math.isfinite(time[which]) for time in times) for which in (0, 1)]
        rows.append(
            (
                f"{workers}",
                f"{sigma}",
                f"{ratios[workers, sigma]:.1f} ({min(both):.1f} to {max(both):.1f})",
                *(f"{use:.2f}" for use in uses[workers, sigma]),
                *(f"{count} of {len(times)}" for count in reached),
            )
        )
    _print_table(
        (
            "workers",
            "sigma",
            "time to target, by generation / without a barrier",
            "use by generation",
            "use without",
            "targets reached by generation",
            "without",
        ),
        rows,
    )
    hardest = max(_WORKERS), max(_SIGMAS)
    where = f"{hardest[0]} workers, sigma {hardest[1]}"
    return [
        (f"time to target, by generation / without, {where}", f"{ratios[hardest]:.1f}", "4"),
        (f"use without a barrier, {where}", f"{uses[hardest][1]:.2f}", "0.95"),
    ]


def _simulate(simulation: Simulation) -> tuple[Simulated, Simulated]:
    """Simulate the same operators by generation and without a barrier.

    The population of the former is as large as there are workers, or some would never have work.
    Screening and starting anew are the latter's alone.
    """
    name, target, workers, sigma, seed = simulation
    space, value = problem(name).space, problem(name).value
    settings: dict[str, Any] = {"direction": Direction.MIN}
    searchers: tuple[Searcher, Searcher] = (
        started(
            Evolution,
            space,
            seed,
            generational=True,
            variant="current-to-pbest1bin",
            crossover=0.7,
            mutation=(0.5, 1.0),
            popsize=workers,
            generations=_TRIALS // workers - 1,
            **settings,
        ),
        started(Evolution, space, seed, popsize=10, generations=_TRIALS // 10 - 1, **settings),
    )
    old, new = (
        simulate(
            searcher, value, workers=workers, sigma=sigma, target=target, rng=random.Random(seed)
        )
        for searcher in searchers
    )
    return old, new


def _print_asks() -> list[Bar]:
    """Time asks after 1,000 finished trials, each outcome passed to `tell` before the next."""
    asks = {name: sorted(_asks(start)) for name, start in SEARCHERS.items()}
    slow = {name: seconds[len(seconds) * 95 // 100] for name, seconds in asks.items()}
    title = f"a call of `ask` after {_FINISHED:,} trials, ms"
    _print_table(
        (title, "median", "95th percentile"),
        [
            (name, f"{1000 * statistics.median(asks[name]):.2f}", f"{1000 * slow[name]:.2f}")
            for name in SEARCHERS
        ],
    )
    return [(f"{title}, 95th percentile: {OURS}", f"{1000 * slow[OURS]:.1f}", "10")]


def _asks(start: Start) -> list[float]:
    """Return the seconds of each ask of a search with 1,000 finished trials."""
    target = problem("network")
    searcher = RandomSearch(Problem(space=target.space, samples=_FINISHED, rng=random.Random(0)))
    finished = [trial.params for trial in iter(searcher.ask, None)]
    known = [Evaluated(params, target.value(params)) for params in finished]
    searcher = start(started_on(target.space, _ASKS, 0, known))
    seconds = []
    for _ in range(_ASKS):
        started = time.perf_counter()
        trial = searcher.ask()
        seconds.append(time.perf_counter() - started)
        searcher.tell(Outcome(trial.id, "finished", target.value(trial.params)))
    return seconds


def _head_and_rows(
    table: Iterable[tuple[str, ...]],
) -> tuple[tuple[str, ...], Iterable[tuple[str, ...]]]:
    head, *rows = table
    return head, rows


def _print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    for row in (header, ["---"] * len(header), *rows):
        print("| " + " | ".join(row) + " |")
    print(flush=True)


if __name__ == "__main__":
    main()
