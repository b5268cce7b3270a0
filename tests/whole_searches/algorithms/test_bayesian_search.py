"""Bayesian search, and one search per group, on a real local Spark."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from pathlib import Path

import pytest

import experiment
from search.errors import InvalidArgument
from tests.spark_jobs.trial.events.reading import table_config

QUIET = {"preload": (), "isolation": "none", "verbose": 0}
BOUNDS = {"x": [0.0, 1.0], "kind": ["a", "b", "c"], "rate": [0.1, 0.0001]}
REGIONS = {
    "eu": {"x": [0.0, 1.0], "rate": [0.1, 0.001]},
    "us": {"x": [0.0, 2.0], "rate": [0.1, 0.001]},
}


def loss(x, kind, rate):
    if kind == "c":
        raise ValueError("no such kind")
    return (x - 0.3) ** 2 + (0.2 if kind == "a" else 0.0) + abs(math.log10(rate) + 2) / 10


def regional(group, x, rate):
    target = {"eu": 0.2, "us": 1.5}[group]
    return {"loss": (x - target) ** 2 + abs(math.log10(rate) + 2) / 10}


def failing_in_the_us(group, x, rate):
    if group == "us":
        raise ValueError("no data")
    return x * rate


def error_and_cost(x, kind, rate):
    if kind == "c":
        raise ValueError("no such kind")
    error = (x - 1) ** 2 + (math.log10(rate) + 2) ** 2 + (0.2 if kind == "a" else 0.0)
    return {"error": error, "cost": x}


def regional_error_and_cost(group, x, rate):
    return {"error": regional(group, x, rate)["loss"], "cost": x}


def params_of(result):
    return [trial.params for trial in result.trials]


def test_a_bayesian_search_finds_the_best_despite_failed_trials(spark, tmp_path):
    result = experiment.bayesian_search(
        spark, loss, BOUNDS, "min", samples=24, parallelism=2, seed=1, logdir=tmp_path, **QUIET
    )
    assert len(result) == result.total == 24
    assert result.best.value < 0.05
    assert result.best.params["kind"] == "b"
    assert 1 <= len(result.failed) <= 8
    again = experiment.load(result)
    assert params_of(again) == params_of(result)


def test_a_bayesian_search_is_resumed_with_its_trials(spark, tmp_path):
    first = experiment.bayesian_search(
        spark, loss, BOUNDS, "min", samples=12, parallelism=2, logdir=tmp_path, **QUIET
    )
    more = experiment.bayesian_search(
        spark, loss, BOUNDS, "min", samples=16, parallelism=2, resume=first, **QUIET
    )
    assert params_of(more)[:12] == params_of(first)
    assert [trial.seconds for trial in more.trials[:12]] == [t.seconds for t in first.trials]
    assert len(more) == 16
    with pytest.raises(InvalidArgument, match="noisy"):
        experiment.bayesian_search(
            spark, loss, BOUNDS, "min", samples=16, noisy=True, resume=first, **QUIET
        )


def test_a_front_is_found_despite_failed_trials_and_resumed(spark, tmp_path):
    goal = {"error": "min", "cost": "min"}
    given = {"parallelism": 2, "seed": 1, "logdir": tmp_path, **QUIET}
    first = experiment.bayesian_search(spark, error_and_cost, BOUNDS, goal, samples=16, **given)
    given["resume"] = first
    more = experiment.bayesian_search(spark, error_and_cost, BOUNDS, goal, samples=24, **given)
    assert params_of(more)[:16] == params_of(first)
    assert len(more) == more.total == 24
    assert len(more.front) >= 4
    assert more.by("error").best.value < 0.5  # at x = 0.2 it is at least 0.64
    assert more.by("cost").best.value < 0.2


def test_the_groups_of_a_search_have_fronts_without_a_searcher(spark, tmp_path):
    each = experiment.search_each(
        spark,
        regional_error_and_cost,
        REGIONS,
        {"error": "min", "cost": "min"},
        samples=10,
        logdir=tmp_path,
        **QUIET,
    )
    assert [len(result) for result in each.values()] == [10, 10]
    assert all(len(result.front) >= 2 for result in each.values())


@pytest.mark.slow
@pytest.mark.contract
def test_each_group_is_searched_in_one_run(spark, tmp_path):
    results = experiment.search_each(
        spark, regional, REGIONS, "min", samples=14, parallelism=2, seed=3, logdir=tmp_path, **QUIET
    )
    assert list(results) == ["eu", "us"]
    assert {result.logdir for result in results.values()} == {results.logdir}
    assert [len(result) for result in results.values()] == [14, 14]
    assert [result.total for result in results.values()] == [14, 14]
    assert results["eu"].best.params["x"] == pytest.approx(0.2, abs=0.15)
    assert results["us"].best.params["x"] == pytest.approx(1.5, abs=0.3)
    assert max(trial.params["x"] for trial in results["eu"].trials) <= 1.0
    assert results["us"].space["x"] == experiment.Float(0.0, 2.0)
    assert len(results.overall) == 28
    assert list(results.overall.space) == ["group", "x", "rate"]

    loaded = experiment.load(results)
    assert loaded.total == 28
    assert {group: params_of(one) for group, one in loaded.split("group").items()} == {
        group: params_of(one) for group, one in results.items()
    }
    for overall in (loaded, results.overall):
        assert overall.split("group")["us"].space == results["us"].space
    config = table_config(Path(results.logdir, "search"))
    assert [info.name for info in config.hparam_infos] == ["group", "x", "rate"]


def test_a_search_of_groups_is_resumed_with_its_trials(spark, tmp_path):
    common = {"by": "group", "parallelism": 2, "resume": None, "logdir": tmp_path} | QUIET
    first = experiment.search_each(spark, regional, REGIONS, "min", samples=10, **common)
    more = experiment.search_each(
        spark, regional, REGIONS, "min", samples=12, **common | {"resume": first}
    )
    for group in REGIONS:
        assert params_of(more[group])[:10] == params_of(first[group])
        assert len(more[group]) == 12
    other = REGIONS | {"us": {"x": [0.0, 3.0], "rate": [0.1, 0.001]}}
    with pytest.raises(InvalidArgument, match="space of 'x'"):
        experiment.search_each(
            spark, regional, other, "min", samples=12, **common | {"resume": first}
        )


def test_groups_begin_with_their_points_and_prior_observations(spark, tmp_path):
    settings = {"parallelism": 1, "seed": 1, "logdir": tmp_path} | QUIET
    points = [{"group": "us", "x": 1.5, "rate": 0.01}]
    first = experiment.search_each(
        spark, regional, REGIONS, "min", samples=9, points=points, **settings
    )
    assert first["us"].trials[0].params == points[0]
    known = [trial.params for trial in first.overall.trials]
    later = experiment.search_each(
        spark, regional, REGIONS, "min", samples=3, warm_start=first, **settings
    )
    assert [len(result) for result in later.values()] == [3, 3]
    assert all(trial.params not in known for trial in later.overall.trials)
    for group in REGIONS:  # no second initial design: all are near the best
        assert max(trial.value for trial in later[group].trials) < 0.3


def test_a_group_at_its_target_leaves_the_slots_to_the_others(spark, tmp_path):
    points = [{"group": "eu", "x": 0.2, "rate": 0.01}]
    results = experiment.search_each(
        spark,
        regional,
        REGIONS,
        "min",
        samples=9,
        points=points,
        target=1e-9,
        parallelism=1,
        logdir=tmp_path,
        **QUIET,
    )
    assert [len(result) for result in results.values()] == [1, 9]
    assert results["eu"].target_reached
    assert not results["us"].target_reached


def test_a_failed_group_does_not_end_the_others(spark, tmp_path):
    settings = {"logdir": tmp_path, "parallelism": 2} | QUIET
    results = experiment.search_each(
        spark, failing_in_the_us, REGIONS, samples=9, max_failures=2, **settings
    )
    assert len(results["eu"]) == 9
    assert results["eu"].problem is None
    assert 3 <= len(results["us"]) <= 4  # one was in flight when the third failed
    assert results["us"].best is None
    assert "more than max_failures=2" in results["us"].problem
    assert results.problem is None
    assert "more than max_failures=2" in repr(results)
    assert "max_failures" in results._repr_html_()


def test_a_search_fails_if_every_group_fails(spark, tmp_path):
    bounds = {"us": REGIONS["us"]}
    with pytest.raises(experiment.SearchFailed, match="no data") as caught:
        experiment.search_each(
            spark, failing_in_the_us, bounds, max_failures=1, logdir=tmp_path, **QUIET
        )
    assert len(caught.value.result.failed) >= 2


def test_any_algorithm_searches_groups_in_the_background(spark, tmp_path):
    handle = experiment.submit(
        experiment.search_each,
        spark,
        lambda region, x, rate: x,
        REGIONS,
        searcher=experiment.RegularizedEvolution(popsize=4, tournament=2),
        samples=5,
        by="region",
        logdir=tmp_path,
        **QUIET,
    )
    results = handle.result(timeout=120)
    assert handle.status() == "finished"
    assert [len(result) for result in results.values()] == [5, 5]
    assert {trial.params["region"] for trial in results["us"].trials} == {"us"}


def test_the_command_line_shows_the_groups(spark, tmp_path):
    results = experiment.search_each(
        spark, regional, REGIONS, "min", samples=2, logdir=tmp_path, **QUIET
    )
    shown = subprocess.run(
        [sys.executable, "-m", "experiment", "show", results.logdir],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    assert "experiment.search_each" in shown
    assert "group" in shown
    assert "eu, us" in shown


def refused(function, *arguments, **keywords):
    with pytest.raises(InvalidArgument) as caught:
        function(None, *arguments, **keywords)
    return caught.value


def test_bad_input_is_refused_before_spark_is_used():
    search = experiment.search_each
    assert refused(search, regional, {}).name == "bounds"
    assert refused(search, regional, {"eu": {"group": [0, 1]}}).name == "bounds['eu']"
    assert refused(search, regional, REGIONS, samples=0).name == "samples"
    assert refused(search, regional, REGIONS, searcher="bayes").name == "searcher"
    searcher = experiment.BayesianOptimization()
    assert refused(search, regional, REGIONS, searcher=searcher).name == "samples"
    error = refused(search, lambda x, rate: x, REGIONS)
    assert (error.name, error.expected) == ("train", "a function that accepts 'group'")
    assert refused(experiment.bayesian_search, loss, BOUNDS, noisy=1).name == "noisy"
    assert refused(experiment.bayesian_search, loss, BOUNDS, samples=0).name == "samples"
    four = dict.fromkeys("abcd", "max")
    assert refused(experiment.bayesian_search, loss, BOUNDS, four).name == "direction"


@pytest.mark.parametrize("call", [experiment.bayesian_search, experiment.search_each])
def test_the_signature_shows_the_settings(call):
    assert "parallelism" in inspect.signature(call).parameters
