import random
from dataclasses import replace

import nevergrad as ng
import numpy as np
import pytest

from search.adapters import NevergradSearcher
from search.direction import Direction, Directions
from search.errors import InvalidArgument
from search.searcher import drive
from search.space.spaces import Choice, Space
from search.trial import Evaluated, Outcome
from tests.search.adapters.spaces import (
    PLANE,
    AdapterContract,
    bowl,
    global_random_numbers,
    problem_on,
)
from tests.search.fakes import evaluated_by, outcome, recorded, run_in_any_order
from tests.search.searcher_contract import (
    MIXED,
    KnownContract,
    RandomSearcherContract,
    SpacesContract,
)

OPTIMIZERS = ["CMA", "DE", "PSO", "OnePlusOne", "TBPSA", "LognormalDiscreteOnePlusOne"]

# Nevergrad's CMA draws it from pycma, alone as well.
pytestmark = pytest.mark.filterwarnings("ignore:.*orphanated injected solution")


class TestCma(RandomSearcherContract, SpacesContract, KnownContract):
    algorithm = NevergradSearcher("CMA", num_workers=13)
    samples = total = 13
    examples = 4


class TestNevergrad(AdapterContract):
    def algorithm(self):
        return NevergradSearcher("CMA", num_workers=4)


def sequential(searcher, function, direction=Direction.MAX):
    weight = direction.weight
    outcomes = drive(searcher, lambda trial: outcome(trial, function(trial.params) * weight))
    return [item.value for item in outcomes]


@pytest.mark.parametrize("name", [*OPTIMIZERS, "NGOpt"])
def test_the_same_seed_gives_the_same_trials_if_other_code_draws_too(name):
    def trials(seed, other):
        np.random.seed(other)
        searcher = NevergradSearcher(name, num_workers=3).start(problem_on(MIXED, 20, seed))
        before = np.random.get_state()[1].tolist()
        found = run_in_any_order(
            searcher, evaluated_by(lambda params: float(params["units"])), random.Random(0)
        )
        assert np.random.get_state()[1].tolist() == before
        return found

    first = trials(1, 1)
    assert trials(1, 2) == first
    assert trials(2, 1) != first


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("direction", list(Direction))
def test_trials_one_by_one_are_those_of_nevergrads_own_loop(name, direction):
    rng = random.Random(4)  # what the searcher draws from it: two seeds
    seeds, values = [rng.getrandbits(32) for _ in range(2)], []
    with global_random_numbers(seeds[1]):
        parametrization = ng.p.Tuple(*[ng.p.Scalar(lower=0.0, upper=1.0) for _ in PLANE])
        parametrization.random_state = np.random.RandomState(seeds[0])
        native = ng.optimizers.registry[name](parametrization=parametrization, budget=40)
        for _ in range(40):
            candidate = native.ask()
            values.append(bowl(PLANE.decode(candidate.value)) * direction.weight)
            native.tell(candidate, -direction.weight * values[-1])
    problem = problem_on(PLANE, 40, seed=4, direction=direction)
    assert sequential(NevergradSearcher(name).start(problem), bowl, direction) == values


@pytest.mark.parametrize("slots", [1, 8])
def test_cma_es_finds_the_best(slots):
    optimizer = NevergradSearcher(ng.optimizers.ParametrizedCMA(popsize=8), num_workers=slots)
    searcher = optimizer.start(problem_on(PLANE, 240))
    values, out = [], []
    while out or not searcher.finished:
        trial = searcher.ask()
        if trial is not None:
            out.append(trial)
        else:
            assert len(out) == slots or searcher.finished
            trial = out.pop(0)
            values.append(bowl(trial.params))
            searcher.tell(outcome(trial, values[-1]))
    assert max(values) > -1e-4


def test_an_optimizer_for_one_worker_has_one_trial_in_flight():
    searcher = NevergradSearcher("NelderMead").start(problem_on(PLANE, 60))
    assert max(sequential(searcher, bowl)) > -1
    searcher = NevergradSearcher("NelderMead").start(problem_on(PLANE, 5))
    searcher.ask()
    assert searcher.ask() is None
    with pytest.raises(InvalidArgument, match="num_workers: expected 1 for NelderMead, got 2"):
        NevergradSearcher("NelderMead", num_workers=2)


def test_an_optimizer_that_learns_its_proposals_only_refuses_a_warm_start_and_takes_points():
    point = {"x": 1.0, "y": -2.0}
    with pytest.raises(InvalidArgument, match="warm_start"):
        known = [Evaluated(point, 0.0)]
        NevergradSearcher("EDA").start(problem_on(PLANE, 5, known=known))
    searcher = NevergradSearcher("EDA").start(problem_on(PLANE, 5, points=[point]))
    assert sequential(searcher, bowl)[0] == 0.0


@pytest.mark.parametrize("name", ["LHSSearch", "ScrHammersleySearch", "OScrHammersleySearch"])
def test_a_constraint_leaves_as_many_trials_to_an_optimizer_with_a_fixed_number_of_points(name):
    space = Space(PLANE, constraint=lambda params: params["x"] < 0)
    searcher = NevergradSearcher(name, num_workers=10).start(problem_on(space, 10))
    trials = []
    assert len(drive(searcher, recorded(evaluated_by(bowl), trials))) == 10
    assert all(trial.params["x"] < 0 for trial in trials)


def test_a_failed_assertion_within_the_budget_is_an_error(monkeypatch):
    searcher = NevergradSearcher("LHSSearch", num_workers=2).start(problem_on(PLANE, 10))
    searcher.ask()
    sampler = searcher._optimiser._optimizer.sampler
    monkeypatch.setattr(sampler, "budget", 1)
    with pytest.raises(AssertionError, match="Over the budget"):
        searcher.ask()


def test_prior_observations_update_the_optimizer():
    # DE breeds from its population.
    rng = random.Random(0)
    near = [{"x": 1 + rng.gauss(0, 0.1), "y": -2 + rng.gauss(0, 0.1)} for _ in range(40)]
    known = [Evaluated(params, bowl(params)) for params in near]
    searcher = NevergradSearcher("DE").start(problem_on(PLANE, 60, known=known))
    cold = NevergradSearcher("DE").start(problem_on(PLANE, 60))
    assert np.mean(sequential(searcher, bowl)) > np.mean(sequential(cold, bowl))


@pytest.mark.parametrize("name", ["DE", "TwoPointsDE", "PSO"])
def test_more_prior_observations_of_several_objectives_than_a_population_are_learned(name):
    both = Directions({"x": Direction.MAX, "y": Direction.MIN})
    for seed in range(8):
        rng = random.Random(seed)
        points = [{"x": rng.uniform(-5, 5), "y": rng.uniform(-5, 5)} for _ in range(40)]
        known = [Evaluated(params, None, params) for params in points]
        problem = problem_on(PLANE, 60, seed, direction=both, known=known)
        searcher = NevergradSearcher(name).start(problem)
        outcomes = drive(
            searcher, lambda trial: Outcome(trial.id, "finished", values=dict(trial.params))
        )
        assert len(outcomes) == 60


@pytest.mark.parametrize(
    "optimizer",
    [
        "CMA",
        ng.optimizers.CMA,
        ng.optimizers.ParametrizedCMA(popsize=6),
        ng.optimizers.registry["DE"],
    ],
)
def test_names_classes_and_configured_ones_are_optimizers(optimizer):
    algorithm = NevergradSearcher(optimizer)
    assert len(sequential(algorithm.start(problem_on(PLANE, 5)), bowl)) == 5


def test_the_manifest_distinguishes_optimizers():
    assert NevergradSearcher("CMA").to_json() == {
        "type": "nevergrad",
        "optimizer": "CMA",
        "num_workers": None,
    }
    configured = NevergradSearcher(ng.optimizers.ParametrizedCMA(popsize=6), num_workers=2)
    assert configured.to_json() == {
        "type": "nevergrad",
        "optimizer": "ParametrizedCMA(popsize=6)",
        "num_workers": 2,
    }


@pytest.mark.parametrize("optimizer", ["CMAA", None, 3, print])
def test_invalid_optimizers_are_refused(optimizer):
    with pytest.raises(
        InvalidArgument, match="optimizer: expected one of Nevergrad.*such as 'CMA'"
    ):
        NevergradSearcher(optimizer)


def test_the_default_of_num_workers_is_the_slots():
    out = {}
    for name, given in (("CMA", None), ("CMA", 2), ("NelderMead", None)):
        algorithm = NevergradSearcher(name, num_workers=given)
        searcher = algorithm.start(replace(problem_on(MIXED, 20, 1), slots=lambda: 5))
        out[name, given] = sum(searcher.ask() is not None for _ in range(20))
    assert out == {("CMA", None): 5, ("CMA", 2): 2, ("NelderMead", None): 1}


@pytest.mark.parametrize("num_workers", [0, 1.5, True])
def test_the_number_of_workers_is_checked(num_workers):
    with pytest.raises(InvalidArgument, match="num_workers"):
        NevergradSearcher("CMA", num_workers=num_workers)


def test_a_space_of_constants_is_refused():
    space = Space({"x": Choice([1])})
    with pytest.raises(InvalidArgument, match="space: expected at least one hyperparameter with"):
        NevergradSearcher("CMA").start(problem_on(space, 5))


@pytest.mark.parametrize("value", [1e300, -1e300])
def test_huge_values_are_taken_without_a_warning(value):
    searcher = NevergradSearcher("CMA").start(problem_on(PLANE, 12))
    assert len(drive(searcher, lambda trial: outcome(trial, value))) == 12
