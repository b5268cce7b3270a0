import dataclasses
import json
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import search
from search.algorithms import Evolution, Grid, Random
from search.direction import Directions
from search.errors import ExperimentError, InvalidArgument
from search.evolution.nsga2 import NSGA2
from search.evolution.population_based import PopulationTraining
from search.grid import GridSearch, PointSearch
from search.grouped import Grouped
from search.searcher import Problem, ask_again, drive
from search.sequential.bayesian import BayesianOptimization
from search.sequential.regularized_evolution import RegularizedEvolution
from search.sequential.reinforce import Reinforce
from search.space.sampling import random_point
from search.space.spaces import Choice, Space
from search.trial import Evaluated, Trial
from tests.search.fakes import (
    all_fail,
    outcome,
    started,
)
from tests.search.searcher_contract import (
    KNOWN,
    MIXED,
    SMALL,
    KnownContract,
    LearningContract,
    NoRepeatsContract,
    Noted,
    OrderlessContract,
    PointsContract,
    RandomSearcherContract,
    SpacesContract,
)

LISTS = Space.of_grid({"units": [4, 8, 16], "layers": [(8,), (8, 4)], "bias": [True, False]})
POINTS = [
    {"units": 4, "layers": (8, 4), "bias": True},
    {"units": 16, "layers": (8,), "bias": False},
    {"units": 8, "layers": (8,), "bias": True},
]


class TestGridSearch(OrderlessContract):
    algorithm = Grid()
    space = LISTS
    total = 12


class TestPointSearch(OrderlessContract):
    space = LISTS
    total = 3

    def make(self, seed=0):
        return PointSearch(POINTS)


class TestRandomSearch(
    RandomSearcherContract, OrderlessContract, SpacesContract, NoRepeatsContract
):
    algorithm = Random()
    samples = total = 13

    @pytest.mark.parametrize("seed", range(5))
    def test_trials_that_were_each_drawn_alone_are_asked_for_again(self, seed):
        rng = random.Random(seed)
        drawn = [SMALL.decode(random_point(SMALL, rng)) for _ in range(20)]
        searcher = started(Random, SMALL, seed, samples=20)
        for number, params in enumerate(drawn):
            assert ask_again(searcher, Trial(number, params)) == Trial(number, params)
        assert searcher.finished
        assert searcher.total == 20


class TestDifferentialEvolution(
    RandomSearcherContract, OrderlessContract, LearningContract, NoRepeatsContract
):
    algorithm = Evolution(popsize=5, generational=True)
    learner = Evolution(popsize=8, generations=9, generational=True)
    total = 20


class TestSteadyStateEvolution(RandomSearcherContract, LearningContract, NoRepeatsContract):
    algorithm = Evolution(popsize=5)
    total = 20


TWO = Directions.parse({"value": "max", "rest": "min"})


def of_two(item):
    """Turn one objective into two that cannot both be best."""
    known = item.value is not None
    values = {"value": item.value, "rest": item.value % 0.7} if known else {}
    return msgspec.structs.replace(item, value=None, values=values)


class TellsTwo(Noted):
    """A searcher of two objectives that receives outcomes of one."""

    @property
    def total(self):
        return self._searcher.total

    @property
    def exhausted(self):
        return self._searcher.exhausted

    def tell(self, outcome):
        super().tell(of_two(outcome))


class StartsForTwo:
    """An algorithm of two objectives that is started for one."""

    def __init__(self, algorithm):
        self._algorithm = algorithm

    def start(self, problem):
        known = [of_two(item) for item in problem.known]
        problem = dataclasses.replace(problem, direction=TWO, known=known)
        return TellsTwo(self._algorithm.start(problem))


class TestNSGA2(RandomSearcherContract, SpacesContract, NoRepeatsContract):
    algorithm = StartsForTwo(NSGA2(popsize=5, generations=3))
    total = 20


class TestNSGA2ByGeneration(
    RandomSearcherContract, OrderlessContract, SpacesContract, NoRepeatsContract
):
    algorithm = StartsForTwo(NSGA2(popsize=5, generations=3, generational=True))
    total = 20


class TestNoisySteadyStateEvolution(RandomSearcherContract, LearningContract, KnownContract):
    algorithm = Evolution(popsize=5, generations=7, noisy=True)
    total = 40


class TestPopulationBasedTraining(
    RandomSearcherContract, OrderlessContract, LearningContract, PointsContract
):
    algorithm = PopulationTraining(popsize=5, generations=3)
    total = 20


class TestRegularizedEvolution(RandomSearcherContract, LearningContract, NoRepeatsContract):
    algorithm = RegularizedEvolution(popsize=6, tournament=3)
    samples = total = 24


class TestReinforce(RandomSearcherContract, LearningContract, NoRepeatsContract):
    algorithm = Reinforce(learning_rate=0.2)
    samples = total = 24


class TestBayesianSearch(RandomSearcherContract, LearningContract, NoRepeatsContract):
    algorithm = BayesianOptimization()
    samples = total = 12  # four of them by a model
    examples, seeds = 1, 5  # a second each


@pytest.mark.slow
@pytest.mark.contract
class TestNoisyBayesianSearch(RandomSearcherContract, LearningContract, KnownContract):
    algorithm = BayesianOptimization(noisy=True)
    samples = total = 12
    examples, seeds = 1, 5  # a second each


REGIONS = Space({"region": Choice(["eu", "us"]), **MIXED})


class TestGroupedSearch(RandomSearcherContract):
    algorithm = Grouped(
        searcher=BayesianOptimization(), spaces={"eu": MIXED, "us": MIXED}, by="region"
    )
    space = REGIONS
    samples, total = 12, 24
    examples = 2


class TestGroupedSearchByGeneration(RandomSearcherContract):
    algorithm = Grouped(
        searcher=PopulationTraining(popsize=4, generations=3),
        spaces={"eu": MIXED, "us": MIXED},
        by="region",
    )
    space = REGIONS
    total = 32


@pytest.mark.parametrize(
    "given_first", [{"points": POINTS}, {"known": [Evaluated(POINTS[0], 1.0)]}]
)
def test_a_grid_takes_neither_points_nor_prior_observations(given_first):
    name = "points" if "points" in given_first else "warm_start"
    with pytest.raises(InvalidArgument, match=f"^{name}: expected none for a grid"):
        Grid().start(Problem(space=LISTS, rng=random.Random(0), **given_first))


def test_population_based_training_takes_no_prior_observations():
    problem = Problem(space=MIXED, rng=random.Random(0), known=KNOWN)
    with pytest.raises(InvalidArgument, match=r"^warm_start: .* checkpoints of the same run"):
        PopulationTraining().start(problem)


def test_drive_fails_if_the_searcher_waits_without_a_trial_in_flight():
    searcher = started(Evolution, MIXED, 0, generational=True, popsize=4)
    for _ in range(4):
        searcher.ask()
    with pytest.raises(ExperimentError, match="DifferentialEvolution waits for an outcome"):
        drive(searcher, all_fail)


def test_drive_continues_a_search_that_was_begun():
    searcher = GridSearch(LISTS)
    searcher.tell(outcome(searcher.ask(), 1.0))
    assert [item.trial for item in drive(searcher, all_fail)] == list(range(1, 12))


def test_drive_of_a_finished_searcher_returns_nothing():
    assert drive(PointSearch([]), all_fail) == []


def test_import_of_search_loads_no_heavy_package():
    heavy = ["pyspark", "tensorflow", "tensorboard", "hdfs", "grpc", "pandas", "scipy", "sklearn"]
    modules = "search.algorithms, search.adapters, json, sys"
    code = f"import {modules}; print(json.dumps([search.__file__, *sys.modules]))"
    finished = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(search.__file__).parents[1],
    )
    path, *modules = json.loads(finished.stdout)
    assert path == search.__file__
    assert [name for name in modules if name.split(".")[0] in heavy] == []
