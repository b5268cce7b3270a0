import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.algorithms import Evolution, Grid, Random
from search.direction import Direction
from search.errors import InvalidArgument
from search.evolution.nsga2 import NSGA2
from search.evolution.population_based import PopulationTraining
from search.random_search import RandomSearch
from search.searcher import Problem, drive
from search.space.spaces import Float, Integer, Space
from search.space.tried import NONE_LEFT
from search.trial import Evaluated, Outcome
from tests.properties import examples
from tests.search.fakes import GOAL, hypervolume, plain, several, started

SQUARE = Space.of_bounds({"a": [0.0, 1.0], "b": [0.0, 1.0]})
MIXED = Space.of_bounds(
    {
        "lr": [0.1, 0.0001],
        "units": [4, 40],
        "optimizer": ["adam", "sgd", "lion"],
        "bias": [True, False],
    }
)
TINY = Space.of_bounds({"units": [1, 3], "bias": [True, False]})


def mixed(params):
    optimizer = {"adam": 0.0, "sgd": 0.3, "lion": 0.1}[params["optimizer"]]
    error = (math.log10(params["lr"]) + 2.5) ** 2 + 8 / params["units"] + optimizer
    return {"error": error + params["bias"], "cost": params["units"] / 10 + optimizer}


def zdt1(params):
    """Zitzler, Deb, Thiele: Comparison of multiobjective evolutionary algorithms, 2000."""
    first, *others = params.values()
    g = 1 + 9 * sum(others) / len(others)
    return {"error": first, "cost": g * (1 - math.sqrt(first / g))}


def nsga2(space=SQUARE, seed=0, **arguments):
    return started(NSGA2, space, seed, direction=GOAL, **arguments)


def run_out_of_order(searcher, evaluate, at_once, rng):
    """Keep some trials in flight, and tell the outcome of a random one."""
    out, asked = [], []
    while out or not searcher.finished:
        trial = searcher.ask() if len(out) < at_once else None
        if trial is not None:
            asked.append(trial)
            out.append(trial)
        else:
            searcher.tell(evaluate(out.pop(rng.randrange(len(out)))))
    return asked


# Proposals


@pytest.mark.parametrize("generational", [False, True])
def test_the_first_trials_are_a_latin_hypercube(generational):
    searcher = nsga2(popsize=8, generational=generational)
    trials = [searcher.ask().params for _ in range(8)]
    for name in SQUARE:
        assert sorted(math.floor(8 * params[name]) for params in trials) == list(range(8))


def test_there_is_always_another_trial_without_a_barrier():
    searcher = nsga2(popsize=4, generations=4)
    trials = [searcher.ask() for _ in range(20)]
    assert None not in trials
    assert len({tuple(trial.params.values()) for trial in trials}) == 20
    assert searcher.finished


def test_by_generation_ask_waits_for_the_last_outcome():
    searcher = nsga2(popsize=4, generations=2, generational=True)
    trials = [searcher.ask() for _ in range(4)]
    for trial in trials:
        assert searcher.ask() is None
        searcher.tell(several(plain)(trial))
    assert searcher.ask().generation == 1


@pytest.mark.parametrize("generational", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_no_configuration_is_tried_twice(seed, generational):
    searcher = nsga2(MIXED, seed, popsize=10, generations=20, generational=generational)
    trials = run_out_of_order(searcher, several(mixed), 4, random.Random(seed))
    assert len({repr(trial.params) for trial in trials}) == len(trials) == 210


@pytest.mark.parametrize("generational", [False, True])
def test_a_space_with_fewer_configurations_than_trials_ends_the_search(generational):
    searcher = nsga2(TINY, popsize=4, generations=2, generational=generational)
    evaluate = several(lambda p: {"error": p["units"], "cost": -p["units"]})
    trials = run_out_of_order(searcher, evaluate, 1, random.Random(0))
    assert len({repr(trial.params) for trial in trials}) == len(trials) == 6
    assert [record["evals"] for record in searcher.logbook] == [4, 2]


@pytest.mark.parametrize("generational", [False, True])
def test_a_search_that_finds_its_space_used_up_records_its_last_trials(generational):
    space = Space(
        {"units": Integer(1, 9), "m": Integer(0, 10_000, when={"units": 1})},
        constraint=lambda params: params["units"] in {2, 4, 6},
    )  # too many configurations to count beforehand, of which three are allowed
    searcher = nsga2(space, popsize=4, generational=generational)
    drive(searcher, several(lambda p: {"error": p["units"], "cost": -p["units"]}))
    assert [record["evals"] for record in searcher.logbook] == [3]
    assert len(searcher.hall_of_fame) == len(searcher.population) == 3


def test_a_space_used_up_with_trials_in_flight_is_recorded_with_their_outcomes():
    x = Float(1.0, 1.0 + 2**-52)  # a real number, whose values are not counted, of two values
    searcher = nsga2(Space({"x": x, "units": Integer(1, 5)}), popsize=4)
    evaluate = several(lambda p: {"error": p["units"], "cost": -p["units"]})
    searcher.tell(evaluate(searcher.ask()))
    in_flight = list(iter(searcher.ask, None))
    assert (searcher.total, searcher.exhausted) == (1 + len(in_flight), NONE_LEFT)
    assert list(searcher.logbook) == []
    for trial in in_flight:
        searcher.tell(evaluate(trial))
    assert sum(searcher.logbook.select("evals")) == searcher.total


@pytest.mark.parametrize("generational", [False, True])
def test_every_trial_meets_the_constraint_and_has_active_hyperparameters_only(generational):
    bounds = {
        "optimizer": ["adam", "sgd"],
        "momentum": Float(0.0, 1.0, when={"optimizer": "sgd"}),
        "a": [0.0, 1.0],
    }
    space = Space.of_bounds(bounds, lambda p: p["a"] + p.get("momentum", 0.0) < 0.6)
    searcher = nsga2(space, popsize=6, generations=9, generational=generational)

    def evaluate(trial):
        assert space.allows_params(trial.params)
        assert ("momentum" in trial.params) == (trial.params["optimizer"] == "sgd")
        values = {"error": 1 - trial.params["a"], "cost": trial.params["a"] ** 2}
        return Outcome(trial.id, "finished", values=values)

    assert len(drive(searcher, evaluate)) == 60


@given(seed=st.integers(0, 10**6), at_once=st.integers(1, 12), generational=st.booleans())
@examples(25)
def test_the_best_of_each_objective_stays_in_the_population(seed, at_once, generational):
    searcher = nsga2(MIXED, seed, popsize=5, generations=3, generational=generational)
    outcomes = []

    def evaluate(trial):
        outcomes.append(several(mixed)(trial))
        return outcomes[-1]

    run_out_of_order(searcher, evaluate, at_once, random.Random(seed))
    kept = [mixed(params) for params in searcher.population]
    assert len(kept) == 5
    for name in GOAL.names:
        best = min(outcome.values[name] for outcome in outcomes)
        assert min(values[name] for values in kept) == best


# Outcomes


@pytest.mark.parametrize("generational", [False, True])
def test_trials_that_fail_or_lack_an_objective_do_not_join(generational):
    searcher = nsga2(popsize=5, generations=6, generational=generational)
    lacking = {}

    def evaluate(trial):
        if trial.id % 4 == 0:
            lacking[trial.id] = trial.params
            values = {"error": -9.0} | ({"cost": math.nan} if trial.id % 8 else {})
            return Outcome(trial.id, "finished", values=values)
        if trial.id % 4 == 1:
            lacking[trial.id] = trial.params
            return Outcome.failed(trial.id, "user error", "boom")
        return several(plain)(trial)

    drive(searcher, evaluate)
    assert len(lacking) > 10
    assert len(searcher.population) == 5
    assert not any(params in searcher.population for params in lacking.values())
    assert all(member.fitness.valid for member in searcher.hall_of_fame)


@pytest.mark.parametrize("generational", [False, True])
def test_the_selections_add_up_to_the_population(generational):
    searcher = nsga2(popsize=5, generations=6, generational=generational)
    params, population, decided = {}, [], []
    while trial := searcher.ask():
        params[trial.id] = repr(trial.params)
        failed = Outcome.failed(trial.id, "user error", "boom")
        searcher.tell(failed if trial.id % 4 == 1 else several(plain)(trial))
        for one in searcher.selections:
            decided.append(one.trial)
            if one.holder is not None:
                population.remove(one.holder)
            if one.accepted:
                population.append(one.trial)
    assert decided == list(range(35))
    assert sorted(params[trial] for trial in population) == sorted(map(repr, searcher.population))


@pytest.mark.parametrize("generational", [False, True])
def test_a_search_whose_trials_all_fail_keeps_drawing(generational):
    searcher = nsga2(popsize=5, generations=2, generational=generational)
    outcomes = drive(searcher, lambda trial: Outcome.failed(trial.id, "user error", "boom"))
    assert len(outcomes) == 15
    assert searcher.population == []
    assert searcher.logbook.select("front") == [0, 0, 0]
    assert searcher.logbook.select("diversity") == [None] * 3


def test_the_logbook_has_the_front_of_the_population():
    searcher = nsga2(popsize=5, generations=3)
    outcomes = drive(searcher, several(plain))
    assert searcher.logbook.header == ["gen", "evals", "front", "diversity", "acceptance"]
    assert searcher.logbook.select("gen") == [0, 1, 2, 3]
    assert searcher.logbook.select("acceptance")[0] is None
    assert all(0 <= share <= 1 for share in searcher.logbook.select("acceptance")[1:])
    found = sorted(member.fitness.values for member in searcher.hall_of_fame)
    assert found == sorted(tuple(o.values.values()) for o in GOAL.front(outcomes))
    assert searcher.logbook.select("front")[-1] == min(5, len(found))


# Screening


def children_per_trial(searcher):
    """Run the search, and return how many children were bred for each trial."""
    mutate, made = searcher.toolbox.mutate, []

    def watched(child):
        made.append(searcher._asked)
        return mutate(child)

    searcher.toolbox.register("mutate", watched)
    drive(searcher, several(plain))
    return [made.count(number) for number in range(searcher.total)]


@pytest.mark.parametrize(("chosen", "candidates"), [({}, 20), ({"candidates": 5}, 5)])
def test_a_trial_is_chosen_of_several_children(chosen, candidates):
    searcher = nsga2(popsize=5, generations=9, mutation=1.0, **chosen)
    assert children_per_trial(searcher) == [0] * 5 + [candidates] * 45


@pytest.mark.parametrize("arguments", [{"candidates": 1}, {"generational": True}])
def test_without_screening_a_trial_is_the_first_new_child(arguments):
    searcher = nsga2(popsize=5, generations=3, mutation=1.0, **arguments)
    assert children_per_trial(searcher) == [0] * 5 + [1] * 15


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"candidates": 0}, "an integer"),
        ({"candidates": 5, "generational": True}, "None with generational=True"),
    ],
)
def test_candidates_are_checked(arguments, expected):
    with pytest.raises(InvalidArgument, match=expected) as caught:
        NSGA2(**arguments)
    assert caught.value.name == "candidates"


# Points and prior observations


@pytest.mark.parametrize("generational", [False, True])
def test_points_are_tried_first(generational):
    space = Space.of_bounds({"a": [0.001, 0.9], "b": [0.0, 1.0]})  # on a log scale
    points = [{"a": 0.3, "b": 0.5}, {"a": 0.7, "b": 0.0}]
    searcher = nsga2(space, popsize=4, points=points, generational=generational)
    assert [searcher.ask().params for _ in range(2)] == points  # to the last digit
    assert searcher.ask().params not in points


def test_more_points_than_trials_are_refused_whatever_the_space():
    space = Space({"a": Integer(1, 20)}, constraint=lambda params: params["a"] < 20)
    points = [{"a": number} for number in range(1, 10)]
    with pytest.raises(InvalidArgument, match="at most 8, the number of trials"):
        nsga2(space, popsize=4, generations=1, points=points)


@pytest.mark.parametrize("generational", [False, True])
def test_prior_observations_are_the_first_population(generational):
    params = [{"a": x / 10, "b": 0.0} for x in range(8)]
    known = [Evaluated(p, None, plain(p)) for p in params]
    known += [Evaluated({"a": 0.0, "b": 1.0}, None), Evaluated({"a": 1.0, "b": 1.0}, 5.0)]
    searcher = nsga2(popsize=6, known=known, generational=generational)
    assert searcher.total == 60
    assert len(searcher.population) == 6
    assert all(member in params for member in searcher.population)
    children = [searcher.ask().params for _ in range(6)]
    assert sum(child["b"] < 0.5 for child in children) >= 5  # bred, not drawn
    assert not any(child in params for child in children)


def test_design_points_fill_up_a_small_first_population():
    known = [Evaluated({"a": 0.5, "b": 0.5}, None, {"error": 1.0, "cost": 1.0})]
    searcher = nsga2(popsize=6, known=known)
    drive(searcher, several(plain))
    assert len(searcher.population) == 6


# Quality


@pytest.mark.parametrize("generational", [False, True])
def test_its_front_is_better_than_random_searchs(generational):
    space = Space.of_bounds({f"x{number}": [0.0, 1.0] for number in range(6)})
    for seed in range(5):
        searcher = nsga2(space, seed, generations=19, generational=generational)
        drawn = RandomSearch(Problem(space=space, samples=200, rng=random.Random(seed)))
        ours, theirs = (
            hypervolume(drive(each, several(zdt1)), (1.1, 10.0)) for each in (searcher, drawn)
        )
        best = 11.0 - 1.1 + 2 / 3  # the whole of it: 1.1 * 10 - the integral of 1 - sqrt(x), ...
        assert theirs < ours < 11.0
        assert best - ours < (best - theirs) / 2


def test_without_a_barrier_it_is_no_worse_than_by_generation():
    def mean(generational):
        searchers = (nsga2(MIXED, seed, generational=generational) for seed in range(10))
        return sum(hypervolume(drive(s, several(mixed)), (4.0, 4.0)) for s in searchers) / 10

    assert mean(False) > 0.98 * mean(True)


# Settings


def problem(**changes):
    given = {"space": SQUARE, "rng": random.Random(0), "direction": GOAL}
    return Problem(**given | changes)


def test_the_algorithm_starts_the_search():
    algorithm = NSGA2(popsize=6, generations=2, crossover=0.8, mutation=0.5)
    searcher = algorithm.start(problem(points=[{"a": 0.5, "b": 0.5}]))
    assert searcher.total == 18
    assert searcher.ask().params == {"a": 0.5, "b": 0.5}
    assert algorithm.to_json() == {
        "type": "NSGA-II",
        "popsize": 6,
        "generations": 2,
        "crossover": 0.8,
        "mutation": 0.5,
        "generational": False,
        "candidates": 20,
    }


def test_the_algorithm_needs_several_objectives_and_knows_its_budget():
    with pytest.raises(InvalidArgument, match="direction: expected several objectives, .*'max'"):
        NSGA2().start(problem(direction=Direction.MAX))
    with pytest.raises(InvalidArgument, match="samples: expected None"):
        NSGA2().start(problem(samples=10))


@pytest.mark.parametrize("algorithm", [Evolution(), PopulationTraining()], ids=repr)
def test_algorithms_of_one_objective_refuse_several(algorithm):
    with pytest.raises(InvalidArgument, match="direction: expected 'max' or 'min'.*NSGA2"):
        algorithm.start(problem())


def test_algorithms_that_learn_nothing_take_several():
    assert Random().start(problem(samples=3)).total == 3
    assert Grid().start(problem(space=Space.of_grid({"a": [1, 2]}))).total == 2


@pytest.mark.parametrize(
    ("name", "unusable", "expected"),
    [
        ("popsize", [3, 4.0, True, None], "an integer of at least 4"),
        ("generations", [0, "3"], "an integer of at least 1"),
        ("generational", [1, None], "True or False"),
        ("crossover", [1.1, None], "a number of [0, 1]"),
        ("mutation", [-0.5, "0.5", (0.1, 0.2)], "a number of [0, 1], or None"),
    ],
)
def test_unusable_settings_are_refused(name, unusable, expected):
    for value in unusable:
        for kind in (nsga2, NSGA2):
            with pytest.raises(InvalidArgument) as caught:
                kind(**{name: value})
            assert (caught.value.name, caught.value.expected) == (name, expected)
            assert caught.value.got == repr(value)


def test_operators_can_be_swapped():
    searcher = nsga2(popsize=4)
    for _ in range(4):
        searcher.tell(several(plain)(searcher.ask()))
    searcher.toolbox.register("parent", lambda population: population[0])
    searcher.toolbox.register("mate", lambda one, other: [0.25, 0.75])
    searcher.toolbox.register("mutate", lambda point: [point[1], point[0]])
    assert searcher.ask().params == {"a": 0.75, "b": 0.25}
