"""The searches that the public problems are run with, each with the defaults of its documentation.

Where a library has no default for so few trials, it is as in `searches/methods.py`: scipy's and
DEAP's differential evolution have 10 individuals, as ours.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from search.adapters.nevergrad import NevergradSearcher
from search.adapters.optuna import OptunaSearcher
from search.algorithms import Evolution
from search.searcher import Problem as SearchProblem
from search.searcher import Searcher
from search.space.spaces import Choice, Domain, Float, Integer, Space
from search.trial import Outcome, Trial
from tests.benchmarks.searches.methods import (
    DEFAULT,
    METHODS,
    OPTUNA_GP,
    OUR_GP,
    RANDOM,
    SCIPY,
    SEARCHERS,
    TPE,
    Method,
    Objective,
    by_sampler,
)

DEAP, NGOPT = "DEAP's example of DE", "nevergrad's NGOpt"
AUTO = "Optuna's AutoSampler"
SMAC, HEBO = "SMAC3", "HEBO"
BY_GENERATION = "DE by generation"

_HUB = "ee680199100edbd95e0000eb20696c3ec5505973"  # a commit of optuna/optunahub-registry
_DEAR: dict[str, Any] = {"budget": 100, "seeds": 10}  # some tenths of a second per trial


def _auto_sampler(seed: int) -> Any:
    """Return Optuna's AutoSampler, downloaded from GitHub if no earlier run has kept it."""
    import optunahub
    import torch

    torch.set_num_threads(1)
    module = optunahub.load_module("samplers/auto_sampler", ref=_HUB)
    return module.AutoSampler(seed=seed)


def _nevergrad(space: Space, objective: Objective, budget: int, seed: int) -> None:
    import nevergrad
    import numpy as np

    parameters = {name: _parameter(nevergrad.p, domain) for name, domain in space.items()}
    parametrization = nevergrad.p.Dict(**parameters)
    parametrization.random_state = np.random.RandomState(seed)
    optimizer = nevergrad.optimizers.NGOpt(parametrization, budget=budget)
    for _ in range(budget):
        candidate = optimizer.ask()
        optimizer.tell(candidate, objective(candidate.value))


def _parameter(p: Any, domain: Domain) -> Any:
    match domain:
        case Choice(values):
            return p.Choice(list(values))
        case Float(low, high, log=False):
            return p.Scalar(lower=low, upper=high)
        case Integer(low, high, log=False):
            return p.Scalar(lower=low, upper=high).set_integer_casting()
    raise TypeError(f"no parameter of Nevergrad for {domain}")


def _smac(space: Space, objective: Objective, budget: int, seed: int) -> None:
    def target(config: Any, seed: int = 0) -> float:
        return objective(dict(config))

    with tempfile.TemporaryDirectory() as folder:
        _smacs_facade(space, budget, seed, folder, target).optimize()


def _smacs_facade(space: Space, budget: int, seed: int, folder: str, target: Any) -> Any:
    import smac
    from ConfigSpace import ConfigurationSpace

    scenario = smac.Scenario(
        # A tuple is a range, of floats or integers; a list has choices.
        ConfigurationSpace(dict(_ranges(space)), seed=seed),
        deterministic=True,
        n_trials=budget,
        seed=seed,
        output_directory=Path(folder),
    )
    return smac.HyperparameterOptimizationFacade(scenario, target, logging_level=False)


class _SmacSearch:
    """SMAC3 as a `Searcher`, by its own `ask` and `tell`, with any number of trials in flight."""

    finished = False

    def __init__(self, problem: SearchProblem) -> None:
        assert problem.samples is not None
        self.total = problem.samples
        self._folder = tempfile.TemporaryDirectory()
        seed = problem.rng.getrandbits(31)
        self._facade = _smacs_facade(problem.space, self.total, seed, self._folder.name, _called)
        self._asked: list[Any] = []

    def ask(self) -> Trial:
        """Return the next trial."""
        self._asked.append(self._facade.ask())
        return Trial(len(self._asked) - 1, dict(self._asked[-1].config))

    def tell(self, outcome: Outcome) -> None:
        """Tell SMAC3 of a value, the lower the better."""
        from smac.runhistory.dataclasses import TrialValue

        self._facade.tell(self._asked[outcome.trial], TrialValue(outcome.value), save=False)


def _called(config: Any, seed: int = 0) -> float:
    raise AssertionError("SMAC3 calls no function if it is asked for trials")


def _ranges(space: Space) -> Any:
    for name, domain in space.items():
        match domain:
            case Choice(values):
                yield name, list(values)
            case Float(low, high, log=False) | Integer(low, high, log=False):
                yield name, (low, high)
            case _:
                raise TypeError(f"no range of ConfigSpace for {domain}")


def _hebo(space: Space, objective: Objective, budget: int, seed: int) -> None:
    import numpy as np
    import torch
    from hebo.design_space.design_space import DesignSpace
    from hebo.optimizers.hebo import HEBO as Optimizer

    np.random.seed(seed)  # its models and its acquisition draw from the global generators
    torch.manual_seed(seed)
    optimizer = Optimizer(DesignSpace().parse(list(_records(space))), scramble_seed=seed)
    for _ in range(budget):
        suggested = optimizer.suggest()
        params = suggested.iloc[0].to_dict()
        optimizer.observe(suggested, np.array([[objective(params)]]))


def _records(space: Space) -> Any:
    for name, domain in space.items():
        match domain:
            case Choice(values):
                yield {"name": name, "type": "cat", "categories": list(values)}
            case Float(low, high, log=False):
                yield {"name": name, "type": "num", "lb": low, "ub": high}
            case Integer(low, high, log=False):
                yield {"name": name, "type": "int", "lb": low, "ub": high}
            case _:
                raise TypeError(f"no parameter of HEBO for {domain}")


SEQUENTIAL: dict[str, Method] = {
    DEFAULT: METHODS[DEFAULT],
    OUR_GP: dataclasses.replace(METHODS[OUR_GP], **_DEAR),
    TPE: METHODS[TPE],
    OPTUNA_GP: dataclasses.replace(METHODS[OPTUNA_GP], **_DEAR),
    AUTO: Method(by_sampler(_auto_sampler), **_DEAR),
    SMAC: Method(_smac, **_DEAR),
    HEBO: Method(_hebo, budget=50, seeds=5),  # some seconds per trial
    SCIPY: METHODS[SCIPY],
    DEAP: METHODS[DEAP],
    NGOPT: Method(_nevergrad),
    RANDOM: METHODS[RANDOM],
}
"""The searches that run one trial after the other, by the names of their rows."""

PLANNED = frozenset({SMAC, NGOPT})
"""Searches that plan by their budget: each budget is a run of its own."""

_NEEDED = {
    TPE: "optuna",
    OPTUNA_GP: "torch",
    AUTO: "optunahub",
    SMAC: "smac",
    HEBO: "hebo",
    NGOPT: "nevergrad",
}


def installed(method: str) -> bool:
    """Return whether the package of a search is installed."""
    return method not in _NEEDED or importlib.util.find_spec(_NEEDED[method]) is not None


@dataclasses.dataclass(frozen=True)
class Parallel:
    """A search with many trials at a time.

    Attributes:
        start: A function of the problem that starts it.
        budget: Maximum number of trials to be compared at.
        seeds: Maximum number of seeds; None for all of them.
    """

    start: Callable[[SearchProblem], Searcher]
    budget: int = 300
    seeds: int | None = None


def _by_generation(problem: SearchProblem) -> Searcher:
    """Start the operators of scipy and others, with an individual for each worker at least."""
    assert problem.samples is not None
    popsize = max(10, problem.slots())
    generations = max(1, math.ceil(problem.samples / popsize) - 1)
    algorithm = Evolution(popsize=popsize, generations=generations, generational=True)
    return algorithm.start(dataclasses.replace(problem, samples=None))


def _liar(problem: SearchProblem) -> Searcher:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return OptunaSearcher(optuna.samplers.TPESampler(constant_liar=True)).start(problem)


def _gaussian_process(problem: SearchProblem) -> Searcher:
    import optuna
    import torch

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    torch.set_num_threads(1)
    return OptunaSearcher(optuna.samplers.GPSampler()).start(problem)


def _auto(problem: SearchProblem) -> Searcher:
    sampler = _auto_sampler(problem.rng.getrandbits(31))
    return OptunaSearcher(sampler).start(problem)


def _ngopt(problem: SearchProblem) -> Searcher:
    return NevergradSearcher("NGOpt").start(problem)


PARALLEL: dict[str, Parallel] = {
    DEFAULT: Parallel(SEARCHERS[DEFAULT]),
    OUR_GP: Parallel(SEARCHERS[OUR_GP], **_DEAR),
    TPE: Parallel(_liar),
    OPTUNA_GP: Parallel(_gaussian_process, **_DEAR),
    AUTO: Parallel(_auto, **_DEAR),
    SMAC: Parallel(_SmacSearch, **_DEAR),
    BY_GENERATION: Parallel(_by_generation),
    NGOPT: Parallel(_ngopt),
    RANDOM: Parallel(SEARCHERS[RANDOM]),
}
"""The searches with several workers; TPE has `constant_liar=True`, as its documentation advises."""
