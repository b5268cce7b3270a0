"""The compared searches, ours and others', each with its defaults.

Those that know only numbers between bounds are given the unit cube of the space, with log scales,
integers and choices decoded as for ours.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search.algorithms import Evolution, Random
from search.direction import Direction
from search.searcher import Problem as SearchProblem
from search.searcher import Searcher
from search.sequential.bayesian import BayesianOptimization
from search.sequential.regularized_evolution import RegularizedEvolution
from search.sequential.reinforce import Reinforce
from search.space.spaces import Choice, Domain, Float, Integer, Space
from search.trial import Evaluated, Outcome
from tests.benchmarks.searches.problems.functions import Problem

_POPSIZE = 10

Objective = Callable[[Mapping[str, Any]], float]
Start = Callable[[SearchProblem], Searcher]


class Spent(Exception):
    """The budget of a run is spent."""


class Evaluations:
    """A problem in one run: evaluations are counted, and have the problem's noise.

    Attributes:
        incumbents: After each evaluation, the value without noise of the hyperparameters that
            looked best so far.
    """

    def __init__(self, problem: Problem, budget: int, seed: int) -> None:
        self._problem, self._budget = problem, budget
        self._noise = random.Random(f"noise {seed}")
        self._lowest = math.inf
        self.incumbents: list[float] = []

    def __call__(self, params: Mapping[str, Any]) -> float:
        """Return the value with noise; raise `Spent` beyond the budget."""
        if len(self.incumbents) == self._budget:
            raise Spent
        value = self._problem.value(params)
        seen = value + self._noise.gauss(0, 1) * self._problem.noise
        incumbent = self.incumbents[-1] if seen >= self._lowest else value
        self._lowest = min(seen, self._lowest)
        self.incumbents.append(incumbent)
        return seen


@dataclass(frozen=True)
class Method:
    """A search.

    Attributes:
        run: A function that minimises an objective over a space, given a budget and a seed; it may
            continue until the objective raises.
        budget: Maximum evaluations.
        seeds: Maximum number of seeds; None for all of them.
    """

    run: Callable[[Space, Objective, int, int], None]
    budget: int = 300
    seeds: int | None = None


def regrets(method: Method, problem: Problem, budgets: Sequence[int], seed: int) -> list[float]:
    """Return the incumbent's distance from the best known value after each budget.

    A search that ends before its budget is spent keeps what it has. NaN beyond the method's budget.
    """
    budget = min(max(budgets), method.budget)
    evaluations = Evaluations(problem, budget, seed)
    with contextlib.suppress(Spent):
        method.run(problem.space, evaluations, budget, seed)
    found = evaluations.incumbents
    return [
        found[min(budget, len(found)) - 1] - problem.best if budget <= method.budget else math.nan
        for budget in budgets
    ]


def _ours(start: Start, **settings: int) -> Method:
    def run(space: Space, objective: Objective, budget: int, seed: int) -> None:
        searcher = start(started_on(space, budget, seed))
        while (trial := searcher.ask()) is not None:
            searcher.tell(Outcome(trial.id, "finished", objective(trial.params)))

    return Method(run, **settings)


def started_on(
    space: Space, budget: int, seed: int, known: Sequence[Evaluated] = ()
) -> SearchProblem:
    """Return the problem for a search of ours."""
    rng = random.Random(seed)
    return SearchProblem(space=space, rng=rng, direction=Direction.MIN, samples=budget, known=known)


def _evolution(popsize: int, **settings: Any) -> Start:
    def start(problem: SearchProblem) -> Searcher:
        assert problem.samples is not None
        generations = math.ceil(problem.samples / popsize) - 1
        algorithm = Evolution(popsize=popsize, generations=generations, **settings)
        return algorithm.start(dataclasses.replace(problem, samples=None))

    return start


def _scipy(space: Space, objective: Objective, budget: int, seed: int) -> None:
    """best1bin with 10 individuals, from a Latin hypercube, replaced immediately, no polish."""
    from scipy.optimize import differential_evolution
    from scipy.stats import qmc

    differential_evolution(
        lambda point: objective(space.decode(point)),
        [(0, 1)] * len(space),
        init=qmc.LatinHypercube(len(space), rng=seed).random(_POPSIZE),
        maxiter=budget,
        tol=0,
        polish=False,
        updating="immediate",
        rng=seed,
    )


def _deap(space: Space, objective: Objective, budget: int, seed: int) -> None:
    """DEAP's example examples/de/basic.py with 10 agents, clipped to the unit cube.

    Rewritten for a unit cube and without `creator`; CR, F and the selection are the example's.
    """
    from deap import tools

    rate, weight, select = 0.25, 1.0, tools.selRandom
    random.seed(seed)  # the generator of DEAP

    def evaluate(agent: Sequence[float]) -> float:
        return objective(space.decode([min(max(x, 0.0), 1.0) for x in agent]))

    agents = [[random.random() for _ in space] for _ in range(_POPSIZE)]
    values = [evaluate(agent) for agent in agents]
    while True:
        for number, agent in enumerate(agents):
            a, b, c = select(agents, k=3)
            forced = random.randrange(len(agent))
            trial = [
                a[axis] + weight * (b[axis] - c[axis])
                if axis == forced or random.random() < rate
                else x
                for axis, x in enumerate(agent)
            ]
            value = evaluate(trial)
            if value < values[number]:
                agents[number], values[number] = trial, value


def by_sampler(sampler: Callable[[int], Any]) -> Callable[[Space, Objective, int, int], None]:
    """Return the search by a sampler of Optuna, which a function of the seed makes."""

    def run(space: Space, objective: Objective, budget: int, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study = optuna.create_study(sampler=sampler(seed))
        distributions = {name: distribution(domain) for name, domain in space.items()}
        for _ in range(budget):
            trial = study.ask(distributions)
            study.tell(trial, objective(trial.params))

    return run


def distribution(domain: Domain) -> Any:
    """Return Optuna's distribution of a domain."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    match domain:
        case Float(low, high, log=log):
            return FloatDistribution(low, high, log=log)
        case Integer(low, high, log=log):
            return IntDistribution(low, high, log=log)
        case Choice(values):
            return CategoricalDistribution(values)
    raise TypeError(f"no distribution of Optuna's for {domain}")


def tpe(seed: int) -> Any:
    """Return Optuna's TPE."""
    import optuna

    return optuna.samplers.TPESampler(seed=seed)


def gaussian_process(seed: int) -> Any:
    """Return Optuna's Gaussian process, in one thread."""
    import optuna
    import torch

    torch.set_num_threads(1)
    return optuna.samplers.GPSampler(seed=seed)


OURS, DEFAULT = "DE without a barrier, popsize=8", "DE without a barrier, popsize=10"
FEW = "popsize=10, 5 candidates"
SCIPY, TPE, RANDOM = "scipy's DE", "Optuna's TPE", "random"
OUR_GP, OPTUNA_GP = "Gaussian process", "Optuna's Gaussian process"

_DEAR = {"budget": 30, "seeds": 10}  # a Gaussian process takes a tenth of a second per trial

SEARCHERS: dict[str, Start] = {
    OURS: _evolution(8),
    DEFAULT: _evolution(10),
    FEW: _evolution(10, candidates=5),
    "DE by generation": _evolution(10, generational=True),
    OUR_GP: BayesianOptimization().start,
    "regularised evolution": RegularizedEvolution().start,
    "reinforce": Reinforce().start,
    RANDOM: Random().start,
}
"""Our searchers. A `popsize` of 10 is the default; 8 is as good."""

METHODS: dict[str, Method] = {
    **{name: _ours(start) for name, start in SEARCHERS.items()},
    OUR_GP: _ours(SEARCHERS[OUR_GP], **_DEAR),
    SCIPY: Method(_scipy),
    "DEAP's example of DE": Method(_deap),
    TPE: Method(by_sampler(tpe)),
    OPTUNA_GP: Method(by_sampler(gaussian_process), **_DEAR),
}
"""Every method of the report, by the name of its row."""
