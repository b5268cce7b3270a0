"""Every algorithm tries only configurations that conditions and a constraint allow."""

import math
import random

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from search.algorithms import Evolution, Random
from search.direction import Direction
from search.errors import InvalidArgument, NothingAllowed
from search.evolution.population_based import PopulationTraining, explore
from search.evolution.screening import Screen
from search.grid import GridSearch
from search.searcher import Problem, drive
from search.sequential.regularized_evolution import RegularizedEvolution
from search.sequential.reinforce import Reinforce
from search.space.spaces import Choice, Float, Integer, Space
from search.space.tried import Tried
from search.trial import Outcome
from tests.properties import examples
from tests.search.fakes import outcome, run_in_any_order
from tests.search.spaces import TRAINING, conditional_spaces, is_active, some_refused

ALGORITHMS = [
    (Random(), 30),
    (Evolution(popsize=5, generations=4, generational=True), None),
    (Evolution(popsize=5, generations=4), None),
    (PopulationTraining(popsize=5, generations=4), None),
    (RegularizedEvolution(popsize=5, tournament=2), 25),
    (Reinforce(), 25),
]
each_algorithm = pytest.mark.parametrize(
    ("algorithm", "samples"), ALGORITHMS, ids=lambda value: str(value)[:40]
)


def started(algorithm, samples, space, seed=0):
    return algorithm.start(Problem(space=space, rng=random.Random(seed), samples=samples))


def sometimes_failed(trial):
    return outcome(trial, (None, math.nan, float(len(trial.params)), trial.id)[trial.id % 4])


def check(trial, space):
    assert space.allows_params(trial.params)
    assert list(trial.params) == [name for name in space if is_active(space, name, trial.params)]
    assert all(value in space[name] for name, value in trial.params.items())


@each_algorithm
@given(space=conditional_spaces(constraint=some_refused), seed=st.integers(0, 99))
@examples(25, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_every_trial_is_allowed_and_has_active_hyperparameters_only(
    algorithm, samples, space, seed
):
    try:
        searcher = started(algorithm, samples, space, seed)
        trials = run_in_any_order(searcher, sometimes_failed, random.Random(seed))
    except NothingAllowed:
        assume(False)
    assert len(trials) == searcher.total
    for trial in trials:
        check(trial, space)


@each_algorithm
@pytest.mark.parametrize("seed", range(5))
def test_a_space_for_training_is_searched(algorithm, samples, seed):
    searcher = started(algorithm, samples, TRAINING, seed)
    trials = run_in_any_order(searcher, sometimes_failed, random.Random(seed))
    for trial in trials:
        check(trial, TRAINING)
    assert {"momentum" in trial.params for trial in trials} == {True, False}


@each_algorithm
def test_a_narrow_constraint_is_met(algorithm, samples):
    space = Space.of_bounds(
        {name: [0.0, 1.0] for name in "ab"}, lambda p: abs(p["a"] - p["b"]) < 0.02
    )
    searcher = started(algorithm, samples, space)
    for result in drive(searcher, lambda trial: check(trial, space) or outcome(trial, 1.0)):
        assert result.value == 1.0


@each_algorithm
def test_a_constraint_that_allows_nothing_ends_the_search(algorithm, samples):
    searcher = started(algorithm, samples, Space.of_bounds({"a": [1, 9]}, lambda p: False))
    with pytest.raises(NothingAllowed):
        searcher.ask()


@each_algorithm
def test_a_constraint_that_allows_everything_changes_nothing(algorithm, samples):
    bounds = {"a": [0.0, 1.0], "b": ["x", "y", "z"], "c": [1, 9]}
    plain, constrained = (
        run_in_any_order(
            started(algorithm, samples, Space.of_bounds(bounds, constraint)),
            sometimes_failed,
            random.Random(1),
        )
        for constraint in (None, lambda p: True)
    )
    assert plain == constrained


def test_evolution_without_a_barrier_repeats_none_before_all_allowed_were_tried():
    space = Space.of_bounds({"a": [0, 9], "b": [0, 9]}, lambda p: p["a"] < p["b"])
    searcher = started(Evolution(popsize=5, generations=8), None, space)
    trials = run_in_any_order(searcher, sometimes_failed, random.Random(0))
    assert len({(trial.params["a"], trial.params["b"]) for trial in trials}) == 45


def test_evolution_without_a_barrier_distinguishes_configurations_by_active_values():
    space = Space(
        {
            "opt": Choice(["adam", "sgd"]),
            "momentum": Integer(0, 6, when={"opt": "sgd"}),
            "beta": Float(0.5, 0.7, step=0.1, when={"opt": "adam"}),
            "amsgrad": Choice([True, False], when={"opt": "adam", "beta": [0.6, 0.7]}),
        }
    )
    searcher = started(Evolution(popsize=4, generations=2), None, space)
    trials = run_in_any_order(searcher, sometimes_failed, random.Random(0))
    assert len({tuple(trial.params.items()) for trial in trials}) == 12 == len(trials)


@pytest.mark.parametrize("seed", range(5))
def test_another_is_found_down_to_the_last_allowed_one(seed):
    space = Space.of_bounds({"n": [1, 300], "flag": [True, False]}, lambda p: p["n"] % 2 == 0)
    known = Tried(space, random.Random(seed))
    everything = {(n, flag) for n in range(2, 301, 2) for flag in (True, False)}
    missing = everything.pop()
    for n, flag in everything:
        known.add(space.encode({"n": n, "flag": flag}))
    assert tuple(space.decode(known.another()).values()) == missing


def test_floats_with_steps_are_tried_once_each():
    space = Space({"x": Float(0, 1, step=0.05)})
    known = Tried(space, random.Random(0))
    found = set()
    for _ in range(21):
        point = known.another()
        known.add(point)
        found.add(space.decode(point)["x"])
    assert len(found) == 21
    Tried(Space({"x": Float(0, 1, step=1e-12)}), random.Random(0)).another()


def test_explored_hyperparameters_that_become_active_are_drawn():
    space = Space({"a": Choice([1, 2]), "b": Integer(5, 9, when={"a": 2})})
    rng = random.Random(0)
    explored = [explore(space, {"a": 1}, 0.25, rng) for _ in range(100)]
    assert {params.get("b") for params in explored} == {None, 5, 6, 7, 8, 9}
    explored = [explore(space, {"a": 2, "b": 7}, 0.0, rng) for _ in range(100)]
    assert {params.get("b") for params in explored} == {None, 6, 8}


def test_hyperparameters_that_cannot_be_explored_stay():
    space = Space.of_bounds({"a": [1, 10**6], "b": [1, 10**6]}, lambda p: p["a"] + p["b"] == 700)
    params = {"a": 300, "b": 400}
    assert explore(space, params, 0.25, random.Random(0)) == params


def test_the_values_of_an_ordered_choice_are_near_or_far():
    acts = list("abcdefgh")
    near = {}
    for ordered in (True, False):
        space = Space({"x": Float(0.0, 1.0), "act": Choice(acts, ordered=ordered)})
        screen = Screen(space, Direction.MAX)
        for act, score in (("a", 2.0), ("h", 1.0)):
            for _ in range(5):
                screen.add(space.encode({"x": 0.5, "act": act}), score)
        points = [space.encode({"x": 0.5, "act": act}) for act in "gb"]
        near[ordered] = screen.most_promising(points) == points[1]
    assert near == {True: True, False: False}


def test_a_grid_has_no_conditions():
    space = Space.of_grid({"a": [1, 2], "b": Choice([1], when={"a": 1})})
    with pytest.raises(InvalidArgument) as caught:
        GridSearch(space)
    assert caught.value.name == "args_dict['b']"
    assert caught.value.hint == "launch a list of dicts, one per trial"


def test_a_constraint_that_changes_its_argument_changes_no_configuration():
    def allows(params):
        params["layers"].append(999)
        return params["more"].pop("units") < 100

    layers, more = Choice([[3, 1], [2]]), Choice([{"units": 3}, {"units": 5}])
    space = Space({"layers": layers, "more": more, "y": Float(0.0, 1.0)}, constraint=allows)
    searcher = started(Random(), 8, space)
    tried = [searcher.ask().params for _ in range(8)]
    assert all(params["layers"] in ([3, 1], [2]) for params in tried)
    assert all(params["more"] in ({"units": 3}, {"units": 5}) for params in tried)


def test_members_stay_within_the_constraint():
    """Explored copies meet the constraint and have active hyperparameters only."""
    searcher = started(PopulationTraining(popsize=6, generations=6), None, TRAINING, 3)
    for _ in range(searcher.total):
        trial = searcher.ask()
        check(trial, TRAINING)
        searcher.tell(Outcome(trial.id, "finished", float(trial.params["units"])))
    for params in searcher.population:
        assert TRAINING.allows_params(params)
