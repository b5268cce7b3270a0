"""The quality of searches whose trials may be short: a table of `make bench-search`.

All run one trial after the other. Their budget is the number of epochs that are trained in all; a
trial that goes on from a checkpoint costs its further epochs. What a search holds after a budget is
the configuration of the trial with the best value so far; its regret is that after full training.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from search.adapters.dehb import DehbSearcher
from search.algorithms import Random
from search.direction import Direction
from search.fidelity.hyperband import Hyperband
from search.searcher import Algorithm, Problem, Searcher
from search.space.spaces import Integer, Space
from search.stopping.rules import SuccessiveHalving
from search.trial import Outcome
from tests.benchmarks.searches.methods import distribution
from tests.benchmarks.searches.problems.learning_curves import CURVES, MAX_STEPS, Curves

REDUCTION = 3
BUDGETS = tuple(count * MAX_STEPS for count in (5, 10, 20))
"""Epochs of 5, 10 and 20 full trainings."""

_MOST = 10_000  # trials, more than any budget allows


@dataclass(frozen=True)
class Step:
    """An epoch that was trained: the configuration, and the value if the trial has ended."""

    params: dict[str, Any]
    value: float | None


Run = Callable[[Curves, int], Iterator[Step]]
"""Runs a search on a function, given a seed, and yields every epoch that it trains."""


def regrets(run: Run, curves: Curves, seed: int, budgets: Sequence[int] = BUDGETS) -> list[float]:
    """Return the regret of what a search holds after each budget of epochs."""
    found: list[float] = []
    best, regret = math.inf, math.nan
    for epoch, step in enumerate(run(curves, seed), 1):
        if step.value is not None and step.value < best:
            best = step.value
            regret = curves.value(step.params, MAX_STEPS) - curves.best
        if epoch == budgets[len(found)]:
            found.append(regret)
            if len(found) == len(budgets):
                return found
    return found + [regret] * (len(budgets) - len(found))


def _hyperband(**settings: Any) -> Run:
    def run(curves: Curves, seed: int) -> Iterator[Step]:
        algorithm = Hyperband(
            max_epochs=MAX_STEPS, reduction=REDUCTION, iterations=_MOST // 206, **settings
        )
        searcher = _start(algorithm, curves, seed)
        steps: dict[int, int] = {}  # of each trial
        while (trial := searcher.ask()) is not None:
            assert trial.max_steps is not None
            value = curves.value(trial.params, trial.max_steps)
            before = 0 if trial.parent is None else steps[trial.parent]
            steps[trial.id] = trial.max_steps
            if searcher.judge is not None:  # without reports PASHA does not see how curves cross
                for step in range(before + 1, trial.max_steps + 1):
                    searcher.judge.report(trial.id, step, curves.value(trial.params, step))
            yield from _epochs(dict(trial.params), trial.max_steps - before, value)
            searcher.tell(Outcome(trial.id, "finished", value))

    return run


def _start(algorithm: Algorithm, curves: Curves, seed: int, samples: int | None = None) -> Searcher:
    rng = random.Random(seed)
    problem = Problem(space=curves.space, rng=rng, direction=Direction.MIN, samples=samples)
    return algorithm.start(problem)


def _epochs(params: dict[str, Any], count: int, value: float) -> Iterator[Step]:
    for _ in range(count - 1):
        yield Step(params, None)
    yield Step(params, value)


def _random_with_asha(curves: Curves, seed: int) -> Iterator[Step]:
    searcher = _start(Random(), curves, seed, _MOST)
    judge = SuccessiveHalving(reduction_factor=REDUCTION).start(Direction.MIN)
    while (trial := searcher.ask()) is not None:
        for steps in range(1, MAX_STEPS + 1):
            value = curves.value(trial.params, steps)
            ends = steps == MAX_STEPS or judge.report(trial.id, steps, value) is not None
            yield Step(dict(trial.params), value if ends else None)
            if ends:
                break
        judge.ended(trial.id, "finished")


def _random_in_full(curves: Curves, seed: int) -> Iterator[Step]:
    searcher = _start(Random(), curves, seed, _MOST)
    while (trial := searcher.ask()) is not None:
        yield from _epochs(dict(trial.params), MAX_STEPS, curves.value(trial.params, MAX_STEPS))


def _optuna(curves: Curves, seed: int) -> Iterator[Step]:
    """TPE with Optuna's HyperbandPruner, both with their defaults but for the reduction."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(
            study_name="seeded by its name",  # HyperbandPruner draws a trial's bracket by it
            sampler=optuna.samplers.TPESampler(seed=seed),
            pruner=optuna.pruners.HyperbandPruner(1, MAX_STEPS, REDUCTION),
        )
    distributions = {name: distribution(domain) for name, domain in curves.space.items()}
    for _ in range(_MOST):
        trial = study.ask(distributions)
        for steps in range(1, MAX_STEPS + 1):
            value = curves.value(trial.params, steps)
            trial.report(value, steps)
            ends = steps == MAX_STEPS or trial.should_prune()
            yield Step(trial.params, value if ends else None)
            if ends:
                pruned = optuna.trial.TrialState.PRUNED if steps < MAX_STEPS else None
                study.tell(trial, None if pruned else value, state=pruned)
                break


def _dehb(curves: Curves, seed: int) -> Iterator[Step]:
    """DEHB's package, whose trials of each fidelity train from the start."""
    space = Space({**curves.space, "epochs": Integer(1, MAX_STEPS)})
    rng = random.Random(seed)
    problem = Problem(space=space, rng=rng, direction=Direction.MIN, samples=_MOST)
    searcher = DehbSearcher("epochs", REDUCTION).start(problem)
    while (trial := searcher.ask()) is not None:
        params = dict(trial.params)
        epochs = params.pop("epochs")
        value = curves.value(params, epochs)
        yield from _epochs(params, epochs, value)
        searcher.tell(Outcome(trial.id, "finished", value))


METHODS: dict[str, Run] = {
    "hyperband_search": _hyperband(),
    "hyperband_search, model='gaussian_process'": _hyperband(model="gaussian_process"),
    "hyperband_search, progressive=True": _hyperband(progressive=True),
    "random with ASHA": _random_with_asha,
    "random, full training": _random_in_full,
    "Optuna's TPE with its HyperbandPruner": _optuna,
    "DEHB's package": _dehb,
}
"""The compared searches, by the name of their row."""

Task = tuple[str, int, int]
"""Method, number of the function, and seed."""


def run_task(task: Task) -> list[float]:
    """Return the regrets of one search on one function."""
    method, number, seed = task
    return regrets(METHODS[method], CURVES[number], seed)


def rows(results: dict[Task, list[float]], seeds: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """Yield the head and the rows of the table: median regrets over the seeds."""
    yield (
        f"median regret after {', '.join(map(str, BUDGETS))} epochs, {len(seeds)} seeds",
        *(curves.name for curves in CURVES),
    )
    for method in METHODS:
        cells = []
        for number in range(len(CURVES)):
            runs = [results[method, number, seed] for seed in seeds]
            medians = (statistics.median(column) for column in zip(*runs, strict=True))
            cells.append(", ".join(f"{median:.4f}" for median in medians))
        yield (method, *cells)


def tasks(seeds: Sequence[int]) -> list[Task]:
    """Return all tasks, the longest first."""
    order = sorted(METHODS, key=lambda method: "gaussian" not in method)
    return [(method, n, seed) for method in order for n in range(len(CURVES)) for seed in seeds]


def main() -> None:
    """Print the table alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds, from 0")
    seeds = range(parser.parse_args().seeds)
    results = {task: run_task(task) for task in tasks(seeds)}
    for row in rows(results, seeds):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
