import math
import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.direction import Direction
from search.importance import _of_choices, importance
from search.random_search import RandomSearch
from search.searcher import Problem, drive
from search.space.spaces import Choice, Float, Integer, Space
from search.trial import Outcome

MIXED = Space(
    {
        "rate": Float(1e-5, 1e-1, log=True),
        "units": Integer(8, 512, log=True),
        "layers": Integer(1, 5),
        "dropout": Float(0.0, 0.9, step=0.1),
        "optimizer": Choice(["adam", "sgd", "lion"]),
        "size": Choice(["s", "m", "l", "xl"], ordered=True),
    }
)
CONDITIONAL = Space(
    {
        "optimizer": Choice(["adam", "sgd"]),
        "rate": Float(1e-4, 1e-1, log=True),
        "momentum": Float(0.5, 0.99, when={"optimizer": "sgd"}),
        "nesterov": Choice([True, False], when={"optimizer": "sgd"}),
    }
)
PLAIN = Space({"x": Float(-5.0, 5.0), "y": Float(-5.0, 5.0), "z": Float(-5.0, 5.0)})


def mixed(p):
    return -abs(math.log10(p["rate"]) + 3) - 0.1 * p["layers"] + (p["optimizer"] == "adam")


def conditional(p):
    return p.get("momentum", 0.7) * 3 - abs(math.log10(p["rate"]) + 2) * 0.2


def sphere(p):
    return p["x"] ** 2 + 0.2 * p["y"] ** 2


def searched(space, score, samples, seed):
    """Return hyperparameters and value of the trials of a random search."""
    asked = {}

    def evaluate(trial):
        asked[trial.id] = dict(trial.params)
        return Outcome(trial.id, "finished", score(trial.params))

    searcher = RandomSearch(Problem(space=space, samples=samples, rng=random.Random(seed)))
    return [(asked[outcome.trial], outcome.value) for outcome in drive(searcher, evaluate)]


STUDIES = [
    (MIXED, mixed, Direction.MAX, 200, 1),
    (MIXED, mixed, Direction.MAX, 40, 2),
    (CONDITIONAL, conditional, Direction.MAX, 300, 3),
    (PLAIN, sphere, Direction.MIN, 100, 4),
    (PLAIN, lambda p: round(sphere(p)), Direction.MIN, 60, 5),  # many equal values
]


@pytest.mark.parametrize(("space", "score", "direction", "samples", "seed"), STUDIES)
def test_the_importance_is_that_of_optuna(space, score, direction, samples, seed):
    optuna = pytest.importorskip("optuna")
    trials = searched(space, score, samples, seed)
    found = importance(trials, direction, space)
    theirs = optuna_importance(optuna, space, trials, direction)
    assert found == pytest.approx({name: theirs[name] for name in found}, abs=0.001)
    assert list(found) == sorted(found, key=lambda name: -found[name])


def optuna_importance(optuna, space, trials, direction):
    kinds = optuna.distributions

    def distribution(domain):
        if isinstance(domain, Choice):
            if domain.ordered:
                return kinds.IntDistribution(0, len(domain.values) - 1)
            return kinds.CategoricalDistribution(domain.values)
        kind = kinds.FloatDistribution if isinstance(domain, Float) else kinds.IntDistribution
        return kind(domain.low, domain.high, log=domain.log, step=domain.step)

    def value(domain, value):
        is_ordered = isinstance(domain, Choice) and domain.ordered
        return domain.index(value) if is_ordered else value

    study = optuna.create_study(direction=f"{direction.value}imize")
    for params, score in trials:
        study.add_trial(
            optuna.trial.create_trial(
                params={name: value(space[name], v) for name, v in params.items()},
                distributions={name: distribution(space[name]) for name in params},
                value=score,
            )
        )
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    return optuna.importance.get_param_importances(study, evaluator=evaluator)


def test_the_hyperparameter_that_matters_comes_first():
    trials = searched(PLAIN, lambda p: -abs(p["z"]), 100, 1)
    assert next(iter(importance(trials, Direction.MAX, PLAIN))) == "z"


def test_without_a_space_the_domains_are_those_of_the_values():
    points = [{"rate": 10.0**-n, "units": 2 * n, "kind": kind} for n in range(9) for kind in "ab"]
    trials = [(point, point["units"] + (point["kind"] == "a")) for point in points]
    found = importance(trials, Direction.MAX)
    assert set(found) == {"rate", "units", "kind"}
    assert found["units"] > found["kind"]


@pytest.mark.parametrize("domains", [None, {"seed": Choice([2**60, 2**62])}])
def test_integers_beyond_those_of_a_domain_have_an_importance(domains):
    trials = [({"seed": 2 ** (60 + 2 * (n % 2)), "units": n}, n % 2) for n in range(20)]
    found = importance(trials, Direction.MAX, domains)
    assert found["seed"] > found["units"]


def test_ranges_of_more_values_than_integers_of_a_domain_have_an_importance():
    trials = [({"seed": n * 2**55, "units": n % 2}, n) for n in range(20)]
    found = importance(trials, Direction.MAX, {"seed": Choice(range(2**60))})
    assert found["seed"] > found["units"]


@pytest.mark.parametrize(("high", "log"), [(1000.0, True), (999.0, False)])
def test_without_a_space_values_that_differ_a_thousandfold_have_a_log_scale(high, log):
    rates = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, high]
    trials = [({"rate": rate, "even": place % 2}, -rate) for place, rate in enumerate(rates)]
    found = importance(trials, Direction.MAX)
    domains = [{"rate": Float(1.0, high, log=scale)} for scale in (log, not log)]
    assert found == importance(trials, Direction.MAX, domains[0])
    assert found != importance(trials, Direction.MAX, domains[1])


@given(st.lists(st.integers(0, 100), min_size=2, max_size=50).filter(any))
def test_the_probability_of_a_choice_is_the_weighted_mean_of_kernels(counts):
    chosen = [place for place, count in enumerate(counts) if count]
    kernels = np.full((len(chosen) + 1, len(counts)), 1 / (len(chosen) + 1))  # the last: the prior
    kernels[range(len(chosen)), chosen] += 1
    kernels /= kernels.sum(axis=1, keepdims=True)
    weights = [*(counts[place] for place in chosen), 1]
    expected = np.average(kernels, axis=0, weights=weights)
    assert _of_choices(np.array(counts)) == pytest.approx(expected, rel=1e-12)


def test_another_text_in_each_trial_takes_memory_by_their_number_only():
    trials = [({"path": f"f{number}", "x": number}, number) for number in range(3_000)]
    tracemalloc.start()
    try:
        importance(trials, Direction.MAX)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000 * len(trials)


@pytest.mark.parametrize(
    "trials", [[], [({"x": 1.0, "y": 2.0}, 0.5)], [({"x": 1.0, "y": 2}, 1)] * 9]
)
def test_trials_without_differences_have_hyperparameters_of_equal_importance(trials):
    found = importance(trials, Direction.MAX)
    assert len(set(found.values())) <= 1
    assert sum(found.values()) == pytest.approx(1 if trials else 0)


@given(
    st.lists(st.floats(-1e308, 1e308), min_size=2, max_size=30),
    st.integers(0, 2**32),
    st.sampled_from([MIXED, CONDITIONAL, PLAIN, Space({"x": Float(-1e308, 1e308)})]),
)
def test_shares_add_up_to_one(values, seed, space):
    rng = random.Random(seed)
    trials = [(space.decode([rng.random() for _ in space]), value) for value in values]
    found = importance(trials, Direction.MIN, space)
    assert set(found) == set(space)
    assert sum(found.values()) == pytest.approx(1)
    assert all(share >= 0 for share in found.values())
