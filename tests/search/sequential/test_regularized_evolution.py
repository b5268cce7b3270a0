import math
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.direction import Direction
from search.errors import InvalidArgument
from search.random_search import RandomSearch
from search.searcher import Problem, Selection
from search.sequential.regularized_evolution import (
    STEP,
    RegularizedEvolution,
    mutated,
)
from search.space.spaces import Choice, Float, Integer, Space
from search.trial import Evaluated
from tests.search.fakes import outcome, started
from tests.search.landscapes import ARCHITECTURES, best_found, operations_in_pairs
from tests.search.spaces import conditional_spaces, points_of

TRAINING = Space(
    {
        "momentum": Float(0.0, 0.99, when={"optimizer": "sgd"}),
        "optimizer": Choice(["adam", "sgd"]),
        "units": Integer(4, 64),
        "depth": Choice(["small", "medium", "large", "huge"], ordered=True),
        "seed": Choice([7]),
    }
)


def searched(space=ARCHITECTURES, samples=100, seed=0, **kwargs):
    return started(RegularizedEvolution, space, seed, samples=samples, **kwargs)


def population_of(searcher):
    """Return the hyperparameters of each member of the population, the oldest first."""
    return [searcher._space.decode(member.point) for member in searcher._population]


def differences(one, other):
    return sum(one[name] != other[name] for name in one)


def tell_all(searcher, scores):
    """Ask once per score and tell the outcome; return the trials."""
    trials = []
    for score in scores:
        trials.append(searcher.ask())
        searcher.tell(outcome(trials[-1], score))
    return trials


# Settings


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"popsize": 1}, "popsize: expected an integer of at least 2, got 1"),
        ({"popsize": True}, "popsize: expected an integer of at least 2, got True"),
        ({"tournament": 1}, "tournament: expected an integer of at least 2, got 1"),
        ({"tournament": 21}, "tournament: expected at most popsize, which is 20, got 21"),
    ],
)
@pytest.mark.parametrize("make", [RegularizedEvolution, searched])
def test_numbers_beyond_the_bounds_are_refused(make, arguments, message):
    with pytest.raises(InvalidArgument) as caught:
        make(**arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize("samples", [None, 0, 1.0])
def test_samples_are_required(samples):
    problem = Problem(space=ARCHITECTURES, rng=random.Random(0), samples=samples)
    with pytest.raises(InvalidArgument, match="^samples: expected an integer of at least 1"):
        RegularizedEvolution().start(problem)


def test_settings_have_a_form_in_json():
    assert RegularizedEvolution(popsize=9, tournament=3).to_json() == {
        "type": "regularized evolution",
        "popsize": 9,
        "tournament": 3,
    }


# Algorithm 1


def test_each_trial_after_the_first_ones_differs_from_a_member_in_one_value():
    searcher = searched(popsize=10, tournament=4)
    tell_all(searcher, [float(number % 7) for number in range(10)])
    for number in range(60):
        population = population_of(searcher)
        trial = searcher.ask()
        assert 1 in [differences(trial.params, member) for member in population]
        searcher.tell(outcome(trial, float(number % 5)))


def test_the_oldest_leaves_even_if_it_is_the_best():
    searcher = searched(popsize=3, tournament=2)
    trials = tell_all(searcher, [100.0, 1.0, 2.0])
    assert population_of(searcher) == [trial.params for trial in trials]
    trials += tell_all(searcher, [0.0])
    assert population_of(searcher) == [trial.params for trial in trials[1:]]


@pytest.mark.parametrize("direction", Direction)
def test_the_best_of_a_tournament_with_replacement_is_the_parent(direction):
    parents = dict.fromkeys(range(4), 0)
    for seed in range(20):
        searcher = searched(seed=seed, popsize=4, tournament=4, direction=direction)
        trials = tell_all(searcher, [direction.weight * score for score in (1.0, 3.0, 2.0, 0.0)])
        for _ in range(20):
            child = searcher.ask()
            apart = [differences(child.params, trial.params) for trial in trials]
            parents[apart.index(1)] += 1
    shares = [parents[index] / 400 for index in (1, 2, 0, 3)]  # from the best to the worst
    expected = [((4 - rank) ** 4 - (3 - rank) ** 4) / 4**4 for rank in range(4)]
    assert shares == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize("value", [None, math.nan])
@pytest.mark.parametrize("direction", Direction)
def test_failed_trials_neither_join_nor_replace_a_member(direction, value):
    searcher = searched(popsize=3, tournament=3, direction=direction)
    trials = tell_all(searcher, [1.0, value, -1.0, value, 2.0])
    members = [trials[0].params, trials[2].params, trials[4].params]
    assert population_of(searcher) == members
    tell_all(searcher, [value] * 20)
    assert population_of(searcher) == members


def test_a_selection_names_the_member_that_a_trial_replaces():
    known = [Evaluated(ARCHITECTURES.decode([0.5] * len(ARCHITECTURES)), 1.0)]
    searcher = searched(popsize=2, tournament=2, known=known)
    assert searcher.selections == []
    trials, said = [searcher.ask() for _ in range(6)], []
    for number, value in [(1, 5.0), (0, 2.0), (2, None), (4, math.nan), (3, 0.0), (5, 1.0)]:
        searcher.tell(outcome(trials[number], value))
        said += searcher.selections
    assert said == [
        Selection(1, True, None),
        Selection(0, True, None),  # instead of what was known
        Selection(2, False, None),
        Selection(4, False, None),
        Selection(3, True, 1),  # the oldest member, though it is the best
        Selection(5, True, 0),
    ]


def test_trials_are_random_until_there_is_a_tournament():
    searcher = searched(popsize=4, tournament=3)
    trials = [searcher.ask() for _ in range(30)]
    for trial in trials[:2]:
        searcher.tell(outcome(trial, 1.0))
    trials += [searcher.ask() for _ in range(20)]
    apart = [differences(trials[0].params, trial.params) for trial in trials[1:]]
    assert fmean(apart) == pytest.approx(8 * 4 / 5, abs=0.6)
    searcher.tell(outcome(trials[2], 1.0))
    assert 1 in [differences(searcher.ask().params, member) for member in population_of(searcher)]


def test_failed_prior_observations_do_not_reduce_the_random_trials():
    known = [Evaluated(ARCHITECTURES.decode([i / 9] * len(ARCHITECTURES)), None) for i in range(8)]
    searcher = searched(popsize=8, tournament=2, known=known)
    trials = tell_all(searcher, range(8))
    for number, trial in enumerate(trials):
        assert all(differences(trial.params, other.params) > 1 for other in trials[:number])


def test_prior_observations_are_the_first_population_the_last_the_youngest():
    rng = random.Random(1)
    points = [[rng.random() for _ in ARCHITECTURES] for _ in range(9)]
    values = [0.0, 1.0, None, 3.0, 4.0, math.nan, 6.0, 7.0, 8.0]
    known = [
        Evaluated(ARCHITECTURES.decode(point), value)
        for point, value in zip(points, values, strict=True)
    ]
    searcher = searched(popsize=4, tournament=2, known=known)
    population = [known[index].params for index in (4, 6, 7, 8)]
    assert population_of(searcher) == population
    for _ in range(20):
        child = searcher.ask().params
        assert 1 in [differences(child, member) for member in population]


# Mutations


@given(data=st.data(), space=conditional_spaces(), seed=st.integers(0, 999))
def test_a_mutant_differs_in_one_value_and_those_it_makes_active(data, space, seed):
    point = data.draw(points_of(space))
    parent = space.decode(point)
    child = space.decode(mutated(space, point, random.Random(seed)))
    changed = [name for name in parent.keys() & child.keys() if parent[name] != child[name]]
    variable = [name for name in parent if space[name].size != 1]
    assert len(changed) == bool(variable)
    conditions = [space[name].when for name in parent.keys() ^ child.keys()]
    assert all(conditions)


def test_every_active_hyperparameter_is_mutated_as_often():
    rng = random.Random(2)
    parent = {"optimizer": "sgd", "momentum": 0.5, "units": 9, "depth": "small", "seed": 7}
    counts = dict.fromkeys(TRAINING, 0)
    for _ in range(4000):
        child = TRAINING.decode(mutated(TRAINING, TRAINING.encode(parent), rng))
        if child["optimizer"] == "adam":
            assert "momentum" not in child
            counts["optimizer"] += 1
        else:
            (name,) = [name for name in child if child[name] != pytest.approx(parent[name])]
            counts[name] += 1
    assert counts.pop("seed") == 0
    assert all(count == pytest.approx(1000, abs=120) for count in counts.values())


def test_hyperparameters_that_become_active_get_any_value():
    rng = random.Random(3)
    parent = {"optimizer": "adam", "units": 9, "depth": "small", "seed": 7}
    children = [
        TRAINING.decode(mutated(TRAINING, TRAINING.encode(parent), rng)) for _ in range(4000)
    ]
    momenta = [child["momentum"] for child in children if "momentum" in child]
    assert fmean(momenta) == pytest.approx(0.495, abs=0.05)
    assert min(momenta) < 0.05 < 0.94 < max(momenta)


def test_a_choice_gets_each_other_value_as_often():
    space = Space({"op": Choice(list("abcde"))})
    rng, counts = random.Random(4), dict.fromkeys("abcde", 0)
    for _ in range(4000):
        counts[space.decode(mutated(space, space.encode({"op": "b"}), rng))["op"]] += 1
    assert counts.pop("b") == 0
    assert all(count == pytest.approx(1000, abs=120) for count in counts.values())


def test_ordered_values_move_to_a_neighbour_most_often():
    space = Space({"depth": Choice(list("abcde"), ordered=True), "n": Integer(1, 5)})
    rng, steps = random.Random(5), []
    for _ in range(4000):
        child = space.decode(mutated(space, space.encode({"depth": "c", "n": 3}), rng))
        steps.append(abs(child["n"] - 3) + abs(ord(child["depth"]) - ord("c")))
    assert set(steps) == {1, 2}
    assert fmean(steps) < 1.3


@pytest.mark.parametrize("log", [False, True])
def test_a_real_number_takes_a_normal_step_in_the_unit_cube(log):
    space = Space({"x": Float(0.001, 1.0, log=log)})
    rng = random.Random(6)
    steps = [mutated(space, [0.5], rng)[0] - 0.5 for _ in range(4000)]
    assert fmean(steps) == pytest.approx(0.0, abs=0.01)
    assert fmean(step**2 for step in steps) == pytest.approx(STEP**2, rel=0.1)
    at_the_bound = [mutated(space, [1.0], rng)[0] for _ in range(4000)]
    assert max(at_the_bound) <= 1.0  # and not piled up there
    assert at_the_bound.count(1.0) == 0


@pytest.mark.parametrize(
    "domain", [Float(1.0, 1.0 + 2**-52), Choice([7, 7]), Integer(0, 2**53), Choice(range(10**18))]
)
def test_a_domain_of_next_to_one_or_any_number_of_values_ends(domain):
    space = Space({"x": domain})
    point = mutated(space, [0.5], random.Random(7))
    assert 0 <= point[0] <= 1


@pytest.mark.parametrize("domain", [Choice([7]), Choice([7, 7], ordered=True), Float(7.0, 7.0)])
def test_a_mutant_in_a_space_of_one_configuration_is_that_one(domain):
    space = Space({"x": domain})
    mutant = mutated(space, space.encode({"x": 7}), random.Random(8))
    assert space.decode(mutant) == {"x": 7}


# Quality


@pytest.mark.parametrize("in_flight", [1, 10])
def test_it_is_far_better_than_random_search_on_architectures(in_flight):
    gains = []
    for seed in range(10):
        score = operations_in_pairs(seed)
        ours = best_found(searched(seed=seed), score, in_flight)
        rng = random.Random(seed)
        gains.append(
            ours
            - best_found(RandomSearch(Problem(space=ARCHITECTURES, samples=100, rng=rng)), score)
        )
    assert sum(gain > 0 for gain in gains) >= 9
    assert fmean(gains) > 2
