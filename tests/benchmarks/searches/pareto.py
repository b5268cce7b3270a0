"""The quality of searches for several objectives: a table of `make bench-search`.

The problems are ZDT 1 to 4 and 6 (Zitzler, Deb, Thiele: Comparison of multiobjective evolutionary
algorithms, Evolutionary Computation 8, 2000), DTLZ 2 and 7 with three objectives (Deb, Thiele,
Laumanns, Zitzler: Scalable test problems for evolutionary multiobjective optimization, 2005), and a
network's error on handwritten digits against its number of parameters. All objectives are
minimised.

A search is as good as the volume that the values it has found dominate (Zitzler, Thiele:
Multiobjective evolutionary algorithms, IEEE Transactions on Evolutionary Computation 3, 1999).
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import moocore
import numpy as np
from deap import benchmarks

from search.algorithms import Random
from search.direction import Directions
from search.evolution.nsga2 import NSGA2
from search.searcher import Problem as SearchProblem
from search.searcher import Searcher
from search.sequential.bayesian import BayesianOptimization
from search.space.spaces import Float, Space
from search.trial import Outcome
from tests.benchmarks.searches.comparison import Array
from tests.benchmarks.searches.methods import (
    OPTUNA_GP,
    OUR_GP,
    RANDOM,
    TPE,
    distribution,
    gaussian_process,
    tpe,
)
from tests.benchmarks.searches.problems import functions, surrogates

BUDGETS = (30, 100, 300)
"""Trials after which the volume is measured."""

_POPSIZE = 10  # the default
# Of methods that think for a tenth of a second or longer about each trial.
_FEW_SEEDS = 5
_DEAR_BUDGET = 100
_NETWORK = "network on digits"

Values = tuple[float, ...]
Ask = Callable[[Mapping[str, Any]], Values]


@dataclass(frozen=True)
class Problem:
    """A function with several objectives.

    Attributes:
        name: Unique among the problems.
        space: Its domain.
        objectives: Number of objectives.
        values: The function of hyperparameters.
    """

    name: str
    space: Space
    objectives: int
    values: Ask


@dataclass(frozen=True)
class Method:
    """A search.

    Attributes:
        run: A function that minimises the objectives of a problem, given a budget and a seed, and
            yields the values of each trial.
        budget: Maximum number of trials.
        seeds: Maximum number of seeds; None for all of them.
    """

    run: Callable[[Problem, int, int], Iterator[Values]]
    budget: int = max(BUDGETS)
    seeds: int | None = None


def _cube(
    name: str, dimensions: int, function: Callable[[list[float]], Any], objectives: int = 2
) -> Problem:
    """Return one of DEAP's functions on the unit cube."""
    space = Space({f"x{axis}": Float(0.0, 1.0) for axis in range(dimensions)})
    return Problem(
        name,
        space,
        objectives,
        lambda params: tuple(map(float, function(list(params.values())))),
    )


def _zdt4(x: Sequence[float]) -> Values:
    """Return ZDT4, whose coordinates after the first are of [-5, 5], of the unit cube."""
    return benchmarks.zdt4([x[0], *(10 * unit - 5 for unit in x[1:])])  # type: ignore[no-any-return]


def _digits() -> Problem:
    """Return error and size of a network with one hidden layer, by a surrogate of real fits."""
    task = functions.problem(_NETWORK)

    def values(params: Mapping[str, Any]) -> Values:
        hidden = params["hidden_layer_sizes"]
        return task.value(params), math.log10((64 + 1) * hidden + (hidden + 1) * 10)

    return Problem("digits", task.space, 2, values)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "ZDT1": lambda: _cube("ZDT1", 30, benchmarks.zdt1),
    "ZDT2": lambda: _cube("ZDT2", 30, benchmarks.zdt2),
    "ZDT3": lambda: _cube("ZDT3", 30, benchmarks.zdt3),
    "ZDT4": lambda: _cube("ZDT4", 10, _zdt4),
    "ZDT6": lambda: _cube("ZDT6", 10, benchmarks.zdt6),
    "DTLZ2": lambda: _cube("DTLZ2", 12, lambda x: benchmarks.dtlz2(x, 3), 3),
    "DTLZ7": lambda: _cube("DTLZ7", 22, lambda x: benchmarks.dtlz7(x, 3), 3),
    "digits": _digits,
}
"""What makes the problems, in the order of the table, with the dimensions of their authors."""


def _ours(
    start: Callable[[SearchProblem], Searcher], samples: int | None = None, **settings: int
) -> Method:
    def run(problem: Problem, budget: int, seed: int) -> Iterator[Values]:
        names = [f"f{number}" for number in range(problem.objectives)]
        searcher = start(
            SearchProblem(
                space=problem.space,
                rng=random.Random(seed),
                direction=Directions.parse(dict.fromkeys(names, "min")),
                samples=samples,
            )
        )
        while (trial := searcher.ask()) is not None:
            values = problem.values(trial.params)
            searcher.tell(
                Outcome(trial.id, "finished", values=dict(zip(names, values, strict=True)))
            )
            yield values

    return Method(run, **settings)


def _nsga2(**settings: Any) -> Method:
    generations = math.ceil(max(BUDGETS) / _POPSIZE) - 1
    return _ours(NSGA2(popsize=_POPSIZE, generations=generations, **settings).start)


def _optuna(sampler: Callable[[int], Any], **settings: int) -> Method:
    def run(problem: Problem, budget: int, seed: int) -> Iterator[Values]:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            directions = ["minimize"] * problem.objectives
            study = optuna.create_study(sampler=sampler(seed), directions=directions)
        distributions = {name: distribution(domain) for name, domain in problem.space.items()}
        for _ in range(budget):
            trial = study.ask(distributions)
            values = problem.values(trial.params)
            study.tell(trial, values)
            yield values

    return Method(run, **settings)


def _optunas_nsga2(**settings: int) -> Method:
    def sampler(seed: int) -> Any:
        import optuna

        return optuna.samplers.NSGAIISampler(seed=seed, **settings)

    return _optuna(sampler)


_DEAR: dict[str, Any] = {"budget": _DEAR_BUDGET, "seeds": _FEW_SEEDS}

METHODS: dict[str, Method] = {
    OUR_GP: _ours(BayesianOptimization().start, samples=_DEAR_BUDGET, **_DEAR),
    "NSGA2(crossover=0.7), as evolutionary_search": _nsga2(crossover=0.7),
    "NSGA2": _nsga2(),
    "NSGA2(generational=True)": _nsga2(generational=True),
    "Optuna's NSGA-II, population of 50 (its default)": _optunas_nsga2(),
    "Optuna's NSGA-II, population of 10": _optunas_nsga2(population_size=_POPSIZE),
    TPE: _optuna(tpe, seeds=_FEW_SEEDS),
    OPTUNA_GP: _optuna(gaussian_process, **_DEAR),
    RANDOM: _ours(Random().start, max(BUDGETS)),
}
"""The compared searches, each with the defaults of its library, by the name of their row."""

Task = tuple[str, str, int]
"""Method, problem and seed."""


def tasks(seeds: Sequence[int], names: Sequence[str] = tuple(METHODS)) -> list[Task]:
    """Return all tasks, those of the slowest methods first, so that no core waits at the end."""
    order = sorted(names, key=lambda name: METHODS[name].seeds or math.inf)
    return [
        task
        for name in order
        for task in itertools.product([name], PROBLEMS, seeds[: METHODS[name].seeds])
    ]


def run_task(task: Task) -> Array:
    """Return the values that one search found, trials x objectives."""
    name, problem, seed = task
    method = METHODS[name]
    values = method.run(PROBLEMS[problem](), method.budget, seed)
    return np.array(list(itertools.islice(values, method.budget)))


def lacking(found: Mapping[Task, Array], budget: int) -> dict[Task, float]:
    """Return the volume that each search lacks after a number of trials.

    It is (V - v) / (V - r): v is the volume that the search's values dominate, V that of the values
    of all searches on the problem together, after all of their trials, and r the mean v of random
    search after as many trials. 0 is the best known, 1 as good as random. The volume is bounded by
    the worst values of the fronts that random search found within the smallest budget.

    Args:
        found: The values that each search found, those of random search among them. Searches with
            fewer than `budget` trials are left out.
        budget: The number of trials.
    """
    shares = {}
    for problem in dict.fromkeys(problem for _, problem, _ in found):
        ours = {task: values for task, values in found.items() if task[1] == problem}
        chance = [values for task, values in ours.items() if task[0] == RANDOM]
        worst = np.max([front(values[: min(BUDGETS)]).max(axis=0) for values in chance], axis=0)
        best = _volume(np.concatenate(list(ours.values())), worst)
        reference = statistics.mean(_volume(values[:budget], worst) for values in chance)
        for task, values in ours.items():
            if len(values) >= budget:
                shares[task] = (best - _volume(values[:budget], worst)) / (best - reference)
    return shares


def front(values: Array) -> Array:
    """Return the rows that no other row dominates."""
    return np.asarray(values[moocore.is_nondominated(values)])


def _volume(values: Array, worst: Array) -> float:
    inside = values[(values < worst).all(axis=1)]
    return float(moocore.hypervolume(front(inside), ref=worst)) if len(inside) else 0.0


def rows(found: Mapping[Task, Array]) -> Iterator[tuple[str, ...]]:
    """Yield the head and the rows of the table: means over the seeds, after each budget."""
    seeds = len({seed for _, _, seed in found})
    budgets = ", ".join(map(str, BUDGETS))
    yield f"volume lacking after {budgets} trials, at most {seeds} seeds", *PROBLEMS, "mean"
    shares = [lacking(found, budget) for budget in BUDGETS]
    run = {method for method, _, _ in found}
    for method in (name for name in METHODS if name in run):
        means = [
            [_mean(of_budget, method, problem) for of_budget in shares] for problem in PROBLEMS
        ]
        over_all = [statistics.mean(column) for column in zip(*means, strict=True)]
        yield method, *(_cell(column) for column in (*means, over_all))


def _mean(shares: Mapping[Task, float], method: str, problem: str) -> float:
    """Return a method's mean share on a problem; NaN if its budget was smaller."""
    found = [share for task, share in shares.items() if task[:2] == (method, problem)]
    return statistics.mean(found) if found else math.nan


def _cell(shares: Sequence[float]) -> str:
    return " ".join("-" if math.isnan(share) else f"{share:.2f}" for share in shares)


def seconds(name: str) -> float:
    """Return the processor time that a search takes for a trial, mean over `_DEAR_BUDGET` trials.

    On ZDT1, whose own time does not count: it is microseconds.
    """
    values = METHODS[name].run(PROBLEMS["ZDT1"](), _DEAR_BUDGET, 0)
    next(values)  # imports
    start = time.process_time()
    count = sum(1 for _ in itertools.islice(values, _DEAR_BUDGET - 1))
    return (time.process_time() - start) / count


def main() -> None:
    """Print the table alone, and the time of each search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds, from 0")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    surrogates.prepare(1)
    names = dict.fromkeys([*options.methods, RANDOM])
    found = {task: run_task(task) for task in tasks(range(options.seeds), list(names))}
    for row in rows(found):
        print("| " + " | ".join(row) + " |", flush=True)
    for name in names:
        print(f"{name}: {seconds(name):.3f} s of processor per trial", flush=True)


if __name__ == "__main__":
    main()
