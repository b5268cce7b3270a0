import random
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from deap import algorithms, base, cma
from hypothesis import given
from hypothesis import strategies as st

from search.adapters import DeapSearcher
from search.adapters.deap import _reflected
from search.direction import Direction
from search.errors import InvalidArgument
from search.evolution.population_search import Individual
from search.searcher import drive
from search.space.spaces import Space
from search.trial import Evaluated
from tests.search.adapters.spaces import (
    PLANE,
    AdapterContract,
    bowl,
    global_random_numbers,
    problem_on,
)
from tests.search.fakes import evaluated_by, outcome, run_in_any_order
from tests.search.searcher_contract import KnownContract, RandomSearcherContract, SpacesContract


def cma_es(dimensions):
    return cma.Strategy(centroid=[0.5] * dimensions, sigma=0.3)


def one_plus_lambda(dimensions):
    parent = Individual([0.5] * dimensions, Direction.MAX)
    return cma.StrategyOnePlusLambda(parent, sigma=0.2, lambda_=3)


class TestCma(RandomSearcherContract, SpacesContract, KnownContract):
    algorithm = DeapSearcher(cma_es)
    samples = total = 23


class TestOnePlusLambda(RandomSearcherContract):
    algorithm = DeapSearcher(one_plus_lambda(5))
    samples = total = 13


class TestDeap(AdapterContract):
    def algorithm(self):
        return DeapSearcher(cma_es)


def native_values(strategy, generations, seed, direction):
    """The loop of a user of DEAP: `eaGenerateUpdate` on the global random numbers."""

    class Fitness(base.Fitness):
        weights = (direction.weight,)

    class Point(list):
        def __init__(self, numbers):
            super().__init__(numbers)
            self.fitness = Fitness()

    values = []

    def evaluate(point):
        # as MIXED's decode would, beyond the cube by reflection
        units = [unit % 2 if unit % 2 <= 1 else 2 - unit % 2 for unit in point]
        values.append(bowl(PLANE.decode(units)) * direction.weight)
        return (values[-1],)

    toolbox = base.Toolbox()
    toolbox.register("generate", strategy.generate, Point)
    toolbox.register("update", strategy.update)
    toolbox.register("evaluate", evaluate)
    with global_random_numbers(seed):
        algorithms.eaGenerateUpdate(toolbox, ngen=generations, verbose=False)
    return values


@pytest.mark.parametrize("make", [cma_es, one_plus_lambda])
@pytest.mark.parametrize("direction", list(Direction))
def test_trials_one_by_one_are_those_of_deaps_own_loop(make, direction):
    strategy = make(2)
    samples = strategy.lambda_ * 10
    seed = random.Random(4).getrandbits(32)  # the first that the searcher draws
    native = native_values(make(2), 10, seed, direction)
    problem = problem_on(PLANE, samples, seed=4, direction=direction)
    outcomes = drive(
        DeapSearcher(strategy).start(problem),
        lambda trial: outcome(trial, bowl(trial.params) * direction.weight),
    )
    assert [item.value for item in outcomes] == native


@pytest.mark.parametrize("slots", [1, 8])
def test_cma_es_finds_the_best(slots):
    searcher = DeapSearcher(cma_es).start(problem_on(PLANE, 240))
    values, out = [], []
    while out or not searcher.finished:
        trial = searcher.ask() if len(out) < slots else None
        if trial is not None:
            out.append(trial)
        else:
            trial = out.pop(0)
            values.append(bowl(trial.params))
            searcher.tell(outcome(trial, values[-1]))
    assert max(values) > -1e-4


def test_there_is_no_barrier_between_generations():
    searcher = DeapSearcher(cma_es).start(problem_on(PLANE, 100))
    assert None not in [searcher.ask() for _ in range(100)]


def test_prior_observations_update_the_strategy():
    known = [Evaluated({"x": x, "y": -2.0}, bowl({"x": x, "y": -2.0})) for x in (0.8, 0.9, 1, 1.1)]
    known += [Evaluated({"x": -5.0, "y": 5.0}, None)] * 20
    means = []
    for evaluated in ([], known * 2):
        searcher = DeapSearcher(cma_es).start(problem_on(PLANE, 60, known=evaluated))
        means.append(np.mean([searcher.ask().params["x"] for _ in range(60)]))
    assert abs(means[1] - 1) < abs(means[0] - 1)


def test_the_users_strategy_is_not_changed():
    strategy = cma_es(2)
    trials = [
        run_in_any_order(
            DeapSearcher(strategy).start(problem_on(PLANE, 30)),
            evaluated_by(bowl),
            random.Random(1),
        )
        for _ in range(2)
    ]
    assert trials[0] == trials[1]
    assert strategy.sigma == 0.3
    assert strategy.centroid.tolist() == [0.5, 0.5]


def test_the_manifest_distinguishes_strategies():
    written = DeapSearcher(cma_es(3)).to_json()
    assert written["type"] == "deap"
    assert written["strategy"].items() >= {"class": "Strategy", "lambda_": 7, "sigma": 0.3}.items()
    assert DeapSearcher(cma_es).to_json() == {"type": "deap", "strategy": "cma_es"}


@pytest.mark.parametrize("strategy", [None, "cma", cma.Strategy, 3])
def test_invalid_strategies_are_refused(strategy):
    with pytest.raises(InvalidArgument, match="strategy: expected a strategy of DEAP"):
        DeapSearcher(strategy)


def test_a_function_that_makes_no_strategy_is_refused():
    with pytest.raises(InvalidArgument, match="got one that makes 2"):
        DeapSearcher(lambda dimensions: dimensions).start(problem_on(PLANE, 5))


def test_a_strategy_of_other_dimensions_is_refused():
    with pytest.raises(InvalidArgument, match="one that generates points of 2 dimensions"):
        DeapSearcher(cma_es(3)).start(problem_on(PLANE, 5))


def test_settings_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        DeapSearcher(cma_es).strategy = None


@given(st.floats(-1e6, 1e6))
def test_reflection_keeps_numbers_inside_and_moves_others_inside(number):
    inside = _reflected(number)
    assert 0.0 <= inside <= 1.0
    assert _reflected(-number) == pytest.approx(inside, abs=1e-9)
    if 0.0 <= number <= 1.0:
        assert inside == number


def test_a_space_of_one_hyperparameter():
    space = Space.of_bounds({"x": [-5.0, 5.0]})
    searcher = DeapSearcher(cma_es).start(problem_on(space, 60))
    outcomes = drive(searcher, evaluated_by(lambda params: -abs(params["x"] - 1)))
    assert max(item.value for item in outcomes) > -0.01
