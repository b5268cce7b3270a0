import collections
import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.algorithms import Evolution
from search.direction import Direction
from search.errors import InvalidArgument
from search.evolution.screening import SCREENED
from search.evolution.steady_state import COLLAPSED, REPEATED
from search.searcher import drive
from search.space.spaces import Choice, Float, Integer, Space
from search.space.tried import NONE_LEFT
from search.trial import Evaluated
from tests.properties import examples
from tests.search.fakes import all_fail, evaluated_by, outcome, recorded, run_in_any_order, started

PLANE = Space.of_bounds({"x": [-5.0, 5.0], "y": [-5.0, 5.0]})
CUBE = Space.of_bounds({"a": [0.0, 1.0], "b": [0.0, 1.0]})
MIXED = Space.of_bounds({"lr": [0.1, 1e-5], "units": [1, 64], "act": ["relu", "tanh", "elu"]})
LISTS = Space.of_bounds({"layers": [(8,), (8, 4), [8]], "bias": [True, False], "width": [1, 4]})
COLUMNS = ["gen", "evals", "best", "mean", "std", "diversity", "acceptance"]

seeds = st.integers(0, 10**6)
directions = st.sampled_from(Direction)
values = st.none() | st.just(math.nan) | st.floats(-9, 9)


def steady(space=PLANE, seed=0, **kwargs):
    return started(Evolution, space, seed, **kwargs)


def sphere(params):
    return params["x"] ** 2 + params["y"] ** 2


def mixed(params):
    distance = abs(math.log10(params["lr"]) + 3) + abs(params["units"] - 40) / 64
    return distance + (params["act"] != "tanh")


def asked_by(searcher, evaluate):
    trials = []
    drive(searcher, recorded(evaluate, trials))
    return trials


def configuration(trial):
    return tuple((type(value), str(value)) for value in trial.params.values())


def is_latin_hypercube(trials, space):
    points = np.array([space.encode(trial.params) for trial in trials])
    slices = np.sort(np.floor(points * len(trials)), axis=0)
    return (slices == np.arange(len(trials))[:, np.newaxis]).all()


def begun(scores, space=CUBE, seed=0, **kwargs):
    """Return a searcher with outcomes for as many design points, and their trials."""
    searcher = steady(space, seed, popsize=len(scores), **kwargs)
    trials = [searcher.ask() for _ in scores]
    for trial, score in zip(trials, scores, strict=True):
        searcher.tell(outcome(trial, score))
    return searcher, trials


# Trials


@pytest.mark.parametrize(("popsize", "generations"), [(4, 1), (5, 3), (10, 2)])
def test_a_trials_number_determines_its_generation(popsize, generations):
    searcher = steady(popsize=popsize, generations=generations)
    trials = asked_by(searcher, evaluated_by(sphere))
    assert [trial.generation for trial in trials] == [
        number for number in range(generations + 1) for _ in range(popsize)
    ]


def test_there_is_always_another_trial_whatever_is_in_flight():
    searcher = steady(popsize=4, generations=9)
    trials = [searcher.ask() for _ in range(40)]
    assert None not in trials
    assert searcher.finished
    for start in range(0, 40, 4):  # nothing was learnt, so each four are a Latin hypercube
        assert is_latin_hypercube(trials[start : start + 4], PLANE)


@pytest.mark.parametrize("ended", range(5))
def test_design_points_come_until_popsize_outcomes_have_come(ended):
    searcher = steady(popsize=4)
    bred = []
    searcher.toolbox.register("repair", lambda vector, target: bred.append(0) or [0.5, 0.25])
    out = [searcher.ask() for _ in range(9)]
    for trial in out[:ended]:
        searcher.tell(outcome(trial, 1.0))
    assert searcher.ask() is not None
    assert bool(bred) == (ended >= 4)


def test_while_no_trial_has_a_value_only_design_points_are_tried():
    searcher = steady(popsize=4, generations=9)
    searcher.toolbox.register("select", lambda population, index: pytest.fail("bred of nothing"))
    assert len(asked_by(searcher, all_fail)) == 40
    assert searcher.logbook.select("best") == [None] * 10
    assert len(searcher.hall_of_fame) == 0
    failing = steady(popsize=4, generations=9)
    trials = asked_by(failing, lambda trial: outcome(trial, 1.0 if trial.id == 20 else math.nan))
    assert trials[20].params in failing.population


@given(rng=st.randoms(use_true_random=False), seed=seeds, direction=directions)
@examples(20)
def test_more_generations_start_with_the_same_trials(rng, seed, direction):
    state = rng.getstate()
    runs = []
    for generations in (3, 6):
        rng.setstate(state)
        searcher = steady(MIXED, seed, popsize=5, generations=generations, direction=direction)
        out, asked = [], []
        while len(asked) < 20:
            if len(out) < 3:
                asked.append(searcher.ask())
                out.append(asked[-1])
            else:
                trial = out.pop(rng.randrange(3))
                searcher.tell(outcome(trial, mixed(trial.params)))
        runs.append(asked)
    assert runs[0] == runs[1]


@given(seed=seeds)
@examples(20)
def test_maximizing_is_minimizing_the_negative(seed):
    up, down = (steady(seed=seed, direction=direction) for direction in Direction)
    upward = asked_by(up, evaluated_by(lambda params: -sphere(params)))
    assert upward == asked_by(down, evaluated_by(sphere))
    assert list(up.hall_of_fame[0]) == list(down.hall_of_fame[0])


def test_outcomes_of_unknown_trials_and_second_outcomes_are_errors():
    searcher = steady()
    trial = searcher.ask()
    searcher.tell(outcome(trial, 1.0))
    with pytest.raises(KeyError):
        searcher.tell(outcome(trial, 2.0))


def test_global_random_states_stay_untouched():
    before, numpy_before = random.getstate(), np.random.get_state()[1].tolist()
    drive(steady(MIXED), evaluated_by(mixed))
    assert random.getstate() == before
    assert np.random.get_state()[1].tolist() == numpy_before


# No configuration twice


@given(
    space=st.sampled_from([PLANE, MIXED, Space.of_bounds({"n": [1, 60]}), LISTS]),
    rng=st.randoms(use_true_random=False),
    seed=seeds,
)
@examples(40)
def test_no_configuration_is_tried_twice(space, rng, seed):
    searcher = steady(space, seed, popsize=4, generations=5)
    trials = run_in_any_order(searcher, evaluated_by(lambda params: rng.random()), rng)
    assert len({configuration(trial) for trial in trials}) == 24


@given(
    domains=st.lists(
        st.sampled_from(
            [
                Integer(1, 3),
                Integer(1, 5, log=True),
                Choice(list("abc")),
                Choice([(8,), [8]]),
                Float(2, 2),
            ]
        ),
        min_size=1,
        max_size=3,
    ),
    rng=st.randoms(use_true_random=False),
    seed=seeds,
)
@examples(60)
def test_a_space_with_fewer_configurations_than_trials_ends_the_search(domains, rng, seed):
    space = Space({f"h{number}": domain for number, domain in enumerate(domains)})
    sizes = [len({str(domain.decode(unit / 30)) for unit in range(31)}) for domain in domains]
    searcher = steady(space, seed, popsize=4, generations=12)
    trials = run_in_any_order(searcher, evaluated_by(lambda params: rng.random()), rng)
    tried = list(map(configuration, trials))
    assert len(set(tried)) == len(tried) == min(52, math.prod(sizes))


def test_with_noise_each_configuration_may_be_tried_again_once_all_were():
    searcher = steady(Space.of_bounds({"n": [1, 3]}), popsize=4, generations=2, noisy=True)
    trials = run_in_any_order(searcher, evaluated_by(lambda p: p["n"]), random.Random(0))
    assert len({configuration(trial) for trial in trials[:3]}) == 3
    assert len(trials) == 12
    assert searcher.exhausted is None


# The population


def test_a_trial_competes_with_the_current_holder_of_its_place():
    searcher, trials = begun([0.0, 1.0, 2.0, 3.0])
    assert searcher.population == [trial.params for trial in trials]
    later = [searcher.ask() for _ in range(5)]
    searcher.tell(outcome(later[4], 10.0))  # trial 8, of place 0
    assert searcher.population == [later[4].params, *(trial.params for trial in trials[1:])]
    searcher.tell(outcome(later[0], 5.0))  # trial 4, better than the holder when it was bred
    assert searcher.population[0] == later[4].params
    searcher.tell(outcome(later[1], 1.0))  # as good is good enough
    assert searcher.population[1] == later[1].params


def test_late_design_points_take_the_place_of_the_worst():
    searcher = steady(CUBE, popsize=4)
    trials = [searcher.ask() for _ in range(7)]
    for trial, score in zip(trials, [5.0, 1.0, None, 4.0, 3.0, 2.0, math.nan], strict=True):
        searcher.tell(outcome(trial, score))
    assert searcher.population == [trials[index].params for index in (0, 5, 4, 3)]


@given(rng=st.randoms(use_true_random=False), data=st.data(), direction=directions, seed=seeds)
@examples(60)
def test_an_individual_is_replaced_only_by_one_as_good(rng, data, direction, seed):
    searcher = steady(CUBE, seed, popsize=4, generations=4, direction=direction)
    out, scores = [], {}
    while out or not searcher.finished:
        if not searcher.finished and (not out or rng.random() < 0.5):
            out.append(searcher.ask())
            continue
        trial = out.pop(rng.randrange(len(out)))
        score = scores[configuration(trial)] = data.draw(values)
        before = list(searcher._population)
        searcher.tell(outcome(trial, score))
        if len(searcher._population) < len(before):
            continue  # renewed
        for old, new in zip(before, searcher._population, strict=False):
            if old is not new:
                assert new.score == score
                assert not direction.better(old.score, score)
    best = direction.best(scores.values(), lambda score: score)
    (champion,) = searcher.hall_of_fame or [None]
    assert (champion.score if champion else None) == best


@pytest.mark.parametrize("value", [None, math.nan])
def test_failed_trials_take_no_place_not_even_of_failed_ones(value):
    searcher, trials = begun([1.0, None, math.nan, None])
    for _ in range(8):
        searcher.tell(outcome(searcher.ask(), value))
    assert searcher.population == [trial.params for trial in trials]


def test_changing_the_returned_population_changes_nothing():
    searcher, _ = begun([0.0] * 4)
    before = searcher.population
    searcher.population[0]["a"] = None
    searcher.population.clear()
    assert searcher.population == before


# Starting anew


def collapsing(spread):
    """Return a searcher with four outcomes, `spread` apart, and two trials in flight."""
    searcher, _ = begun([0.0, 0.0, 0.0, 0.0], generations=9)
    points = itertools.cycle([[0.5, 0.5 + number * spread] for number in range(7)])
    searcher.toolbox.register("repair", lambda vector, target: list(next(points)))
    trials = [searcher.ask() for _ in range(6)]
    for trial, score in zip(trials, [1.0, 4.0, 2.0, 3.0], strict=False):
        searcher.tell(outcome(trial, score))
    return searcher, trials


def test_only_the_best_of_a_collapsed_population_stays():
    searcher, trials = collapsing(COLLAPSED / 10)
    assert searcher.population == [trials[1].params]
    fresh = [searcher.ask() for _ in range(3)]
    for trial in fresh:
        searcher.tell(outcome(trial, None))
    assert searcher.population == [trial.params for trial in (trials[1], *fresh)]
    assert all(trial.params["a"] != 0.5 for trial in fresh)


def test_a_population_that_has_not_collapsed_stays():
    searcher, trials = collapsing(COLLAPSED)
    assert searcher.population == [trial.params for trial in trials[:4]]


def test_a_new_population_has_a_latin_hypercube_of_its_own():
    searcher = steady(CUBE, popsize=4, generations=9)
    design = [searcher.ask() for _ in range(6)]  # the second hypercube is begun
    for trial in design:
        searcher.tell(outcome(trial, 0.0))
    points = itertools.cycle([[0.5, 0.5 + number / 1e4] for number in range(4)])
    searcher.toolbox.register("repair", lambda vector, target: list(next(points)))
    for _ in range(4):
        searcher.tell(outcome(searcher.ask(), 1.0))
    assert len(searcher.population) == 1
    assert is_latin_hypercube([searcher.ask() for _ in range(4)], CUBE)


def test_candidates_bred_before_a_renewal_compete_with_the_best_alone():
    searcher, trials = collapsing(COLLAPSED / 10)
    searcher.tell(outcome(trials[4], 3.9))
    assert searcher.population == [trials[1].params]
    searcher.tell(outcome(trials[5], 5.0))  # it was bred for another place
    assert searcher.population == [trials[5].params]


def test_design_points_in_flight_at_a_renewal_join_the_new_population():
    searcher = steady(CUBE, popsize=4, generations=9)
    *first, late = [searcher.ask() for _ in range(5)]
    for trial in first:
        searcher.tell(outcome(trial, 0.0))
    points = itertools.cycle([[0.5, 0.5 + number / 1e4] for number in range(4)])
    searcher.toolbox.register("repair", lambda vector, target: list(next(points)))
    bred = [searcher.ask() for _ in range(4)]
    for trial, score in zip(bred, [1.0, 2.0, 4.0, 3.0], strict=True):
        searcher.tell(outcome(trial, score))
    assert searcher.population == [bred[2].params]
    searcher.tell(outcome(late, 5.0))
    assert searcher.population == [bred[2].params, late.params]


def test_a_population_without_a_value_stays_until_a_trial_has_one():
    searcher = steady(Space({"x": Choice(["only"])}), popsize=4, noisy=True)
    for _ in range(6):
        searcher.tell(outcome(searcher.ask(), None))
    assert len(searcher.population) == 4
    searcher.tell(outcome(searcher.ask(), 1.0))
    assert [member.score for member in searcher._population] == [1.0]


def test_a_choice_counts_by_its_values_when_a_population_collapses():
    space = Space.of_bounds({"x": [0.0, 1.0], "act": ["relu", "tanh", "elu"]})
    searcher, _ = begun([0.0] * 4, space)
    points = itertools.cycle([[0.5 + unit / 1000, unit] for unit in (0.34, 0.4, 0.5, 0.6, 0.66)])
    searcher.toolbox.register("repair", lambda vector, target: list(next(points)))
    for score in range(1, 5):
        searcher.tell(outcome(searcher.ask(), score))
    assert len(searcher.population) == 1


def test_a_long_search_continues_from_a_new_population():
    searcher = steady(popsize=6, generations=60, direction=Direction.MIN)
    drive(searcher, evaluated_by(sphere))
    diversity = searcher.logbook.select("diversity")
    rises = [later / earlier for earlier, later in itertools.pairwise(diversity)]
    assert max(rises) > 5
    best = searcher.logbook.select("best")
    assert best == sorted(best, reverse=True)


# Screening


@pytest.mark.parametrize(("chosen", "candidates"), [({}, 20), ({"candidates": 5}, 5)])
def test_the_first_trials_are_each_chosen_of_several_vectors_later_ones_more_rarely(
    chosen, candidates
):
    searcher = steady(popsize=5, generations=159, direction=Direction.MIN, **chosen)
    made = collections.Counter()
    repair = searcher.toolbox.repair

    def watched(vector, target):
        made[searcher._asked] += 1
        return repair(vector, target)

    searcher.toolbox.register("repair", watched)
    rng = random.Random(1)
    drive(searcher, lambda trial: outcome(trial, rng.random()))
    assert [made[number] for number in range(SCREENED)] == [0] * 5 + [candidates] * (SCREENED - 5)
    screened = [number for number in made if made[number] == candidates]
    assert {made[number] for number in made} == {1, candidates}
    expected = SCREENED * (1 + math.log(800 / SCREENED))  # the sum of min(1, 160 / n)
    assert 0.75 * expected < len(screened) < 1.25 * expected


# Points and prior observations


def known_of(scores):
    return [Evaluated({"a": number / 64, "b": 0.5}, score) for number, score in enumerate(scores)]


def test_the_best_prior_observations_are_the_first_population():
    known = known_of([1.0, 5.0, None, 3.0, 4.0, math.nan, 2.0])
    searcher = steady(CUBE, popsize=4, known=known)
    assert searcher.population == [known[index].params for index in (1, 4, 3, 6)]
    searcher.toolbox.register("population", lambda: pytest.fail("drawn"))
    trial = searcher.ask()
    searcher.tell(outcome(trial, 5.0))
    assert searcher.population[0] == trial.params


def test_design_points_fill_up_few_prior_observations():
    known = known_of([3.0, None, 1.0])
    searcher = steady(CUBE, popsize=4, known=known)
    trials = [searcher.ask() for _ in range(3)]
    for trial, score in zip(trials, [0.0, None, 2.0], strict=True):
        searcher.tell(outcome(trial, score))
    kept = [trials[0].params, trials[2].params]
    assert searcher.population == [known[0].params, known[2].params, *kept]


def test_all_prior_observations_count_in_the_screening():
    """Prior failures on one half of the cube keep the trials out of it."""
    good = [Evaluated({"a": 0.1 + number / 100, "b": number / 20}, 1.0) for number in range(20)]
    bad = [Evaluated({"a": 0.6 + number / 100, "b": number / 30}, None) for number in range(30)]
    spread = [
        Evaluated({"a": number / 3, "b": (number * 2 % 4) / 3}, 2.0) for number in range(4)
    ]  # the best, so the population
    shares = []
    for known in (spread, [*spread, *good, *bad]):
        trials = [
            trial
            for seed in range(20)
            for trial in asked_by(
                steady(CUBE, seed, popsize=4, generations=2, known=known), all_fail
            )
        ]
        shares.append(np.mean([trial.params["a"] > 0.6 for trial in trials]))
    assert shares[1] < shares[0] / 2


def test_points_are_the_first_design_points_however_many():
    points = [{"a": number / 64, "b": 0.5} for number in range(6)]
    searcher = steady(CUBE, popsize=4, points=points)
    trials = []
    for score in (5.0, 1.0, 4.0, 3.0, 6.0, 2.0):
        trials.append(searcher.ask())
        searcher.tell(outcome(trials[-1], score))
    assert [trial.params for trial in trials] == points
    assert searcher.population == [points[index] for index in (0, 4, 2, 3)]
    with pytest.raises(InvalidArgument, match="at most 16, the number of trials"):
        steady(CUBE, popsize=4, points=points * 3)


# Noise


def noisy_sphere(rng, deviation):
    return lambda trial: outcome(trial, sphere(trial.params) + rng.gauss(0, deviation))


def test_one_trial_in_ten_repeats_the_best_individual_and_its_score_is_the_mean():
    searcher = steady(CUBE, popsize=4, generations=19, noisy=True)
    values = {}
    rng = random.Random(0)
    repeated = 0
    for number in range(80):
        best = searcher._best()
        trial = searcher.ask()
        again = trial.params in [dict(params) for params in searcher.population]
        assert again == (number % REPEATED == REPEATED - 1)
        if again:
            assert trial.params == searcher._params(best)
            repeated += 1
        values.setdefault(configuration(trial), []).append(rng.gauss(0, 1))
        searcher.tell(outcome(trial, values[configuration(trial)][-1]))
        for member in searcher._population:
            seen = values[tuple((type(v), str(v)) for v in searcher._params(member).values())]
            assert member.score == pytest.approx(np.mean(seen))
    assert repeated == 8
    assert max(map(len, values.values())) > 1


def test_a_repetition_that_fails_changes_nothing():
    searcher, _ = begun([0.0, 3.0, 2.0, 1.0], noisy=True, generations=9)
    for _ in range(5):
        searcher.tell(outcome(searcher.ask(), None))
    before = [(dict(params), member.score) for params, member in
              zip(searcher.population, searcher._population, strict=True)]  # fmt: skip
    trial = searcher.ask()
    assert trial.id == REPEATED - 1
    assert trial.params == searcher.population[1]
    searcher.tell(outcome(trial, None))
    assert before == [(dict(params), member.score) for params, member in
                      zip(searcher.population, searcher._population, strict=True)]  # fmt: skip


@pytest.mark.parametrize("popsize", [4, 10, 20])
def test_with_noise_every_place_is_competed_for_equally_often(popsize):
    searcher, _ = begun([0.0] * popsize, noisy=True, generations=19, seed=1)
    bred = collections.Counter()
    repair = searcher.toolbox.repair

    def watched(vector, target):
        place = next(n for n, member in enumerate(searcher._population) if member is target)
        bred[place, searcher._asked] += 1
        return repair(vector, target)

    searcher.toolbox.register("repair", watched)
    while not searcher.finished:
        searcher.tell(outcome(searcher.ask(), -1.0))
    places = collections.Counter(place for place, _ in bred)
    assert len(places) == popsize
    assert max(places.values()) - min(places.values()) <= 1


def test_one_lucky_evaluation_does_not_stay_the_best():
    searcher, trials = begun([0.0, 9.0, 2.0, 1.0], noisy=True, generations=9)
    for _ in range(5):
        searcher.tell(outcome(searcher.ask(), -1.0))
    trial = searcher.ask()
    assert trial.params == trials[1].params
    searcher.tell(outcome(trial, -9.0))
    assert searcher._best().score == 2.0
    for _ in range(2):
        searcher.tell(outcome(searcher.ask(), -1.0))
    (champion,) = searcher.hall_of_fame
    assert champion.score == 2.0


def test_repeated_prior_observations_count_each_by_itself_without_noise():
    known = [
        Evaluated({"a": 0.5, "b": 0.5}, 9.0),
        *known_of([1.0, 2.0, 3.0, 4.0]),
        Evaluated({"a": 0.5, "b": 0.5}, -7.0),
    ]
    assert steady(CUBE, popsize=4, known=known).population[0] == known[0].params


def test_repeated_prior_observations_count_by_their_mean_with_noise():
    known = [
        Evaluated({"a": 0.5, "b": 0.5}, 9.0),
        *known_of([1.0, 2.0, 3.0, 4.0]),
        Evaluated({"a": 0.5, "b": 0.5}, -7.0),
        Evaluated({"a": 0.5, "b": 0.5}, None),
    ]
    searcher = steady(CUBE, popsize=5, noisy=True, known=known)
    assert [member.score for member in searcher._population] == [4.0, 3.0, 2.0, 1.0, 1.0]
    assert searcher.population[-1] in [known[0].params, known[1].params]


@pytest.mark.slow
def test_repetitions_with_noise_lower_the_score_of_the_best():
    """Of the same budget; how far below its true value the score of the best is."""

    def promise(noisy, seed):
        searcher = steady(
            seed=seed, popsize=20, generations=14, direction=Direction.MIN, noisy=noisy
        )
        drive(searcher, noisy_sphere(random.Random(seed + 1000), 3.0))
        best = searcher.hall_of_fame[0]
        return sphere(PLANE.decode(best)) - best.score

    pairs = np.array([[promise(noisy, seed) for noisy in (True, False)] for seed in range(10)])
    repeated, once = pairs.mean(axis=0)
    assert 0 < repeated < 0.7 * once


# The statistics


@given(rng=st.randoms(use_true_random=False), seed=seeds)
@examples(20)
def test_the_logbook_has_a_record_per_popsize_outcomes(rng, seed):
    searcher = steady(MIXED, seed, popsize=5, generations=3, direction=Direction.MIN)
    out, scores, records = [], [], 0
    accepted = 0
    while out or not searcher.finished:
        if not searcher.finished and len(out) < 3:
            out.append(searcher.ask())
            continue
        trial = out.pop(rng.randrange(len(out)))
        before = searcher.population
        scores.append(mixed(trial.params))
        searcher.tell(outcome(trial, scores[-1]))
        accepted += searcher.population != before
        if len(scores) % 5 == 0:
            record = searcher.logbook[records]
            assert (record["gen"], record["evals"]) == (records, 5)
            assert record["best"] == min(scores)
            assert record["acceptance"] == (accepted / 5 if records else None)
            members = [MIXED.encode(params) for params in searcher.population]
            assert record["diversity"] == pytest.approx(np.std(members, axis=0).mean(), abs=0.25)
            records, accepted = records + 1, 0
        assert len(searcher.logbook) == records
    assert records == 4


def test_with_noise_a_record_counts_the_trials_since_the_last_one():
    searcher, _ = begun([0.0] * 4, noisy=True, generations=9)
    near = (0.5 + number / 1e5 for number in itertools.count())
    searcher.toolbox.register(
        "repair", lambda vector, target: [0.5 if searcher._asked > 5 else 0.9, next(near)]
    )
    sizes = []
    for _ in range(8):
        searcher.tell(outcome(searcher.ask(), 9.0))
        sizes.append(len(searcher.population))
    assert sizes == [4, 4, 4, 4, 4, 4, 1, 2]  # renewed within a generation
    assert searcher.logbook.select("evals") == [4, 4, 4]


def test_a_search_that_finds_its_space_used_up_records_its_last_trials():
    space = Space(
        {"n": Integer(1, 9), "m": Integer(0, 10_000, when={"n": 1})},
        constraint=lambda params: params["n"] in {2, 4, 6},
    )  # too many configurations to count beforehand, of which three are allowed
    searcher = steady(space, popsize=4)
    trials = asked_by(searcher, evaluated_by(lambda params: params["n"]))
    assert len(trials) == 3
    assert searcher.logbook.select("evals") == [3]
    assert searcher.hall_of_fame[0].score == 6


def test_a_space_used_up_with_trials_in_flight_is_recorded_with_their_outcomes():
    x = Float(1.0, 1.0 + 2**-52)  # a real number, whose values are not counted, of two values
    searcher = steady(Space({"x": x, "n": Integer(1, 5)}), popsize=4)
    for _ in range(5):
        searcher.tell(outcome(trial := searcher.ask(), trial.params["n"]))
    in_flight = list(iter(searcher.ask, None))
    assert (searcher.total, searcher.exhausted) == (5 + len(in_flight), NONE_LEFT)
    assert searcher.logbook.select("evals") == [4]
    for trial in in_flight:
        searcher.tell(outcome(trial, trial.params["n"]))
    assert sum(searcher.logbook.select("evals")) == searcher.total


def test_the_logbook_is_that_of_the_search_by_generation():
    searcher = steady(popsize=4, generations=2)
    drive(searcher, evaluated_by(sphere))
    assert searcher.logbook.header == COLUMNS
    header, *rows = str(searcher.logbook).splitlines()
    assert header.split() == COLUMNS
    assert len(rows) == 3


# Quality


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_the_minimum_of_a_sphere(seed):
    searcher = steady(seed=seed, generations=20, direction=Direction.MIN)
    drive(searcher, evaluated_by(sphere))
    assert searcher.hall_of_fame[0].score < 1e-2


def test_it_is_better_than_the_search_by_generation_at_small_budgets():
    def best(seed, **how):
        searcher = steady(MIXED, seed, generations=5, direction=Direction.MIN, **how)
        drive(searcher, evaluated_by(mixed))
        return searcher.hall_of_fame[0].score

    pairs = [[best(seed), best(seed, generational=True)] for seed in range(10)]
    ours, by_generation = np.mean(pairs, axis=0)
    assert ours < by_generation / 2


# Arguments


@pytest.mark.fault(44)
@pytest.mark.parametrize(
    ("name", "unusable", "expected"),
    [
        ("popsize", [3, 4.0, True, None], "an integer of at least 4"),
        ("generations", [0, "3"], "an integer of at least 1"),
        ("noisy", [None, 1], "True or False"),
        ("candidates", [0, 2.0, True, "5"], "an integer of at least 1"),
        ("variant", ["rand", 1], "'rand1bin' or 'current-to-pbest1bin'"),
        ("crossover", [1.1, None], "a number of [0, 1]"),
        ("mutation", [0, 2.5, "0.5", (0.5,)], "a number of (0, 2], or two of them"),
    ],
)
def test_unusable_settings_are_refused(name, unusable, expected):
    for value in unusable:
        with pytest.raises(InvalidArgument) as caught:
            steady(**{name: value})
        assert (caught.value.name, caught.value.expected) == (name, expected)
        assert caught.value.got == repr(value)


@pytest.mark.parametrize(
    "at_the_edge",
    [
        {"popsize": 4},
        {"generations": 1},
        {"candidates": 1},
        {"variant": "rand1bin"},
        {"crossover": 0},
        {"crossover": 1.0, "mutation": 2},
        {"mutation": (2.0, 0.1)},
    ],
    ids=str,
)
def test_settings_at_the_edge_are_accepted(at_the_edge):
    searcher = steady(MIXED, **at_the_edge)
    assert len(drive(searcher, evaluated_by(mixed))) == searcher.total


def test_operators_can_be_swapped():
    searcher, trials = begun([0.0, 1.0, 2.0, 3.0])
    targets = []
    searcher.toolbox.register("select", lambda population, index: [population[0]])
    searcher.toolbox.register("mutate", lambda vector: [7.0, -7.0])
    searcher.toolbox.register("mate", lambda target, mutant: [mutant[0], target[1]])
    searcher.toolbox.register(
        "repair", lambda vector, target: targets.append(target) or [vector[0] / 10, vector[1]]
    )
    asked = [searcher.ask().params for _ in range(4)]
    assert asked == [{"a": 0.7, "b": trial.params["b"]} for trial in trials]
