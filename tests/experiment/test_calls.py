"""The public calls: each builds the search of its arguments, and says it without running it."""

import inspect

import pytest

import experiment
from experiment.results.result import Result
from search.errors import InvalidArgument
from search.grid import GridSearch, PointSearch

BOUNDS = {"x": [0.1, 0.2]}


def train(x, group=None):
    raise AssertionError("nothing is run")


def test_a_grid_is_a_search_before_there_is_a_session():
    spec = experiment.launch.spec(None, train, {"x": [1, 2, 3]}, seed=3, max_failures=1)
    assert (spec.call, spec.train, spec.seed) == ("launch", train, 3)
    assert isinstance(spec.searcher, GridSearch)
    assert spec.searcher.total == 3
    assert spec.columns == dict(spec.space)
    assert (spec.settings.seed, spec.settings.max_failures) == (3, 1)


def test_points_are_a_search_without_a_space():
    spec = experiment.launch.spec(None, train, [{"x": 1}, {"x": 2}])
    assert isinstance(spec.searcher, PointSearch)
    assert (spec.space, list(spec.points)) == (None, [{"x": 1}, {"x": 2}])
    assert spec.algorithm == {"type": "points"}


def test_an_algorithm_gets_the_seed_that_the_search_keeps():
    specs = [
        experiment.random_search.spec(None, train, BOUNDS, samples=4, seed=seed)
        for seed in (7, 7, None)
    ]
    first, again, drawn = ([spec.searcher.ask().params for _ in range(4)] for spec in specs)
    assert first == again != drawn
    assert [spec.algorithm["samples"] for spec in specs] == [4, 4, 4]


def test_limits_of_groups_are_not_those_of_their_search():
    groups = {"a": BOUNDS, "b": BOUNDS}
    spec = experiment.search_each.spec(
        None,
        train,
        groups,
        searcher=experiment.RegularizedEvolution(),
        samples=4,
        max_failures=1,
        target=0.5,
    )
    assert (spec.settings.max_failures, spec.settings.target) == (None, None)
    results = spec.returned(Result([], spec.settings.goal, "/runs/each", total=8))
    assert isinstance(results, experiment.Results)
    assert {group: result.total for group, result in results.items()} == {"a": 4, "b": 4}


def test_bad_input_is_found_before_there_is_a_session():
    with pytest.raises(InvalidArgument, match="^parallelism: "):
        experiment.launch.spec(None, train, {"x": [1]}, parallelism=0)
    with pytest.raises(TypeError, match="paralellism"):
        experiment.launch.spec(None, train, {"x": [1]}, paralellism=2)


@pytest.mark.parametrize(
    ("call", "returned"), [(experiment.launch, "Result"), (experiment.search_each, "Results")]
)
def test_the_signature_shows_what_a_call_returns(call, returned):
    assert inspect.signature(call).return_annotation == returned
