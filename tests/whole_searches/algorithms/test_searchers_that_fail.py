"""Searches whose searcher or constraint fails while they run."""

from __future__ import annotations

import pytest

import experiment
from search.grid import PointSearch
from search.values import LARGEST_CONFIGURATION

LIGHT = {"preload": (), "isolation": "none", "verbose": 0}


class Fixed:
    """Proposes the given points, for any space."""

    def __init__(self, *points):
        self._points = points

    def start(self, problem):
        return PointSearch(self._points)

    def to_json(self):
        return {"type": "fixed"}


def square(x):
    return x**2


def test_the_largest_configuration_arrives_whole(spark, logdir):
    def train(x):
        return len(x)

    longest = LARGEST_CONFIGURATION - len('{"x":""}')
    grid = {"x": ["ü" * (longest // 2 - 20), "a" * (longest - 30)]}
    result = experiment.launch(spark, train, grid, logdir=logdir, verbose=0, preload=())
    assert [trial.value for trial in result.trials] == [longest // 2 - 20, longest - 30]
    assert experiment.load(result.logdir).best.params == {"x": grid["x"][1]}


def test_a_searcher_with_too_large_a_configuration_fails_only_its_search(spark, logdir):
    searcher = Fixed({"x": 1}, {"x": 2}, {"x": "a" * 2_000_000})
    with pytest.raises(experiment.SearchFailed) as caught:
        experiment.run(spark, square, {"x": [1, 9]}, searcher=searcher, logdir=logdir, **LIGHT)
    said = str(caught.value)
    assert said.startswith(
        "PointSearch.ask(): params['x'] of the trial: expected at most 1,000,000 "
    )
    assert "got 2,000,005 bytes; pass the path of a file" in said
    assert {trial.params["x"] for trial in caught.value.result.trials} <= {1, 2}
    assert experiment.launch(spark, square, {"x": [3]}, logdir=logdir, **LIGHT).best.value == 9


def test_a_constraint_that_raises_late_is_reported_with_the_configuration(spark, logdir):
    asked = []

    def constraint(params):
        asked.append(params)
        return len(asked) <= 20 or params["batch"] < 10

    with pytest.raises(experiment.SearchFailed) as caught:
        experiment.random_search(
            spark,
            square,
            {"x": [1.0, 9.0]},
            samples=50,
            constraint=constraint,
            logdir=logdir,
            **LIGHT,
        )
    said = f"constraint: expected True or False, got KeyError: 'batch', for {asked[-1]!r}"
    assert str(caught.value).startswith(said)
    assert caught.value.result.best is not None
