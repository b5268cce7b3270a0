import math
import random
from statistics import fmean

import pytest

from search.direction import Direction
from search.errors import InvalidArgument
from search.random_search import RandomSearch
from search.searcher import Problem
from search.sequential.reinforce import Reinforce
from search.space.spaces import Choice, Float, Integer, Space
from search.trial import Evaluated
from tests.search.fakes import outcome, started
from tests.search.landscapes import ARCHITECTURES, best_found, operations_in_pairs

NUMBERS = Space({"x": Float(0.0, 1.0), "n": Integer(1, 100), "few": Integer(1, 3)})


def searched(space=ARCHITECTURES, samples=100, seed=0, **kwargs):
    return started(Reinforce, space, seed, samples=samples, **kwargs)


def trials_of(searcher, score):
    trials = []
    while (trial := searcher.ask()) is not None:
        trials.append(trial.params)
        searcher.tell(outcome(trial, score(trial.params)))
    return trials


# Settings


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"learning_rate": 0}, "learning_rate: expected a number of (0, 1], got 0"),
        ({"learning_rate": "0.1"}, "learning_rate: expected a number of (0, 1], got '0.1'"),
        ({"entropy": -0.1}, "entropy: expected a number of [0, 100], got -0.1"),
        ({"entropy": math.nan}, "entropy: expected a number of [0, 100], got nan"),
        ({"decay": 1.0}, "decay: expected a number of [0, 1), got 1.0"),
        ({"bins": 1}, "bins: expected an integer of at least 2, got 1"),
    ],
)
@pytest.mark.parametrize("make", [Reinforce, searched])
def test_numbers_beyond_the_bounds_are_refused(make, arguments, message):
    with pytest.raises(InvalidArgument) as caught:
        make(**arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize("samples", [None, 0])
def test_samples_are_required(samples):
    problem = Problem(space=ARCHITECTURES, rng=random.Random(0), samples=samples)
    with pytest.raises(InvalidArgument, match="^samples: expected an integer of at least 1"):
        Reinforce().start(problem)


def test_a_space_with_more_actions_than_a_controller_can_have_is_refused():
    space = Space({"id": Choice(range(998)), "op": Choice(list("abc"))})
    with pytest.raises(
        InvalidArgument, match="^space: expected at most 1,000 actions, .* got 1,001"
    ):
        searched(space)
    assert searched(Space({"id": Integer(0, 10**9), "op": Choice(list("abc"))})).ask() is not None


def test_settings_have_a_form_in_json():
    assert Reinforce(bins=4).to_json() == {
        "type": "reinforce",
        "learning_rate": 0.05,
        "entropy": 0.1,
        "decay": 0.9,
        "bins": 4,
    }


# Learning


@pytest.mark.parametrize("direction", Direction)
def test_it_learns_to_draw_rewarded_values(direction):
    searcher = searched(direction=direction, samples=200)
    trials = trials_of(
        searcher,
        lambda params: direction.weight * list(params.values()).count("pool"),
    )
    early, late = (
        fmean(list(params.values()).count("pool") for params in part)
        for part in (trials[:30], trials[-30:])
    )
    assert early < 3
    assert late > 5


def test_numbers_are_drawn_from_all_over_the_best_of_their_bins():
    trials = trials_of(
        searched(NUMBERS, samples=600, bins=4),
        lambda params: (
            -abs(params["x"] - 0.6) - abs(params["n"] - 90) / 100 - abs(params["few"] - 2)
        ),
    )
    assert {params["few"] for params in trials[:30]} == {1, 2, 3}
    last = trials[-200:]
    inside = [params for params in last if 0.5 <= params["x"] <= 0.75 and params["n"] > 75]
    assert len(inside) > 120
    assert fmean(params["few"] == 2 for params in last) > 0.8
    assert min(params["x"] for params in inside) < 0.53
    assert max(params["x"] for params in inside) > 0.72


@pytest.mark.parametrize(
    "changed",
    [lambda y: 1e-300 * y, lambda y: 1e307 * y, lambda y: 1e6 + y, lambda y: math.exp(9 * y)],
    ids=["tiny", "huge", "far from zero", "some outliers"],
)
def test_only_the_order_of_objectives_counts(changed):
    score = operations_in_pairs(0)
    plain = trials_of(searched(samples=60), score)
    assert trials_of(searched(samples=60), lambda params: changed(score(params))) == plain


@pytest.mark.parametrize("value", [None, math.nan])
@pytest.mark.parametrize("direction", Direction)
def test_failed_trials_get_the_worst_reward(direction, value):
    """Only failures distinguish the operations, and all values would lose to zero."""

    def score(params):
        return value if params["layer0"] in ("pool", "none") else -direction.weight * 5.0 - noise()

    noise = random.Random(1).random
    trials = trials_of(searched(samples=200, direction=direction), score)
    assert [params["layer0"] in ("pool", "none") for params in trials[-50:]].count(True) < 8


@pytest.mark.parametrize("value", range(1, 5))
def test_a_value_of_a_few_integers_on_a_log_scale_is_an_action(value):
    space = Space({"n": Integer(1, 4, log=True), "x": Float(0.0, 1.0)})
    searcher = searched(space)
    steps = searcher._steps(lambda position, _: space.encode({"n": value, "x": 0.5})[position])
    assert steps[0] == (0, value - 1)
    searcher._controller.draw = lambda position, *_: value - 1 if position == 0 else 3
    assert all(space.decode(searcher._propose())["n"] == value for _ in range(20))


def test_failures_alone_teach_nothing():
    """All trials are proposed as if no outcome had come."""
    one, other = searched(), searched()
    assert trials_of(one, lambda params: None) == [other.ask().params for _ in range(100)]


def test_a_hyperparameter_that_is_inactive_learns_nothing():
    space = Space(
        {
            "momentum": Choice([0.0, 0.5, 0.9], when={"optimizer": "sgd"}),
            "optimizer": Choice(["adam", "sgd"]),
            "units": Integer(1, 8),
        }
    )
    known = [Evaluated({"optimizer": "adam", "units": 1 + n % 8}, float(n % 8)) for n in range(400)]
    searcher = searched(space, samples=1, known=known, entropy=0.0)
    controller = searcher._controller
    assert controller.probabilities(0, [(1, 1)]).tolist() == [1 / 3] * 3
    assert controller.probabilities(2, [(1, 0)]).argmax() == 7


def test_prior_observations_train_the_controller_before_the_first_trial():
    rng, known = random.Random(2), []
    for _ in range(200):
        params = ARCHITECTURES.decode([rng.random() for _ in ARCHITECTURES])
        known.append(Evaluated(params, float(list(params.values()).count("pool"))))
    counts = [
        list(searched(samples=1, seed=seed, known=known).ask().params.values()).count("pool")
        for seed in range(5)
    ]
    assert fmean(counts) > 3


# Quality


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("in_flight", [1, 10])
def test_it_is_far_better_than_random_search_on_architectures(in_flight):
    gains = []
    for seed in range(10):
        score = operations_in_pairs(seed)
        ours = best_found(searched(samples=200, seed=seed), score, in_flight)
        rng = random.Random(seed)
        gains.append(
            ours
            - best_found(RandomSearch(Problem(space=ARCHITECTURES, samples=200, rng=rng)), score)
        )
    assert sum(gain > 0 for gain in gains) >= 9
    assert fmean(gains) > 2
