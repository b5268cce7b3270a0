"""`experiment.run` with the searchers that have no call of their own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import experiment
from spark_jobs.run_folder.paths import RunPaths

SPACE = {
    "first": ["identity", "conv", "pool"],
    "second": ["identity", "conv", "pool"],
    "units": [8, 64],
    "rate": experiment.Float(0.1, 0.5, when={"second": "pool"}),
}
SEARCHERS = {
    "regularized evolution": experiment.RegularizedEvolution(popsize=4, tournament=2),
    "reinforce": experiment.Reinforce(learning_rate=0.1, bins=4),
}
OTHERS = {
    "regularized evolution": (experiment.RegularizedEvolution(popsize=5, tournament=2), "popsize"),
    "reinforce": (experiment.Reinforce(learning_rate=0.1, bins=5), "bins"),
}
QUIET = {"preload": (), "isolation": "none", "verbose": 0}


def train(first, second, units, rate=0.0):
    if first == "pool":
        raise ValueError("nothing is left")
    return (first == "conv") + (second == "pool") + units / 64 - rate


def trials_of(result):
    return [(trial.params, trial.status, trial.value) for trial in result.trials]


@pytest.mark.parametrize("kind", SEARCHERS)
def test_a_space_is_searched_with_two_trials_at_once(spark, logdir, kind):
    points = [{"first": "identity", "second": "pool", "units": 9, "rate": 0.3}]
    result = experiment.run(
        spark,
        train,
        SPACE,
        searcher=SEARCHERS[kind],
        samples=16,
        points=points,
        parallelism=2,
        logdir=logdir,
        **QUIET,
    )
    assert [trial.id for trial in result.trials] == list(range(16))
    assert result.trials[0].params == points[0]
    assert len({repr(trial.params) for trial in result.trials}) == 16
    for trial in result.trials:
        assert ("rate" in trial.params) == (trial.params["second"] == "pool")
        assert trial.status == ("failed" if trial.params["first"] == "pool" else "finished")
    values = [trial.value for trial in result.trials if trial.status == "finished"]
    assert result.best.value == max(values)
    manifest = json.loads(RunPaths(Path(result.logdir)).manifest.read_text())
    assert manifest["call"] == "run"
    written = SEARCHERS[kind].to_json()
    assert manifest["algorithm"] == {**written, "samples": 16, "points": points}
    assert trials_of(experiment.load(result.logdir)) == trials_of(result)


@pytest.mark.parametrize("kind", SEARCHERS)
def test_a_run_is_resumed_with_the_same_trials(spark, logdir, kind):
    def search(samples, searcher=SEARCHERS[kind], **settings):
        settings = {"parallelism": 1, **QUIET, **settings}
        return experiment.run(spark, train, SPACE, searcher=searcher, samples=samples, **settings)

    uncut = search(14, seed=3, logdir=logdir)
    begun = search(8, seed=3, logdir=logdir)
    assert trials_of(begun) == trials_of(uncut)[:8]
    other, name = OTHERS[kind]
    with pytest.raises(experiment.InvalidArgument, match=f"{name} was 4, is 5"):
        search(14, other, resume=begun)
    resumed = search(14, resume=begun)
    assert resumed.logdir == begun.logdir
    assert trials_of(resumed) == trials_of(uncut)


@pytest.mark.parametrize(
    "searcher",
    [
        experiment.RegularizedEvolution,
        experiment.Reinforce,
        "reinforce",
        None,
        SEARCHERS["reinforce"].start,
    ],
)
def test_only_an_algorithm_is_accepted_as_searcher(searcher):
    with pytest.raises(experiment.InvalidArgument) as caught:
        experiment.run(None, train, SPACE, searcher=searcher, samples=3)
    assert caught.value.name == "searcher"
    assert "a search algorithm, such as experiment.RegularizedEvolution()" in str(caught.value)


@pytest.mark.parametrize("kind", SEARCHERS)
def test_the_number_of_trials_is_required(kind):
    with pytest.raises(experiment.InvalidArgument, match="^samples: expected an integer of at"):
        experiment.run(None, train, SPACE, searcher=SEARCHERS[kind])


@pytest.mark.parametrize(
    ("space", "name"),
    [([1], "space"), ({}, "space"), ({"x": []}, "space['x']"), ({"": [0, 1]}, "space")],
)
def test_a_bad_space_is_refused_by_the_arguments_name(space, name):
    with pytest.raises(experiment.InvalidArgument) as caught:
        experiment.run(None, train, space, searcher=SEARCHERS["reinforce"], samples=3)
    assert caught.value.name == name


class Counting:
    """A searcher with any number of trials."""

    finished = True
    ask = tell = None

    def __init__(self, total):
        self.total = total


class Own:
    """A user's algorithm, with any settings and any searcher."""

    def __init__(self, settings, searcher=None):
        self.settings, self.searcher = settings, searcher

    def to_json(self):
        return self.settings

    def start(self, problem):
        return self.searcher or SEARCHERS["reinforce"].start(problem)


@pytest.mark.parametrize(
    ("searcher", "expected"),
    [
        (Own(None), "to_json"),
        (Own(["reinforce"]), "to_json"),
        (Own({"type": object()}), "to_json"),
        (Own({"type": "own", "sizes": {1, 2}}), "to_json"),
        (Own({"type": "own", "rate": float("nan")}), "to_json"),
        (Own({"type": "own"}, searcher="none"), "start"),
        (Own({"type": "own"}, searcher=Counting(np.int64(3))), "total"),
        (Own({"type": "own"}, searcher=Counting("3")), "total"),
    ],
)
def test_an_algorithm_that_breaks_the_protocol_is_refused_without_spark(searcher, expected):
    with pytest.raises(experiment.InvalidArgument, match=expected) as caught:
        experiment.run(None, train, SPACE, searcher=searcher, samples=3)
    assert caught.value.name == "searcher"


def test_a_run_is_resumed_if_json_changes_its_algorithms_settings(spark, logdir):
    def search(**settings):
        own = Own({"type": "own", "sizes": (1, 2), 3: "number"})
        return experiment.run(spark, train, SPACE, searcher=own, samples=2, **settings, **QUIET)

    assert len(search(resume=search(seed=3, logdir=logdir))) == 2
