"""Runs of searches on the public problems."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.benchmarks.public.methods import PARALLEL, PLANNED, SEQUENTIAL, Parallel, installed
from tests.benchmarks.public.problems import problem
from tests.benchmarks.searches.methods import RANDOM, Method, regrets, started_on
from tests.benchmarks.searches.problems.functions import Problem
from tests.benchmarks.searches.workers import End, ends

BUDGETS = (30, 50, 100, 300)
WORKERS = (1, 8, 50)
SEEDS = 20  # from 0; nothing is ever tuned on these problems
REFERENCE = range(1_000_000, 1_000_100)  # seeds of the reference random searches of nr

SIGMA = 1.0
"""Standard deviation of the logarithm of a trial's duration, whose median is 1 s."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A search on a problem.

    Attributes:
        method: The name of its row.
        problem: The name of the problem.
        seed: The seed of the search and of the durations of its trials.
        workers: Trials at a time.
    """

    method: str
    problem: str
    seed: int
    workers: int


@dataclasses.dataclass(frozen=True)
class Run:
    """What one search came to.

    Attributes:
        method, problem, seed, workers: As of its task.
        regrets: The regret after each budget that the method has, by the budget as text; with an
            error those that were found before it.
        seconds: Seconds that it took.
        error: Why it failed; empty without an error.
    """

    method: str
    problem: str
    seed: int
    workers: int
    regrets: Mapping[str, float]
    seconds: float
    error: str = ""

    @property
    def task(self) -> Task:
        """The task that it was."""
        return Task(self.method, self.problem, self.seed, self.workers)

    def covers(self, budgets: Iterable[int]) -> bool:
        """Return whether it has a regret after each of these budgets that its method has."""
        most = _methods(self.workers)[self.method].budget
        return {str(budget) for budget in budgets if budget <= most} <= self.regrets.keys()


def tasks(
    methods: Iterable[str], problems: Sequence[str], seeds: Sequence[int], workers: Sequence[int]
) -> Iterator[Task]:
    """Yield the tasks seed by seed, so that an interruption leaves whole seeds.

    First come the reference random searches of nr. Methods that are not installed, or that do not
    exist with so many workers, are left out.
    """
    chosen = [method for method in methods if installed(method)]
    for count in workers:
        for name, seed in itertools.product(problems, REFERENCE):
            yield Task(RANDOM, name, seed, count)
    for index, seed in enumerate(seeds):
        for count, method in itertools.product(workers, chosen):
            known = _methods(count).get(method)
            if known is not None and index < (known.seeds or len(seeds)):
                for name in problems:
                    yield Task(method, name, seed, count)


def _methods(workers: int) -> Mapping[str, Method | Parallel]:
    return SEQUENTIAL if workers == 1 else PARALLEL


def run(task: Task, budgets: Sequence[int] = BUDGETS) -> Run:
    """Run a search; an error of its becomes the run's."""
    started = time.perf_counter()
    budgets = [count for count in budgets if count <= _methods(task.workers)[task.method].budget]
    error, found = "", list[float]()
    try:
        batches = [[count] for count in budgets] if task.method in PLANNED else [budgets]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries warn of what they themselves call
            for batch in filter(None, batches):
                found += _regrets(task, batch)
    except Exception as raised:  # hours of other searches go on
        error = f"{type(raised).__name__}: {raised}"
    after = {str(count): regret for count, regret in zip(budgets, found, strict=False)}
    seconds = round(time.perf_counter() - started, 3)
    return Run(**dataclasses.asdict(task), regrets=after, seconds=seconds, error=error)


def _regrets(task: Task, budgets: Sequence[int]) -> list[float]:
    target = problem(task.problem)
    if task.workers == 1:
        return regrets(SEQUENTIAL[task.method], target, budgets, task.seed)
    times = [equal_time(budget, task.workers) for budget in budgets]
    simulated = _simulated(task, target, max(budgets))
    return [value - target.best for value in held(simulated, times)]


def _simulated(task: Task, target: Problem, budget: int) -> Iterator[End]:
    """Yield the ends of the trials of a search with several workers."""
    # Twice as many trials as end on average: the time ends the search. What plans by its budget is
    # told the number of trials that begin.
    count = budget + task.workers
    samples = count if task.method in PLANNED else 2 * count
    started = dataclasses.replace(
        started_on(target.space, samples, task.seed), slots=lambda: task.workers
    )
    return ends(
        PARALLEL[task.method].start(started),
        target.value,
        workers=task.workers,
        sigma=SIGMA,
        rng=random.Random(f"durations {task.seed}"),
    )


def equal_time(budget: int, workers: int) -> float:
    """Return the seconds in which workers that never wait end `budget` trials on average."""
    return budget / workers * math.exp(SIGMA**2 / 2)


def held(simulated: Iterable[End], times: Sequence[float]) -> list[float]:
    """Return the lowest value of the trials that have ended by each of the ascending times.

    Infinite before the first end. A search that ends early keeps what it has.
    """
    found: list[float] = []
    best = math.inf
    for end in simulated:
        while len(found) < len(times) and end.seconds > times[len(found)]:
            found.append(best)
        if len(found) == len(times):
            break
        best = min(best, end.value)
    return found + [best] * (len(times) - len(found))
