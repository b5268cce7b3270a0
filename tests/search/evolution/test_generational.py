import collections
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.algorithms import Evolution
from search.direction import Direction
from search.errors import InvalidArgument
from search.searcher import drive
from search.space.spaces import Space
from search.trial import Evaluated
from tests.properties import examples
from tests.search.fakes import all_fail, evaluated_by, outcome, recorded, run_in_any_order, started

PLANE = Space.of_bounds({"x": [-5.0, 5.0], "y": [-5.0, 5.0]})
MIXED = Space.of_bounds({"lr": [0.1, 1e-5], "units": [1, 64], "act": ["relu", "tanh", "elu"]})
CUBE = Space.of_bounds({"a": [0.0, 1.0], "b": [0.0, 1.0]})
CORNERS = [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]

seeds = st.integers(0, 10**6)

COLUMNS = ["gen", "evals", "best", "mean", "std", "diversity", "acceptance"]


def sphere(params):
    return params["x"] ** 2 + params["y"] ** 2


def minus_sphere(params):
    return -sphere(params)


def mixed(params):
    distance = abs(math.log10(params["lr"]) + 3) + abs(params["units"] - 40) / 64
    return distance + (params["act"] != "tanh")


def evolution(space=PLANE, seed=0, **kwargs):
    return started(Evolution, space, seed, generational=True, **kwargs)


def traced(searcher, evaluate):
    """Run a search; return its trials, and the populations that generations were bred from."""
    trials, parents = [], {}
    select = searcher.toolbox.select

    def watched_select(population, index):
        if index == 0:  # again if the first trial vector was tried before
            parents[len(trials)] = [(list(member), member.score) for member in population]
        return select(population, index)

    searcher.toolbox.register("select", watched_select)
    drive(searcher, recorded(evaluate, trials))
    return trials, list(parents.values())


def fails_in(*generations, value=minus_sphere):
    return lambda trial: outcome(
        trial, None if trial.generation in generations else value(trial.params)
    )


@pytest.mark.parametrize(("popsize", "generations"), [(4, 1), (5, 3), (10, 2)])
def test_there_are_popsize_trials_per_generation(popsize, generations):
    searcher = evolution(popsize=popsize, generations=generations)
    assert searcher.total == popsize * (generations + 1)
    trials, _ = traced(searcher, evaluated_by(sphere))
    assert [trial.generation for trial in trials] == [
        number for number in range(generations + 1) for _ in range(popsize)
    ]


def test_defaults_make_40_trials():
    assert evolution().total == 40


def test_ask_waits_for_the_last_outcome_of_the_generation():
    searcher = evolution(popsize=4, generations=2)
    for generation in range(3):
        trials = [searcher.ask() for _ in range(4)]
        assert [trial.generation for trial in trials] == [generation] * 4
        for trial in reversed(trials):
            assert searcher.ask() is None
            assert searcher.finished == (generation == 2)
            assert len(searcher.logbook) == generation
            searcher.tell(outcome(trial, trial.id * 1.0))
        assert len(searcher.logbook) == generation + 1
    assert searcher.ask() is None


def test_outcomes_may_come_before_the_whole_generation_was_proposed():
    searcher = evolution(popsize=4, generations=1)
    first = searcher.ask()
    searcher.tell(outcome(first, 1.0))
    others = [searcher.ask() for _ in range(3)]
    assert [trial.generation for trial in others] == [0, 0, 0]
    assert len(searcher.logbook) == 0
    assert searcher.ask() is None


@given(orders=st.lists(st.permutations(range(6)), min_size=4, max_size=4), seed=seeds)
@examples(30)
def test_trials_do_not_depend_on_the_order_of_outcomes(orders, seed):
    evaluate = evaluated_by(lambda params: None if params["units"] % 5 == 0 else mixed(params))
    reference = evolution(MIXED, seed, popsize=6, direction=Direction.MIN)
    expected, _ = traced(reference, evaluate)
    searcher = evolution(MIXED, seed, popsize=6, direction=Direction.MIN)
    trials = []
    for order in orders:
        generation = [searcher.ask() for _ in range(6)]
        assert searcher.ask() is None
        trials += generation
        for index in order:
            searcher.tell(evaluate(generation[index]))
    assert trials == expected
    assert searcher.logbook == reference.logbook


@given(rng=st.randoms(use_true_random=False), seed=seeds)
@examples(20)
def test_trials_do_not_depend_on_how_ask_and_tell_interleave(rng, seed):
    expected, _ = traced(evolution(seed=seed, popsize=5), evaluated_by(sphere))
    assert run_in_any_order(evolution(seed=seed, popsize=5), evaluated_by(sphere), rng) == expected


def test_outcomes_of_unknown_trials_and_second_outcomes_are_errors():
    searcher = evolution()
    trial = searcher.ask()
    searcher.tell(outcome(trial, 1.0))
    with pytest.raises(KeyError):
        searcher.tell(outcome(trial, 2.0))


@given(seed=seeds)
@examples(20)
def test_maximizing_is_minimizing_the_negative(seed):
    up = evolution(seed=seed, direction=Direction.MAX)
    down = evolution(seed=seed, direction=Direction.MIN)
    upward, _ = traced(up, evaluated_by(minus_sphere))
    downward, _ = traced(down, evaluated_by(sphere))
    assert upward == downward
    assert up.logbook.select("best") == [-best for best in down.logbook.select("best")]
    assert list(up.hall_of_fame[0]) == list(down.hall_of_fame[0])


def test_direction_matters():
    up, _ = traced(evolution(direction=Direction.MAX), evaluated_by(sphere))
    down, _ = traced(evolution(direction=Direction.MIN), evaluated_by(sphere))
    assert up[:10] == down[:10]
    assert up != down


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("seed", range(3))
def test_population_holds_the_best_that_each_individual_ever_had(direction, seed):
    extreme = max if direction is Direction.MAX else min
    searcher = evolution(seed=seed, popsize=6, generations=5, direction=direction)
    trials, parents = traced(searcher, evaluated_by(sphere))
    scores = [sphere(trial.params) for trial in trials]
    for generation in range(6):
        history = [scores[index : (generation + 1) * 6 : 6] for index in range(6)]
        expected = [extreme(scores_so_far) for scores_so_far in history]
        record = searcher.logbook[generation]
        assert record["best"] == extreme(expected)
        assert record["mean"] == pytest.approx(np.mean(expected))
        assert record["std"] == pytest.approx(np.std(expected))
        if generation < 5:
            assert [score for _, score in parents[generation]] == expected


def test_failed_children_never_replace_parents():
    trials, parents = traced(evolution(popsize=5, generations=3), fails_in(1, 2))
    first = [minus_sphere(trial.params) for trial in trials[:5]]
    assert parents[0] == parents[1] == parents[2]
    assert [score for _, score in parents[2]] == first


def test_nan_children_never_replace_parents_in_either_direction():
    for direction in Direction:
        searcher = evolution(popsize=5, generations=3, direction=direction)
        _, parents = traced(
            searcher, lambda trial: outcome(trial, 1.0 if trial.generation == 0 else math.nan)
        )
        assert parents[0] == parents[2]
        assert searcher.logbook[3]["best"] == searcher.logbook[3]["mean"] == 1.0


def test_failed_parents_are_replaced_by_children_with_a_value():
    trials, parents = traced(evolution(popsize=5, generations=2), fails_in(0))
    assert [score for _, score in parents[0]] == [None] * 5
    assert [score for _, score in parents[1]] == [
        minus_sphere(trial.params) for trial in trials[5:10]
    ]


def test_children_as_good_as_their_parents_replace_them():
    trials, parents = traced(
        evolution(CUBE, popsize=5, generations=2), evaluated_by(lambda params: 1.0)
    )
    assert [point for point, _ in parents[0]] == [list(t.params.values()) for t in trials[:5]]
    assert [point for point, _ in parents[1]] == [list(t.params.values()) for t in trials[5:10]]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("space", "function"), [(PLANE, sphere), (MIXED, mixed)])
def test_search_improves_on_its_initial_population(space, function, seed):
    searcher = evolution(space, seed, popsize=10, generations=15, direction=Direction.MIN)
    drive(searcher, evaluated_by(function))
    best = searcher.logbook.select("best")
    mean = searcher.logbook.select("mean")
    assert best == sorted(best, reverse=True)
    assert mean == sorted(mean, reverse=True)
    assert best[-1] < best[0] / 2
    assert mean[-1] < mean[0] / 2


def test_search_finds_the_minimum_of_a_sphere():
    searcher = evolution(popsize=10, generations=40, direction=Direction.MIN)
    drive(searcher, evaluated_by(sphere))
    assert searcher.hall_of_fame[0].score < 1e-4
    assert searcher.logbook[-1]["diversity"] < searcher.logbook[0]["diversity"] / 10


def test_logbook_has_one_record_per_generation():
    searcher = evolution(popsize=5, generations=3)
    trials, _ = traced(searcher, evaluated_by(sphere))
    assert searcher.logbook.select("gen") == [0, 1, 2, 3]
    assert searcher.logbook.select("evals") == [5] * 4
    for record in searcher.logbook:
        assert set(record) == {*COLUMNS}
        assert all(type(record[key]) is float for key in ("best", "mean", "std", "diversity"))
    assert searcher.logbook[0]["best"] == max(sphere(trial.params) for trial in trials[:5])


def test_logbook_prints_its_columns():
    searcher = evolution(popsize=4, generations=1)
    drive(searcher, evaluated_by(sphere))
    header, *rows = str(searcher.logbook).splitlines()
    assert header.split() == COLUMNS
    assert len(rows) == 2


def test_generation_0_replaces_no_individual():
    searcher = evolution(popsize=4, generations=1)
    drive(searcher, evaluated_by(sphere))
    assert searcher.logbook[0]["acceptance"] is None
    assert type(searcher.logbook[1]["acceptance"]) is float


@given(seed=seeds, direction=st.sampled_from(Direction), failing=st.booleans())
@examples(20)
def test_acceptance_is_the_share_of_individuals_that_were_replaced(seed, direction, failing):
    def evaluate(params):
        return None if failing and params["x"] > 1 else sphere(params)

    searcher = evolution(seed=seed, popsize=5, generations=4, direction=direction)
    trials, parents = traced(searcher, evaluated_by(evaluate))
    shares = []
    for generation, members in enumerate(parents, start=1):
        children = [evaluate(trial.params) for trial in trials[5 * generation :][:5]]
        pairs = zip(members, children, strict=True)
        kept = sum(direction.better(score, child) for (_, score), child in pairs)
        shares.append((5 - kept) / 5)
    assert searcher.logbook.select("acceptance") == [None, *shares]


def test_a_failed_generation_is_not_accepted():
    searcher = evolution(popsize=4, generations=2)
    drive(searcher, fails_in(1))
    assert searcher.logbook[1]["acceptance"] == 0.0


def test_a_generation_as_good_as_its_parents_is_accepted():
    searcher = evolution(popsize=4, generations=2)
    drive(searcher, evaluated_by(lambda params: 1.0))
    assert searcher.logbook.select("acceptance") == [None, 1.0, 1.0]


def test_failed_individuals_are_replaced_by_failed_trials_too():
    searcher = evolution(popsize=4, generations=2)
    drive(searcher, all_fail)
    assert searcher.logbook.select("acceptance") == [None, 1.0, 1.0]


def test_there_is_no_population_before_generation_0_has_ended():
    searcher = evolution(popsize=4, generations=1)
    assert searcher.population == []
    trials = [searcher.ask() for _ in range(4)]
    for trial in trials[:3]:
        searcher.tell(outcome(trial, 1.0))
        assert searcher.population == []
    searcher.tell(outcome(trials[3], 1.0))
    assert searcher.population == [trial.params for trial in trials]


@given(seed=seeds, direction=st.sampled_from(Direction))
@examples(20)
def test_the_population_has_each_individuals_best_hyperparameters(seed, direction):
    searcher = evolution(MIXED, seed, popsize=5, generations=3, direction=direction)
    trials, before = [], []
    for _ in range(4):
        for _ in range(5):
            trials.append(searcher.ask())
            assert searcher.population == before
        for trial in trials[-5:]:
            searcher.tell(outcome(trial, mixed(trial.params)))
        # the last of equals: a trial vector that is as good takes its individual's place
        expected = [
            direction.best(reversed(trials[index::5]), lambda trial: mixed(trial.params)).params
            for index in range(5)
        ]
        before = searcher.population
        assert before == expected
    assert searcher.finished


def test_changing_the_returned_population_changes_nothing():
    searcher = evolution(popsize=4, generations=1)
    for trial in [searcher.ask() for _ in range(4)]:
        searcher.tell(outcome(trial, 1.0))
    before = searcher.population
    searcher.population.clear()
    searcher.population[0]["x"] = None
    assert searcher.population == before


def test_diversity_is_the_mean_deviation_over_the_axes_of_the_cube():
    searcher = evolution(PLANE, popsize=4, generations=1)
    searcher.toolbox.register(
        "population", lambda: [[0.0, 0.2], [1.0, 0.2], [0.0, 0.2 + 1e-9], [1.0, 0.2 + 1e-9]]
    )
    drive(searcher, evaluated_by(sphere))
    assert searcher.logbook[0]["diversity"] == pytest.approx(0.25)


def test_statistics_leave_failed_trials_out():
    searcher = evolution(popsize=4, generations=1)
    values = iter([None, 2.0, math.nan, 4.0])
    drive(searcher, lambda trial: outcome(trial, next(values, None)))
    for record in searcher.logbook:
        assert (record["best"], record["mean"], record["std"]) == (4.0, 3.0, 1.0)


def test_logbook_works_when_a_whole_generation_failed():
    searcher = evolution(popsize=4, generations=2)
    trials, _ = traced(searcher, fails_in(0, 1))
    assert searcher.logbook.select("best")[:2] == [None, None]
    assert searcher.logbook.select("mean")[:2] == [None, None]
    assert searcher.logbook.select("std")[:2] == [None, None]
    assert searcher.logbook[2]["best"] == max(minus_sphere(trial.params) for trial in trials[8:])
    assert all(record["diversity"] > 0 for record in searcher.logbook)
    assert len(str(searcher.logbook).splitlines()) == 4


def test_logbook_and_hall_of_fame_work_when_every_trial_failed():
    searcher = evolution(popsize=4, generations=2)
    drive(searcher, all_fail)
    assert searcher.logbook.select("best") == [None] * 3
    assert searcher.logbook.select("evals") == [4] * 3
    assert len(searcher.hall_of_fame) == 0


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("seed", range(5))
def test_hall_of_fame_holds_the_best(direction, seed):
    searcher = evolution(seed=seed, popsize=5, direction=direction)
    evaluate = evaluated_by(
        lambda params: None if params["x"] > 3 else math.nan if params["y"] > 3 else sphere(params)
    )
    trials, outcomes = [], []
    drive(searcher, recorded(evaluate, trials, outcomes))
    best = direction.best(outcomes, lambda item: item.value)
    (champion,) = searcher.hall_of_fame
    assert champion.score == best.value
    assert PLANE.decode(champion) == trials[best.trial].params


def test_hall_of_fame_keeps_the_first_of_equals():
    searcher = evolution(popsize=4, generations=2)
    trials, _ = traced(searcher, lambda trial: outcome(trial, 0.0 if trial.id == 0 else 1.0))
    assert PLANE.decode(searcher.hall_of_fame[0]) == trials[1].params


def test_initial_population_can_be_swapped():
    searcher = evolution(CUBE, popsize=4)
    corners = [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
    searcher.toolbox.register("population", lambda: corners)
    asked = [searcher.ask().params for _ in range(4)]
    assert asked == [{"a": a, "b": b} for a, b in corners]


def test_mutation_and_crossover_can_be_swapped():
    searcher = evolution(CUBE, popsize=4, generations=1)
    searcher.toolbox.register("mutate", lambda base, plus, minus: [7.0, -7.0])
    searcher.toolbox.register("mate", lambda target, mutant: [*mutant[:1], target[1]])
    searcher.toolbox.register("repair", lambda vector, target: [vector[0] / 10, vector[1]])
    trials, _ = traced(searcher, evaluated_by(lambda params: 1.0))
    assert [trial.params["a"] for trial in trials[4:]] == [0.7] * 4
    assert [trial.params["b"] for trial in trials[4:]] == [t.params["b"] for t in trials[:4]]


def test_selection_can_be_swapped():
    searcher = evolution(CUBE, popsize=4, generations=1, crossover=1.0, mutation=0.5)
    points = [[0.5, 0.5], [0.6, 0.8], [0.4, 0.4], [0.1, 0.1]]
    searcher.toolbox.register("population", lambda: points)
    searcher.toolbox.register("select", lambda population, index: population[:3])
    trials, _ = traced(searcher, evaluated_by(lambda params: 1.0))
    # The others would repeat it.
    assert trials[4].params == pytest.approx({"a": 0.6, "b": 0.7})


def test_crossover_and_mutation_rates_reach_the_operators():
    points = [[0.1, 0.1], [0.2, 0.2], [0.3, 0.3], [0.4, 0.4]]
    for weight in (0.25, 0.5):
        searcher = evolution(CUBE, popsize=4, generations=1, crossover=1.0, mutation=weight)
        searcher.toolbox.register("population", lambda: points)
        searcher.toolbox.register(
            "select", lambda population, index: [points[i] for i in (1, 3, 0)]
        )
        trials, _ = traced(searcher, evaluated_by(lambda params: 1.0))
        expected = 0.2 + weight * 0.3
        assert trials[4].params == pytest.approx({"a": expected, "b": expected})


def test_crossover_at_rate_zero_changes_one_coordinate_of_each_parent():
    trials, _ = traced(
        evolution(PLANE, popsize=8, generations=1, crossover=0.0), evaluated_by(sphere)
    )
    for parent, child in zip(trials[:8], trials[8:], strict=True):
        changed = [name for name in PLANE if parent.params[name] != child.params[name]]
        assert len(changed) == 1


@pytest.mark.parametrize("mutation", [0.5, 2.0])
def test_trials_stay_in_the_space_even_with_large_steps(mutation):
    trials, _ = traced(
        evolution(popsize=6, generations=10, mutation=mutation, crossover=1.0),
        evaluated_by(sphere),
    )
    for trial in trials:
        assert all(-5 <= value <= 5 for value in trial.params.values())


NO_INTEGERS = [True, False, 8.0, math.nan, math.inf, "8", None, [8]]
VARIANTS = "'rand1bin' or 'current-to-pbest1bin'"
NO_NUMBERS = [math.nan, math.inf, -math.inf, True, False, "0.5", None, [0.5], 1j]


@pytest.mark.fault(44)
@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("popsize", [3, 0, -4, *NO_INTEGERS], "an integer of at least 4"),
        ("generations", [0, -1, *NO_INTEGERS], "an integer of at least 1"),
        ("crossover", [-0.1, 1.1, 2, -1, *NO_NUMBERS], "a number of [0, 1]"),
        ("variant", ["best1bin", "", 1, ["rand1bin"]], VARIANTS),
        (
            "mutation",
            [0, 0.0, -0.5, 2.1, 3, *(odd for odd in NO_NUMBERS if odd is not None)],
            "a number of (0, 2], or two of them",
        ),
    ],
)
def test_unusable_settings_are_refused(name, values, expected):
    for value in values:
        with pytest.raises(InvalidArgument) as caught:
            evolution(**{name: value})
        assert (caught.value.name, caught.value.expected) == (name, expected)
        assert caught.value.got == repr(value)


@pytest.mark.parametrize(
    "settings_at_the_edge",
    [
        {"popsize": 4},
        {"generations": 1},
        {"crossover": 0},
        {"crossover": 1},
        {"crossover": 0.0},
        {"crossover": 1.0},
        {"mutation": 2},
        {"mutation": 2.0},
        {"mutation": 1e-9},
        {"mutation": (0.5, 1.0)},
        {"mutation": [2, 1e-9]},
        {"variant": "current-to-pbest1bin"},
    ],
    ids=str,
)
def test_settings_at_the_edge_are_accepted(settings_at_the_edge):
    searcher = evolution(**settings_at_the_edge)
    assert len(drive(searcher, evaluated_by(sphere))) == searcher.total


def test_the_invalid_one_of_two_weights_is_named():
    for pair in [(0.5, 3.0), [3.0, 0.5]]:
        with pytest.raises(InvalidArgument, match="mutation: .* got 3.0"):
            evolution(mutation=pair)


def test_a_weight_between_two_is_drawn_for_each_trial():
    points = [[0.1, 0.1], [0.2, 0.2], [0.3, 0.3], [0.4, 0.4]]
    searcher = evolution(CUBE, popsize=4, generations=9, crossover=1.0, mutation=(0.25, 0.5))
    searcher.toolbox.register("population", lambda: points)
    searcher.toolbox.register("select", lambda population, index: [points[i] for i in (1, 3, 0)])
    trials, _ = traced(searcher, evaluated_by(lambda params: 1.0))
    weights = [(trial.params["a"] - 0.2) / 0.3 for trial in trials[4:]]
    assert len(set(weights)) == 36
    assert 0.25 <= min(weights) < 0.3
    assert 0.45 < max(weights) <= 0.5


def test_the_variant_is_the_operator():
    seen = set()
    searcher = evolution(popsize=4, generations=1, variant="current-to-pbest1bin")
    mutate = searcher.toolbox.mutate

    def watched(*vectors):
        seen.add(len(vectors))
        return mutate(*vectors)

    searcher.toolbox.register("mutate", watched)
    drive(searcher, evaluated_by(sphere))
    assert seen == {4}


def test_global_random_states_stay_untouched():
    before, numpy_before = random.getstate(), np.random.get_state()[1].tolist()
    drive(evolution(MIXED), evaluated_by(mixed))
    assert random.getstate() == before
    assert np.random.get_state()[1].tolist() == numpy_before


@pytest.mark.parametrize("seed", range(5))
def test_every_value_of_a_small_integer_range_is_tried_as_often_in_generation_0(seed):
    space = Space.of_bounds({"n": [1, 5], "x": [0.0, 1.0], "c": ["a", "b"]})
    searcher = evolution(space, seed, popsize=50)
    params = [searcher.ask().params for _ in range(50)]
    assert collections.Counter(point["n"] for point in params) == dict.fromkeys(range(1, 6), 10)
    assert collections.Counter(point["c"] for point in params) == {"a": 25, "b": 25}


def test_constants_and_single_hyperparameters_can_be_searched():
    space = Space.of_bounds({"n": [3, 3]})
    trials, _ = traced(evolution(space), evaluated_by(lambda params: float(params["n"])))
    assert [trial.params for trial in trials] == [{"n": 3}]


# Points and prior observations


def known_of(scores):
    return [Evaluated({"a": number / 64, "b": 0.5}, score) for number, score in enumerate(scores)]


def test_the_best_prior_observations_are_the_parents_of_generation_0():
    known = known_of([1.0, 5.0, None, 3.0, 4.0, math.nan, 2.0])
    searcher = evolution(CUBE, popsize=4, known=known)
    assert searcher.population == [known[index].params for index in (1, 4, 3, 6)]
    searcher.toolbox.register("population", lambda: pytest.fail("drawn"))
    trials = [searcher.ask() for _ in range(4)]
    for trial, score in zip(trials, [5.0, 3.9, None, 9.0], strict=True):
        searcher.tell(outcome(trial, score))
    assert searcher.population == [
        trials[0].params,
        known[4].params,
        known[3].params,
        trials[3].params,
    ]
    assert searcher.logbook[0]["acceptance"] == 0.5


def test_the_best_of_repeated_prior_observations_counts():
    known = known_of([1.0, 2.0, 3.0, 4.0])
    twice = [*known, Evaluated(known[0].params, 9.0), Evaluated(known[0].params, 0.0)]
    searcher = evolution(CUBE, popsize=4, known=twice)
    assert searcher.population == [known[index].params for index in (0, 3, 2, 1)]


def test_few_prior_observations_compete_with_generation_0():
    known = known_of([3.0, None, 1.0])
    searcher = evolution(CUBE, popsize=4, known=known)
    trials = [searcher.ask() for _ in range(4)]
    for trial, score in zip(trials, [2.0, None, 4.0, 0.0], strict=True):
        searcher.tell(outcome(trial, score))
    assert searcher.population == [
        known[0].params,
        known[2].params,
        trials[0].params,
        trials[2].params,
    ]


def test_points_are_the_first_of_generation_0_and_the_others_stay():
    points = [{"a": 0.25, "b": 0.5}, {"a": 0.1, "b": 1.0}]
    plain, pointed = evolution(CUBE, popsize=5), evolution(CUBE, popsize=5, points=points)
    before, trials = ([searcher.ask().params for _ in range(5)] for searcher in (plain, pointed))
    assert trials == [*points, *before[2:]]
    with pytest.raises(InvalidArgument, match="at most 5, the number of individuals"):
        evolution(CUBE, popsize=5, points=points * 3)
