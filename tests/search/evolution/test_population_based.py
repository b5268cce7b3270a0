import collections
import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.direction import Direction
from search.errors import InvalidArgument
from search.evolution.population_based import (
    PopulationTraining,
    explore,
    perturb,
)
from search.searcher import Selection, drive
from search.space.spaces import Choice, Float, Integer, Space
from search.trial import Outcome
from tests.properties import examples
from tests.search.fakes import all_fail, evaluated_by, outcome, recorded, started

MIXED = Space.of_bounds(
    {
        "lr": [0.1, 1e-5],
        "momentum": [-0.5, 0.9],
        "units": [1, 64],
        "optimizer": ["sgd", "adam", "rmsprop"],
        "rank": Choice(range(10**12)),
    }
)
PLANE = Space.of_bounds({"h0": [0.0, 1.0], "h1": [0.0, 1.0]})
COLUMNS = ["gen", "evals", "best", "mean", "std", "diversity", "copied"]

directions = st.sampled_from(Direction)
seeds = st.integers(0, 10**6)
few = examples(30)


def training(space=PLANE, seed=0, **kwargs):
    return started(PopulationTraining, space, seed, **{"generations": 3} | kwargs)


def by_units(params):
    return float(params["units"])


def generations_of(searcher, evaluate):
    """Run a search; return the trials and outcomes of each generation."""
    trials, outcomes = [], []
    drive(searcher, recorded(evaluate, trials, outcomes))
    size = searcher.popsize
    return [
        (trials[start : start + size], outcomes[start : start + size])
        for start in range(0, searcher.total, size)
    ]


def steps(searcher, evaluate):
    """Yield each generation's trials with those of the generation before and their outcomes."""
    all_of_them = generations_of(searcher, evaluate)
    for (before, outcomes), (trials, _) in itertools.pairwise(all_of_them):
        yield before, outcomes, trials


def some_fail(share, seed):
    """Fail, stop, or give NaN to some trials, by their id alone."""

    def evaluate(trial):
        rng = random.Random(f"{seed} {trial.id}")
        if rng.random() < share:
            kind = rng.choice(["failed", "stopped", "nan"])
            if kind == "stopped":
                return Outcome(trial.id, "stopped", 1e9)
            return outcome(trial, math.nan if kind == "nan" else None)
        return outcome(trial, rng.random())

    return evaluate


def has_score(result):
    return result.status == "finished" and not math.isnan(result.value)


@pytest.mark.parametrize(("popsize", "generations"), [(2, 1), (5, 3), (10, 2)])
def test_there_are_popsize_trials_per_generation(popsize, generations):
    searcher = training(popsize=popsize, generations=generations)
    assert searcher.total == popsize * (generations + 1)
    for number, (trials, _) in enumerate(generations_of(searcher, evaluated_by(len))):
        assert [trial.generation for trial in trials] == [number] * popsize


@given(
    seed=seeds,
    popsize=st.integers(2, 9),
    quantile=st.floats(0, 0.5),
    share=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
)
@few
def test_parents_are_trials_of_the_generation_before_that_finished(seed, popsize, quantile, share):
    searcher = training(MIXED, seed, popsize=popsize, generations=4, quantile=quantile)
    for before, outcomes, trials in steps(searcher, some_fail(share, seed)):
        alive = {result.trial for result in outcomes if has_score(result)}
        assert {trial.id for trial in before} >= alive
        if alive:
            assert {trial.parent for trial in trials} <= alive
        else:
            assert {trial.parent for trial in trials} == {None}


def test_generation_0_starts_from_scratch():
    (trials, _), *_ = generations_of(training(), all_fail)
    assert {trial.parent for trial in trials} == {None}


@given(seed=seeds, popsize=st.integers(2, 12), quantile=st.floats(0, 0.5), direction=directions)
@few
def test_the_worst_copy_the_best_and_the_others_resume(seed, popsize, quantile, direction):
    searcher = training(
        MIXED, seed, popsize=popsize, generations=4, quantile=quantile, direction=direction
    )
    copies = min(math.ceil(popsize * Fraction(repr(quantile))), popsize // 2)
    for before, outcomes, trials in steps(searcher, some_fail(0.0, seed)):
        ranked = sorted(
            before,
            key=lambda trial: direction.merit(outcomes[trial.id % popsize].value),
            reverse=True,
        )
        top = {trial.id for trial in ranked[:copies]}
        bottom = {trial.id % popsize for trial in ranked[popsize - copies :]}
        for member, trial in enumerate(trials):
            if member in bottom:
                assert trial.parent in top
            else:
                assert trial.parent == before[member].id
                assert trial.params == before[member].params
    assert searcher.logbook.select("copied") == [None] + [copies / popsize] * 4


@pytest.mark.parametrize(("popsize", "quantile", "copies"), [(100, 0.07, 7), (50, 0.28, 14)])
def test_the_share_of_copies_is_that_of_decimal_numbers(popsize, quantile, copies):
    searcher = training(MIXED, popsize=popsize, generations=1, quantile=quantile)
    drive(searcher, evaluated_by(lambda params: params["lr"]))
    assert searcher.logbook.select("copied") == [None, copies / popsize]


def test_each_of_the_best_is_copied_as_often():
    searcher = training(popsize=400, generations=1)
    (_, outcomes), (trials, _) = generations_of(searcher, some_fail(0.0, 0))
    best = sorted(outcomes, key=lambda result: result.value)[300:]
    copied = collections.Counter(
        trial.parent for trial in trials if trial.parent % 400 != trial.id % 400
    )
    assert set(copied) <= {result.trial for result in best}
    assert copied.total() == 100
    assert 50 < len(copied) < 80  # (1 - 1/e) * 100 of them, if drawn evenly


@pytest.mark.parametrize("quantile", [0.01, 0.25, 0.5])
def test_of_two_members_the_worse_one_resumes_from_the_better_one(quantile):
    searcher = training(popsize=2, generations=5, quantile=quantile)
    for before, outcomes, trials in steps(searcher, some_fail(0.0, 3)):
        winner = Direction.MAX.best(outcomes, lambda result: result.value).trial
        assert [trial.parent for trial in trials] == [winner, winner]
        assert trials[winner % 2].params == before[winner % 2].params


@given(seed=seeds, quantile=st.floats(0, 0.5))
@few
def test_members_whose_trials_failed_copy(seed, quantile):
    searcher = training(MIXED, seed, popsize=6, generations=4, quantile=quantile)
    for _, outcomes, trials in steps(searcher, some_fail(0.5, seed)):
        for result, trial in zip(outcomes, trials, strict=True):
            if not has_score(result):
                assert trial.parent != result.trial


def test_after_a_generation_of_failures_all_members_are_drawn_anew():
    searcher = training(popsize=6, generations=3)
    generations = generations_of(searcher, all_fail)
    params = [tuple(trial.params.values()) for trials, _ in generations for trial in trials]
    assert len(set(params)) == 24
    assert searcher.logbook.select("copied") == [None, 0.0, 0.0, 0.0]
    assert searcher.logbook.select("best") == [None] * 4


def test_each_trial_replaces_its_members_previous_trial():
    searcher = training(popsize=3, generations=2)
    said = []
    for trial in range(9):
        searcher.tell(some_fail(0.5, 2)(searcher.ask()))
        assert len(searcher.selections) == (3 if trial % 3 == 2 else 0)
        said += searcher.selections
    before = [None] * 3 + list(range(6))
    assert said == [Selection(trial, True, before[trial]) for trial in range(9)]


def test_without_a_quantile_members_with_values_resume_unchanged():
    searcher = training(popsize=4, generations=3, quantile=0)
    for before, _, trials in steps(searcher, some_fail(0.0, 0)):
        assert [trial.params for trial in trials] == [trial.params for trial in before]
        assert [trial.parent for trial in trials] == [trial.id for trial in before]


@given(orders=st.lists(st.permutations(range(6)), min_size=4, max_size=4), seed=seeds)
@few
def test_trials_do_not_depend_on_the_order_of_outcomes(orders, seed):
    evaluate = some_fail(0.3, seed)
    reference, searcher = (training(MIXED, seed, popsize=6) for _ in range(2))
    expected = [trial for trials, _ in generations_of(reference, evaluate) for trial in trials]
    trials = []
    for order in orders:
        generation = [searcher.ask() for _ in range(6)]
        assert searcher.ask() is None
        trials += generation
        for index in order:
            searcher.tell(evaluate(generation[index]))
    assert trials == expected
    assert searcher.logbook == reference.logbook


@given(seed=seeds)
@few
def test_maximizing_is_minimizing_the_negative(seed):
    up, down = (training(MIXED, seed, popsize=5, direction=direction) for direction in Direction)
    upward = generations_of(up, evaluated_by(by_units))
    downward = generations_of(down, evaluated_by(lambda params: -by_units(params)))
    assert [trials for trials, _ in upward] == [trials for trials, _ in downward]


def test_the_logbook_is_about_the_generation():
    searcher = training(MIXED, popsize=5, generations=3)
    generations = generations_of(searcher, evaluated_by(by_units))
    assert searcher.logbook.header == COLUMNS
    assert searcher.logbook.select("gen") == [0, 1, 2, 3]
    assert searcher.logbook.select("evals") == [5] * 4
    for record, (trials, outcomes) in zip(searcher.logbook, generations, strict=True):
        scores = [result.value for result in outcomes]
        points = [MIXED.encode(trial.params) for trial in trials]
        assert record["best"] == max(scores)
        assert record["mean"] == pytest.approx(np.mean(scores))
        assert record["std"] == pytest.approx(np.std(scores))
        assert record["diversity"] == pytest.approx(np.std(points, axis=0).mean())
    assert searcher.hall_of_fame[0].score == max(searcher.logbook.select("best"))


def test_the_hall_of_fame_has_the_best_trial_of_a_member_that_goes_on():
    searcher = training(popsize=2, quantile=0)  # each member goes on, with the same point
    drive(searcher, lambda trial: outcome(trial, 10.0 * trial.generation - trial.id))
    assert searcher.hall_of_fame[0].score == max(searcher.logbook.select("best"))


def test_the_population_is_the_last_finished_generation():
    searcher = training(MIXED, popsize=4, generations=2)
    before = []
    for _ in range(3):
        trials = [searcher.ask() for _ in range(4)]
        assert searcher.population == before
        for trial in trials:
            searcher.tell(outcome(trial, by_units(trial.params)))
        before = [trial.params for trial in trials]
        assert searcher.population == before


# Exploring


def perturbed(domain, value, tries=40):
    rng = random.Random(0)
    return {perturb(domain, value, rng) for _ in range(tries)}


@pytest.mark.parametrize(
    ("domain", "value", "expected"),
    [
        (Float(0.0, 1.0), 0.5, {0.4, 0.6}),
        (Float(0.0, 1.0), 0.9, {0.9 * 0.8, 1.0}),
        (Float(1e-5, 1e-1, log=True), 1e-3, {1e-3 * 0.8, 1e-3 * 1.2}),
        (Float(1e-5, 1e-1, log=True), 1e-5, {1e-5, 1e-5 * 1.2}),
        (Float(-1.0, 1.0), -0.5, {-0.4, -0.6}),
        (Float(3.0, 3.0), 3.0, {3.0}),
        (Float(-1e308, 1.7e308), 1.7e308, {1.7e308 * 0.8, 1.7e308}),
        (Integer(1, 64), 10, {8, 12}),
        (Integer(1, 64), 60, {48, 64}),
        (Integer(1, 64), 2, {1, 3}),
        (Integer(1, 64), 1, {1, 2}),
        (Integer(-9, 9), 0, {-1, 1}),
        (Integer(-9, 9), -1, {0, -2}),
        (Integer(1, 2**50, log=True), 2**40, {round(2**40 * 0.8), round(2**40 * 1.2)}),
        (Choice(["a", "b", "c"]), "b", {"a", "c"}),
        (Choice(["a", "b", "c"]), "c", {"b", "c"}),
        (Choice(["a"]), "a", {"a"}),
        (Choice([16, 16, 32]), 16, {16, 32}),
        (Choice([1, 1, True, 2, 1]), True, {1, 2}),
        (Choice([(8,), (8, 4)]), (8,), {(8,), (8, 4)}),
        (Choice(range(10**12)), 10**11, {10**11 - 1, 10**11 + 1}),
    ],
    ids=lambda value: str(sorted(value, key=str)) if isinstance(value, set) else str(value),
)
def test_numbers_move_by_a_factor_and_choices_to_a_neighbour(domain, value, expected):
    assert perturbed(domain, value) == expected


@given(low=st.integers(-50, 50), width=st.integers(0, 100), unit=st.floats(0, 1), seed=seeds)
@examples(200)
def test_an_integer_moves_unless_it_is_at_a_bound(low, width, unit, seed):
    domain = Integer(low, low + width)
    value = domain.decode(unit)
    moved = perturb(domain, value, random.Random(seed))
    assert domain.low <= moved <= domain.high
    assert type(moved) is int
    assert moved != value or value in (domain.low, domain.high)


@given(points=st.lists(st.floats(0, 1), min_size=5, max_size=5), seed=seeds, rate=st.floats(0, 1))
@examples(100)
def test_explored_hyperparameters_stay_in_the_space(points, seed, rate):
    params = MIXED.decode(points)
    for _ in range(5):
        params = explore(MIXED, params, rate, random.Random(seed))
        assert list(params) == list(MIXED)
        assert all(0 <= unit <= 1 for unit in MIXED.encode(params))
        assert MIXED["lr"].low <= params["lr"] <= MIXED["lr"].high
        assert 1 <= params["units"] <= 64


def test_each_hyperparameter_is_resampled_with_its_probability():
    rng, params = random.Random(0), {"h0": 0.5, "h1": 0.5}
    explored = [explore(PLANE, params, 0.25, rng) for _ in range(4000)]
    resampled = [[point[name] not in (0.4, 0.6) for name in PLANE] for point in explored]
    assert np.mean(resampled, axis=0) == pytest.approx([0.25, 0.25], abs=0.03)
    assert np.mean([all(both) for both in resampled]) == pytest.approx(1 / 16, abs=0.02)


@pytest.mark.parametrize(("rate", "values"), [(0, {0.4, 0.6}), (1, set())])
def test_nothing_or_everything_is_resampled(rate, values):
    rng = random.Random(0)
    seen = {explore(PLANE, {"h0": 0.5, "h1": 0.5}, rate, rng)["h0"] for _ in range(50)}
    assert (seen & {0.4, 0.6}) == values
    assert len(seen) == (2 if values else 50)


# The toy problem of figure 2 of the paper


def toy(seed, **kwargs):
    """Maximise 1.2 - x^2 - y^2 by gradients of 1.2 - h0 x^2 - h1 y^2 from (0.9, 0.9)."""
    models = {None: (0.9, 0.9)}

    def evaluate(trial):
        x, y = models[trial.parent]
        for _ in range(4):
            x -= 0.02 * trial.params["h0"] * x
            y -= 0.02 * trial.params["h1"] * y
        models[trial.id] = x, y
        return outcome(trial, 1.2 - x**2 - y**2)

    searcher = training(PLANE, seed, generations=40, **kwargs)
    drive(searcher, evaluate)
    return searcher.logbook[-1]["best"]


@pytest.mark.parametrize("popsize", [2, 6])
def test_on_the_papers_toy_problem_copying_beats_resuming_alone(popsize):
    with_copies = [toy(seed, popsize=popsize) for seed in range(10)]
    without = [toy(seed, popsize=popsize, quantile=0) for seed in range(10)]
    assert np.mean(with_copies) > 1.19
    assert np.mean(with_copies) > np.mean(without) + 0.005
    wins = sum(one > other for one, other in zip(with_copies, without, strict=True))
    assert wins >= 9


# Arguments


NO_NUMBERS = [math.nan, math.inf, True, "0.5", None, [0.5]]


@pytest.mark.fault(44)
@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("popsize", [1, 0, 2.0, True, "8", None], "an integer of at least 2"),
        ("generations", [0, -1, 1.0, True, None], "an integer of at least 1"),
        ("quantile", [-0.1, 0.51, 1, *NO_NUMBERS], "a number of [0, 0.5]"),
        ("resample_probability", [-0.1, 1.1, 2, *NO_NUMBERS], "a number of [0, 1]"),
    ],
)
def test_unusable_settings_are_refused(name, values, expected):
    for value in values:
        with pytest.raises(InvalidArgument) as caught:
            training(**{name: value})
        assert (caught.value.name, caught.value.expected) == (name, expected)
        assert caught.value.got == repr(value)


@pytest.mark.parametrize(
    "at_the_edge",
    [
        {"popsize": 2},
        {"generations": 1},
        {"quantile": 0.5},
        {"quantile": 0},
        {"resample_probability": 1},
    ],
    ids=str,
)
def test_settings_at_the_edge_are_accepted(at_the_edge):
    searcher = training(MIXED, **at_the_edge)
    assert len(drive(searcher, evaluated_by(by_units))) == searcher.total
