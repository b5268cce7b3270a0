"""Searches of many hyperparameters on many slots: a table of `make bench-search`.

Functions of BBOB in 50 and 200 dimensions, 1,000 trials, one after the other and on 500 simulated
slots whose trials take log-normal times. A value is the regret as a share of random search's, and
beside it are the milliseconds of processor that an `ask` takes after 900 trials: the 95th
percentile of a search, and of all searches the median.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import cocoex
from deap import cma

from search.adapters.deap import DeapSearcher
from search.algorithms import Evolution, Random
from search.direction import Direction
from search.searcher import Problem, Searcher
from search.space.sampling import random_point
from search.space.spaces import Float, Space
from search.trial import Outcome, Trial
from tests.benchmarks.searches.methods import RANDOM
from tests.benchmarks.searches.workers import simulate

TRIALS = 1_000
DIMENSIONS = (50, 200)
SLOTS = (1, 500)
FUNCTIONS = (1, 3, 8)  # sphere, Rastrigin, Rosenbrock

_TIMED = 900  # trials before the asks that are timed
_SIGMA = 0.5  # of the logarithm of a trial's time
_SHARE = 0.05  # of the hyperparameters, in a random subspace


class Subspaces:
    """Search in random subspaces: the best configuration so far, some coordinates drawn anew."""

    finished = False
    exhausted = None

    def __init__(self, problem: Problem) -> None:
        self._space, self._rng = problem.space, problem.rng
        self._points: dict[int, list[float]] = {}
        self._best: tuple[float, list[float]] = (math.inf, [])
        self._asked = 0

    def ask(self) -> Trial:
        """Return the next trial; random before the first value."""
        point = random_point(self._space, self._rng)
        if best := self._best[1]:
            drawn = self._rng.sample(range(len(point)), max(1, int(_SHARE * len(point))))
            point = [x if axis in drawn else best[axis] for axis, x in enumerate(point)]
        self._points[self._asked] = point
        self._asked += 1
        return Trial(self._asked - 1, self._space.decode(point))

    def tell(self, outcome: Outcome) -> None:
        """Keep the best point."""
        assert outcome.value is not None
        self._best = min(self._best, (outcome.value, self._points.pop(outcome.trial)))


def _evolution(popsize: int) -> Callable[[Problem], Any]:
    return Evolution(popsize=popsize, generations=TRIALS // popsize - 1).start


CMA_ES = "DEAP's CMA-ES"

METHODS: dict[str, Callable[[Problem], Any]] = {
    "`evolutionary_search`, popsize=10": _evolution(10),
    "the same, popsize=20": _evolution(20),
    CMA_ES: DeapSearcher(lambda n: cma.Strategy(centroid=[0.5] * n, sigma=0.3)).start,
    "random subspaces": Subspaces,
    RANDOM: Random().start,
}
"""The compared searches, by the name of their row."""

Task = tuple[str, int, int, int, int]
"""Method, function, dimensions, slots and seed."""


class _Timed:
    """A searcher whose trials are counted and timed, and which ends after `TRIALS` of them."""

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher
        self._asked = 0
        self.seconds: list[float] = []

    def ask(self) -> Trial | None:
        if self._asked == TRIALS:
            return None
        started = time.process_time()
        trial = self._searcher.ask()
        if trial is not None:
            self.seconds.append(time.process_time() - started)
            self._asked += 1
        return trial

    def __getattr__(self, name: str) -> Any:
        return getattr(self._searcher, name)


def run_task(task: Task) -> tuple[float, float]:
    """Return the regret after all trials, and an ask's seconds, 95th percentile of the last."""
    method, number, dimensions, slots, seed = task
    function = cocoex.BareProblem("bbob", number, dimensions, 1)
    space = Space({f"x{axis}": Float(-5.0, 5.0) for axis in range(dimensions)})
    own_budget = method not in (RANDOM, CMA_ES)
    problem = Problem(
        space=space,
        rng=random.Random(seed),
        direction=Direction.MIN,
        samples=None if own_budget else TRIALS,
        slots=lambda: slots,
    )
    searcher = _Timed(METHODS[method](problem))
    values: list[float] = []

    def objective(params: Mapping[str, Any]) -> float:
        values.append(float(function(list(params.values()))))
        return values[-1]

    simulate(
        searcher,
        objective,
        workers=slots,
        sigma=_SIGMA,
        target=-math.inf,
        rng=random.Random(seed),
    )
    last = sorted(searcher.seconds[_TIMED:])
    return min(values) - function.best_value(), last[len(last) * 95 // 100]


def tasks(seeds: Sequence[int], methods: Sequence[str] = tuple(METHODS)) -> list[Task]:
    """Return all tasks."""
    return list(itertools.product(methods, FUNCTIONS, DIMENSIONS, SLOTS, seeds))


def rows(found: Mapping[Task, tuple[float, float]]) -> Iterator[tuple[str, ...]]:
    """Yield the head and the rows of the table."""
    seeds = len({seed for *_, seed in found})
    cases = list(itertools.product(DIMENSIONS, SLOTS))
    yield (
        f"regret / random search's, {TRIALS:,} trials, {seeds} seeds; ms of an ask",
        *(f"{dimensions} parameters, {slots} slots" for dimensions, slots in cases),
    )
    for method in dict.fromkeys(method for method, *_ in found):
        cells = []
        for dimensions, slots in cases:
            shares = [
                _mean(found, method, number, dimensions, slots)
                / _mean(found, RANDOM, number, dimensions, slots)
                for number in FUNCTIONS
            ]
            asks = [
                ask
                for task, (_, ask) in found.items()
                if (task[0], *task[2:4]) == (method, dimensions, slots)
            ]
            cells.append(f"{statistics.mean(shares):.2f}; {1000 * statistics.median(asks):.1f}")
        yield method, *cells


def _mean(
    found: Mapping[Task, tuple[float, float]], method: str, number: int, dimensions: int, slots: int
) -> float:
    case = method, number, dimensions, slots
    return statistics.mean(regret for task, (regret, _) in found.items() if task[:4] == case)


def main() -> None:
    """Print the table alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2, help="number of seeds, from 0")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    methods = list(dict.fromkeys([*options.methods, RANDOM]))
    found = {task: run_task(task) for task in tasks(range(options.seeds), methods)}
    for row in rows(found):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
