import math
import random
import subprocess
import sys
import threading

import msgspec
import numpy as np
import pytest

from search.direction import Direction
from search.errors import InvalidArgument
from search.random_search import RandomSearch
from search.searcher import Problem, drive
from search.sequential.bayesian import DESIGN, LEAST, BayesianOptimization
from search.sequential.evidence import MODELLED
from search.space.spaces import Choice, Float, Integer, Space
from search.space.tried import NONE_LEFT
from search.trial import Evaluated, Outcome, Trial
from tests.search.fakes import evaluated_by, outcome, recorded, started

PLANE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
MIXED = Space(
    {
        "rate": Float(0.0001, 1.0, log=True),
        "units": Integer(1, 20),
        "optimizer": Choice(["sgd", "adam", "rmsprop"]),
        "momentum": Float(0.0, 1.0, when={"optimizer": "sgd"}),
    }
)


def bowl(params):
    return (params["x"] - 0.3) ** 2 + (params["y"] - 0.6) ** 2


def tuning(params):
    loss = (math.log10(params["rate"]) + 2) ** 2 / 4 + abs(params["units"] - 12) / 20
    return loss + {"sgd": 0.0, "adam": 0.3, "rmsprop": 0.6}[params["optimizer"]]


def make(space=PLANE, samples=20, seed=0, **arguments):
    arguments = {"direction": Direction.MIN} | arguments
    return started(BayesianOptimization, space, seed, samples=samples, **arguments)


def trials_of(searcher, evaluate):
    trials = []
    drive(searcher, recorded(evaluate, trials))
    return trials


def best_of(searcher, function):
    return min(item.value for item in drive(searcher, evaluated_by(function)))


def in_flight(searcher, evaluate, workers):
    """Evaluate so that `workers` trials are always out, the oldest ending first."""
    trials, out = [], []
    while out or not searcher.finished:
        while len(out) < workers and not searcher.finished:
            out.append(searcher.ask())
            trials.append(out[-1])
        searcher.tell(evaluate(out.pop(0)))
    return trials


def regrets(function, space, samples, workers):
    """Return the best values of searches and of random ones, for five seeds."""
    ours, others = [], []
    for seed in range(5):
        trials = in_flight(make(space, samples, seed), evaluated_by(function), workers)
        ours.append(min(function(trial.params) for trial in trials))
        randomly = RandomSearch(Problem(space=space, samples=samples, rng=random.Random(seed)))
        others.append(best_of(randomly, function))
    return np.array(ours), np.array(others)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, pytest.param(6, marks=pytest.mark.contract)])
@pytest.mark.parametrize(("function", "space"), [(bowl, PLANE), (tuning, MIXED)])
def test_it_is_far_better_than_random_search(function, space, workers):
    ours, others = regrets(function, space, 25, workers)
    assert ours.mean() < 0.4 * others.mean()


def test_it_is_as_good_at_a_maximum():
    down = trials_of(make(seed=3), evaluated_by(bowl))
    up = make(seed=3, direction=Direction.MAX)
    assert trials_of(up, evaluated_by(lambda params: -bowl(params))) == down


def test_trials_in_flight_are_spread():
    def wavy(params):
        return math.sin(12 * params["x"]) * math.cos(12 * params["y"])

    searcher = make(samples=40)
    for _ in range(12):
        searcher.tell(outcome(trial := searcher.ask(), wavy(trial.params)))
    points = np.array([list(searcher.ask().params.values()) for _ in range(10)])
    distances = np.linalg.norm(points[:, np.newaxis] - points, axis=-1)
    assert distances[np.triu_indices(10, k=1)].min() > 0.005


def test_more_trials_may_be_in_flight_than_a_model_needs_values():
    searcher = make(samples=50)
    trials = [searcher.ask() for _ in range(40)]
    assert len({tuple(trial.params.values()) for trial in trials}) == 40
    for trial in trials[: LEAST + 1]:
        searcher.tell(outcome(trial, bowl(trial.params)))
        assert searcher.ask() is not None


def test_the_first_trials_are_the_middle_and_a_latin_hypercube():
    trials = trials_of(make(samples=DESIGN), evaluated_by(bowl))
    assert trials[0].params == dict.fromkeys(PLANE, 0.5)
    for name in PLANE:
        slices = sorted(math.floor(trial.params[name] * (DESIGN - 1)) for trial in trials[1:])
        assert slices == list(range(DESIGN - 1))


def test_the_middle_has_the_middle_of_scales_and_a_random_unordered_choice():
    domains = {
        "rate": Float(1e-4, 1.0, log=True),
        "units": Integer(1, 9),
        "size": Choice([8, 16, 32], ordered=True),
        "kind": Choice(["a", "b", "c"]),
    }
    middles = [make(Space(domains), seed=seed).ask().params for seed in range(30)]
    rates = [middle.pop("rate") for middle in map(dict, middles)]
    assert rates == pytest.approx([1e-2] * 30)
    assert {(middle["units"], middle["size"]) for middle in middles} == {(5, 16)}
    assert {middle["kind"] for middle in middles} == set("abc")


def test_no_configuration_is_tried_twice():
    space = Space({"a": Integer(1, 5), "b": Choice(["x", "y", "z"])})
    trials = trials_of(make(space, 20), evaluated_by(lambda params: params["a"]))
    configurations = [tuple(trial.params.values()) for trial in trials]
    assert len(set(configurations)) == len(trials) == 15


def test_a_search_that_finds_its_space_used_up_ends():
    x = Float(1.0, 1.0 + 2**-52)  # a real number, whose values are not counted, of two values
    searcher = make(Space({"x": x, "n": Integer(1, 5)}), 30)
    trials = trials_of(searcher, evaluated_by(lambda params: params["n"]))
    configurations = {tuple(trial.params.values()) for trial in trials}
    assert DESIGN < len(configurations) == len(trials) <= 10
    assert (searcher.total, searcher.exhausted) == (len(trials), NONE_LEFT)


@pytest.mark.parametrize(("noisy", "trials"), [(False, 1), (True, 12)])
def test_a_space_of_one_configuration_is_searched(noisy, trials):
    space = Space({"a": Choice(["only"]), "b": Float(2.0, 2.0)})
    searcher = make(space, 12, noisy=noisy)
    found = trials_of(searcher, evaluated_by(lambda params: params["b"]))
    assert [trial.params for trial in found] == [{"a": "only", "b": 2.0}] * trials


def test_only_what_the_constraint_allows_is_tried():
    space = Space(dict(PLANE), constraint=lambda params: params["x"] + params["y"] < 0.7)
    trials = trials_of(make(space, 25), evaluated_by(bowl))
    assert all(trial.params["x"] + trial.params["y"] < 0.7 for trial in trials)
    assert min(bowl(trial.params) for trial in trials) < 0.03  # 0.02 at the constraint


def test_points_come_first_and_literally():
    points = [{"x": 0.25, "y": 0.75}, {"x": 0.1, "y": 0.2}]
    trials = trials_of(make(points=points), evaluated_by(bowl))
    assert [trial.params for trial in trials[:2]] == points


def test_a_search_starts_from_prior_observations():
    known = [
        Evaluated(params := PLANE.decode([x / 4, y / 4]), bowl(params))
        for x in range(5)
        for y in range(5)
    ]
    known.append(Evaluated({"x": 0.9, "y": 0.9}, None))
    trials = trials_of(make(samples=4, known=known), evaluated_by(bowl))
    assert min(bowl(trial.params) for trial in trials) < 0.001
    taken = [item.params for item in known]
    assert all(trial.params not in taken for trial in trials)


def test_points_near_failed_trials_are_avoided():
    def evaluate(trial):  # the better, the nearer to where all fail
        failed = trial.params["x"] > 0.5
        return outcome(trial, None if failed else -trial.params["x"])

    trials = trials_of(make(samples=40), evaluate)
    assert sum(trial.params["x"] > 0.5 for trial in trials[20:]) <= 8
    assert max(t.params["x"] for t in trials if t.params["x"] <= 0.5) > 0.47


@pytest.mark.parametrize("bad", [1e30, 1e308, math.inf, math.nan, None])
def test_a_diverged_trial_does_not_hide_how_the_others_differ(bad):
    def evaluate(trial):
        return outcome(trial, bad if trial.id in (1, 4) else bowl(trial.params))

    trials = trials_of(make(samples=30), evaluate)
    assert min(bowl(t.params) for t in trials if t.id not in (1, 4)) < 0.001


@pytest.mark.parametrize("value", [0.0, 1e308, -1e-320])
def test_an_objective_that_is_the_same_everywhere_is_searched(value):
    trials = trials_of(make(samples=15), evaluated_by(lambda params: value))
    assert len({tuple(trial.params.values()) for trial in trials}) == 15


def test_with_noise_the_mean_counts_and_trials_may_repeat():
    space = Space({"x": Integer(0, 3)})
    rng = random.Random(1)
    trials = trials_of(
        make(space, 30, noisy=True), evaluated_by(lambda p: (p["x"] - 2) ** 2 + rng.gauss(0, 0.5))
    )
    counts = [sum(trial.params["x"] == x for trial in trials[10:]) for x in range(4)]
    assert counts.index(max(counts)) == 2


@pytest.mark.slow
def test_the_same_trials_are_asked_for_whatever_threads_linear_algebra_may_use():
    program = """
import random
from search.searcher import drive
from search.sequential.bayesian import BayesianOptimization
from search.space.spaces import Float, Space
from search.trial import Outcome
from tests.search.fakes import started
space = Space({f"x{i}": Float(0.0, 1.0) for i in range(5)})
searcher = started(BayesianOptimization, space, 0, samples=60)
drive(searcher, lambda t: Outcome(t.id, "finished", -sum(v * v for v in t.params.values())))
print(searcher._evidence._points)
"""
    texts = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for threads in ("1", "2")
    ]
    assert texts[0] == texts[1]


def test_it_works_outside_of_the_main_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(best_of(make(samples=12), bowl)))
    thread.start()
    thread.join()
    assert found == [best_of(make(samples=12), bowl)]


def test_more_points_are_evaluated_than_the_model_uses():
    rng = random.Random(0)
    known = [
        Evaluated(params := PLANE.decode([rng.random(), rng.random()]), bowl(params))
        for _ in range(MODELLED + 50)
    ]
    known.insert(20, Evaluated({"x": 0.3, "y": 0.6}, 0.0))
    searcher = make(samples=2, known=known)
    points, values = searcher._evidence._data(len(known))
    assert points.shape == (MODELLED, 2)
    assert points[values.argmax()].tolist() == [0.3, 0.6]
    assert bowl(searcher.ask().params) < 0.01


@pytest.mark.parametrize(
    ("arguments", "name"),
    [({"samples": 0}, "samples"), ({"samples": 1.5}, "samples"), ({"noisy": 1}, "noisy")],
    ids=str,
)
def test_arguments_are_checked(arguments, name):
    with pytest.raises(InvalidArgument) as caught:
        make(**arguments)
    assert caught.value.name == name


def test_its_settings_start_it():
    settings = BayesianOptimization(noisy=True)
    assert settings.to_json() == {"type": "bayesian optimization", "noisy": True}
    problem = Problem(space=PLANE, rng=random.Random(4), direction=Direction.MIN, samples=12)
    started = trials_of(settings.start(problem), evaluated_by(bowl))
    assert started == trials_of(make(samples=12, seed=4, noisy=True), evaluated_by(bowl))
    with pytest.raises(InvalidArgument, match="samples"):
        settings.start(Problem(space=PLANE, rng=random.Random(4)))
    with pytest.raises(InvalidArgument, match="noisy"):
        BayesianOptimization(noisy="yes")


def test_trials_that_it_cannot_have_proposed_are_not_asked_again():
    points = [{"x": 0.25, "y": 0.75}]
    trials = trials_of(make(points=points), evaluated_by(bowl))
    searcher = make(points=points)
    assert searcher.ask_again(trials[1]) is None  # not the next one
    other = make(points=[{"x": 0.25, "y": 0.5}])
    assert other.ask_again(trials[0]) is None  # another point to try first
    assert searcher.ask_again(trials[0]) == trials[0]
    searcher.tell(Outcome(0, "finished", 1.0))
    assert searcher.ask_again(Trial(1, trials[0].params)) is None  # tried before


@pytest.mark.parametrize("asked", [DESIGN - 3, DESIGN + 1])
def test_a_noisy_search_that_is_resumed_goes_on_as_it_would_have(asked):
    space = Space({"x": Integer(1, DESIGN // 2)})  # each value is tried twice before the model
    first, resumed = (make(space, noisy=True) for _ in range(2))
    for _ in range(asked):
        trial = first.ask()
        assert resumed.ask_again(trial) is trial
        for searcher in (first, resumed):
            searcher.tell(outcome(trial, trial.params["x"]))
    assert [resumed.ask() for _ in range(3)] == [first.ask() for _ in range(3)]


def test_a_point_with_nan_is_asked_again():
    space, values = Space({"x": Choice([math.nan, 0.0]), "y": Float(0.0, 1.0)}), [math.nan, 0.0]
    points = [{"x": value, "y": 0.5} for value in values]
    first, resumed = (make(space, samples=4, points=points) for _ in range(2))
    for _ in points:
        trial = first.ask()
        read = msgspec.structs.replace(
            trial, params={"x": float(repr(trial.params["x"])), "y": 0.5}
        )
        assert resumed.ask_again(read) is read


def test_the_trials_that_a_model_proposed_have_their_acquisition_until_they_end():
    searcher = make(samples=DESIGN + 12)
    found = []
    while not searcher.finished:
        trial = searcher.ask()
        found.append(searcher.acquisition_of(trial.id))
        searcher.tell(outcome(trial, bowl(trial.params)))
        assert searcher.acquisition_of(trial.id) is None
    assert found[:DESIGN] == [None] * DESIGN
    assert all(math.isfinite(value) for value in found[DESIGN:])
    assert found[-1] < found[DESIGN] - 1  # the less is left to find, the lower it is


def test_the_acquisition_is_the_improvement_that_the_model_expects():
    searcher = make(samples=DESIGN + 1)
    for _ in range(DESIGN):
        trial = searcher.ask()
        searcher.tell(outcome(trial, bowl(trial.params)))
    model = searcher._evidence.model([])
    improvement = model.improvement(model.values)
    trial = searcher.ask()
    [expected] = improvement(np.array([PLANE.encode(trial.params)]))
    assert searcher.acquisition_of(trial.id) == pytest.approx(expected)


def test_a_trial_that_was_asked_again_has_no_acquisition():
    first = in_flight(make(samples=DESIGN + 1), evaluated_by(bowl), 1)
    again = make(samples=DESIGN + 1)
    for trial in first:
        again.ask_again(trial)
        assert again.acquisition_of(trial.id) is None
        again.tell(outcome(trial, bowl(trial.params)))
