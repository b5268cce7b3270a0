"""Bayesian optimisation with several objectives; with one see `test_bayesian.py`."""

import math
import random
from dataclasses import replace

import moocore
import numpy as np
import pytest

from search.direction import Direction, Directions
from search.errors import InvalidArgument
from search.random_search import RandomSearch
from search.searcher import Problem, drive
from search.sequential.bayesian import DESIGN, BayesianOptimization
from search.sequential.evidence import MODELLED, Model
from search.sequential.promising import Promising
from search.space.spaces import Choice, Float, Integer, Space
from search.trial import Evaluated, Outcome
from tests.search.fakes import GOAL, evaluated_by, hypervolume, plain, recorded, several, started

MIXED = Space(
    {
        "rate": Float(0.0001, 1.0, log=True),
        "units": Integer(4, 64),
        "optimizer": Choice(["sgd", "adam"]),
        "momentum": Float(0.0, 1.0, when={"optimizer": "sgd"}),
    }
)
SQUARE = Space.of_bounds({"a": [0.0, 1.0], "b": [0.0, 1.0]})


def tuning(params):
    rate, units = math.log10(params["rate"]), params["units"]
    error = (rate + 2) ** 2 / 4 + 8 / units + 0.3 * (params["optimizer"] == "adam")
    return {"error": error, "cost": units / 32}


def make(space=SQUARE, samples=20, seed=0, **arguments):
    arguments = {"direction": GOAL} | arguments
    return started(BayesianOptimization, space, seed, samples=samples, **arguments)


def trials_of(searcher, evaluate):
    trials = []
    drive(searcher, recorded(evaluate, trials))
    return trials


def test_the_first_trials_fill_a_latin_hypercube():
    trials = trials_of(make(samples=DESIGN), several(plain))
    for name in SQUARE:
        slices = sorted(math.floor(trial.params[name] * DESIGN) for trial in trials)
        assert slices == list(range(DESIGN))


@pytest.mark.parametrize(
    ("function", "space", "reference"),
    [(plain, SQUARE, (1.0, 1.0)), (tuning, MIXED, (2.0, 2.0))],
    ids=["numbers", "mixed"],
)
def test_its_front_is_far_better_than_random_searchs(function, space, reference):
    ours, others = 0.0, 0.0
    for seed in range(2):
        drawn = RandomSearch(Problem(space=space, samples=25, rng=random.Random(seed)))
        ours += hypervolume(drive(make(space, 25, seed), several(function)), reference)
        others += hypervolume(drive(drawn, several(function)), reference)
    most = RandomSearch(Problem(space=space, samples=4000, rng=random.Random(0)))
    best = 2 * hypervolume(drive(most, several(function)), reference)
    assert best - ours < 0.4 * (best - others)


def test_the_front_of_three_objectives_is_far_better_than_random_searchs():
    goal = Directions(dict.fromkeys("abc", Direction.MIN))
    space = Space.of_bounds({"x": [0.0, 1.0], "y": [0.0, 1.0], "z": [0.0, 1.0]})
    corners = {"a": (0.2, 0.2), "b": (0.8, 0.2), "c": (0.5, 0.8)}

    def distances(params):
        here, z = (params["x"], params["y"]), params["z"]
        return {name: math.dist(here, corner) + z for name, corner in corners.items()}

    def volume(searcher):
        values = [list(o.values.values()) for o in drive(searcher, several(distances))]
        return moocore.hypervolume(np.array(values), ref=[1.0] * 3)

    drawn = RandomSearch(Problem(space=space, samples=24, rng=random.Random(0)))
    assert volume(make(space, 24, direction=goal)) > 2 * volume(drawn)


def test_it_is_as_good_at_maxima():
    down = trials_of(make(seed=3), several(plain))
    up = Directions({"error": Direction.MAX, "cost": Direction.MIN})

    def turned(params):
        values = plain(params)
        return values | {"error": -values["error"]}

    assert trials_of(make(seed=3, direction=up), several(turned)) == down


def test_points_near_trials_that_fail_or_lack_an_objective_are_avoided():
    def evaluate(trial):
        if trial.params["a"] < 0.5:
            return Outcome.failed(trial.id, "user error", "boom")
        if trial.params["b"] < 0.5:
            return Outcome(trial.id, "finished", values={"error": -9.0})
        return several(plain)(trial)

    trials = trials_of(make(samples=30), evaluate)
    bad = [t for t in trials[DESIGN:] if t.params["a"] < 0.5 or t.params["b"] < 0.5]
    assert len(bad) < 9  # of 22, three quarters of which would be 16


def test_trials_in_flight_are_spread():
    searcher = make(samples=30)
    for _ in range(10):
        searcher.tell(several(plain)(searcher.ask()))
    points = np.array([list(searcher.ask().params.values()) for _ in range(8)])
    distances = np.linalg.norm(points[:, np.newaxis] - points, axis=-1)
    assert distances[np.triu_indices(8, k=1)].min() > 0.001


def test_a_search_starts_from_prior_observations():
    rng = random.Random(0)
    params = [SQUARE.decode([rng.random(), rng.random()]) for _ in range(12)]
    searcher = make(samples=8, known=[Evaluated(each, None, plain(each)) for each in params])
    trials = trials_of(searcher, several(plain))
    assert all(trial.params["b"] < 0.2 for trial in trials)  # where the front lies


def test_more_points_are_evaluated_than_the_model_uses():
    rng = random.Random(0)
    params = [{"a": rng.random(), "b": rng.uniform(0.5, 1.0)} for _ in range(MODELLED + 50)]
    best = [{"a": a, "b": 0.0} for a in (0.0, 0.5, 1.0)]
    known = [Evaluated(each, None, plain(each)) for each in (*best, *params)]
    searcher = make(samples=2, known=known)
    points, _ = searcher._evidence._data(len(known))
    assert points.shape == (MODELLED, 2)
    assert points[:3].tolist() == [list(each.values()) for each in best]
    assert searcher.ask().params["b"] < 0.2


def test_objectives_that_are_the_same_everywhere_are_searched():
    outcomes = drive(make(samples=12), several(lambda params: {"error": 1.0, "cost": 2.0}))
    assert len(outcomes) == 12


def test_with_noise_the_means_count_and_trials_may_repeat(monkeypatch):
    rng, compared = random.Random(0), []
    improvement = Model.improvement

    def noted(model, values):
        compared.append(np.array_equal(values, model.predict(model.points)[0]))
        return improvement(model, values)

    monkeypatch.setattr(Model, "improvement", noted)

    def noisy(params):
        return {name: value + rng.gauss(0, 0.2) for name, value in plain(params).items()}

    space = Space({"a": Integer(0, 3), "b": Integer(0, 3)})
    trials = trials_of(make(space, samples=30, noisy=True), several(noisy))
    assert len(trials) == 30  # of 16 configurations
    assert all(compared)
    assert len(compared) == 30 - DESIGN
    late = [trial.params["b"] for trial in trials[16:]]
    assert late.count(0) > len(late) / 2  # where the front of the means lies


def test_every_second_trial_of_a_model_climbs(monkeypatch):
    climbs = []
    point = Promising.point

    def noted(promising, score, good, *, climb=False):
        climbs.append(climb)
        return point(promising, score, good, climb=climb)

    monkeypatch.setattr(Promising, "point", noted)
    drive(make(samples=DESIGN + 5), several(plain))
    assert climbs == [False, True, False, True, False]
    climbs.clear()
    drive(make(samples=DESIGN + 3, direction=Direction.MIN), evaluated_by(lambda p: p["a"]))
    assert climbs == [False] * 3


def test_no_trial_has_an_acquisition():
    searcher = make(samples=DESIGN + 3)
    while not searcher.finished:
        trial = searcher.ask()
        assert searcher.acquisition_of(trial.id) is None
        searcher.tell(several(plain)(trial))


def test_a_search_that_is_resumed_goes_on_as_it_would_have():
    first, resumed = make(), make()
    for _ in range(DESIGN + 4):
        trial = first.ask()
        assert resumed.ask_again(trial) is trial
        first.tell(several(plain)(trial))
        resumed.tell(several(plain)(trial))
    assert [resumed.ask() for _ in range(3)] == [first.ask() for _ in range(3)]


def test_more_than_three_objectives_are_refused():
    four = Directions(dict.fromkeys("abcd", Direction.MAX))
    problem = Problem(space=SQUARE, samples=9, rng=random.Random(0), direction=four)
    with pytest.raises(InvalidArgument, match="at most 3 objectives.*evolutionary_search"):
        BayesianOptimization().start(problem)
    three = Directions(dict.fromkeys("abc", Direction.MAX))
    assert BayesianOptimization().start(replace(problem, direction=three)).ask() is not None
