"""Searches of a space with conditions and a constraint, on a real local Spark."""

from __future__ import annotations

import json
import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import pytest
from matplotlib import pyplot
from tensorboard.plugins.hparams import metadata

import experiment
from experiment import Choice, Float, Integer
from search.space.spaces import Space
from tests.spark_jobs.trial.events.reading import histograms, hparams_data, table_config

BOUNDS = {
    "momentum": Float(0.0, 0.9, step=0.1, when={"optimizer": "sgd"}),
    "nesterov": Choice([True, False], when={"optimizer": "sgd", "momentum": [0.8, 0.9]}),
    "optimizer": ["adam", "sgd"],
    "units": Integer(16, 128, step=16),
    "batch": Choice([16, 32, 64], ordered=True),
    "region": Choice(["eu"]),
}
SEARCHES = {
    "random": (experiment.random_search, {"samples": 8}, {"samples": 12}),
    "by generation": (
        experiment.evolutionary_search,
        {"popsize": 4, "generations": 1, "generational": True},
        {"popsize": 4, "generations": 2, "generational": True},
    ),
    "without a barrier": (
        experiment.evolutionary_search,
        {"popsize": 4, "generations": 1, "generational": False},
        {"popsize": 4, "generations": 2, "generational": False},
    ),
}
QUIET = {"preload": (), "isolation": "none", "verbose": 0, "parallelism": 1}


def fits(p):
    return p["units"] * p["batch"] <= 2048


def train(optimizer, units, batch, region, momentum=None, nesterov=None):
    assert (momentum is None) == (optimizer == "adam")
    assert (nesterov is None) == (momentum not in (0.8, 0.9))
    assert units * batch <= 2048
    assert region == "eu"
    return {"accuracy": units / 1000 + (momentum or 0.5)}


@pytest.mark.parametrize("kind", SEARCHES)
def test_a_conditional_constrained_space_is_searched_shown_loaded_and_resumed(spark, logdir, kind):
    call, begun, longer = SEARCHES[kind]
    result = call(spark, train, BOUNDS, constraint=fits, logdir=logdir, seed=5, **begun, **QUIET)
    assert [trial.status for trial in result.trials] == ["finished"] * 8
    run = Path(result.logdir)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["space"]["momentum"]["when"] == {"optimizer": ["sgd"]}
    assert len(manifest["constraint"]) == 64

    config = table_config(run / "search")
    assert {info.name for info in config.hparam_infos} >= set(BOUNDS)
    assert not {i.name: i for i in config.hparam_infos}["region"].differs
    for trial in result.trials:
        started = hparams_data(Path(trial.logdir), metadata.SESSION_START_INFO_TAG)
        assert set(started.hparams) - {"generation"} == set(trial.params)
    if kind != "random":
        rows = {
            tag: sum(rows[:, 2].sum() for _, rows in points)
            for tag, points in histograms(run / "search").items()
        }
        assert rows["population/units"] == 8
        assert rows.get("population/momentum", 0) < 8

    loaded = experiment.load(run)
    assert loaded.trials == result.trials
    assert loaded.space == Space.of_bounds(BOUNDS)
    frame = loaded.to_pandas()
    for trial in result.trials:
        assert math.isnan(frame["momentum"][trial.id]) == ("momentum" not in trial.params)
    for plot in ("parallel", "convergence"):
        loaded.plot(plot).figure.canvas.draw()
        pyplot.close("all")
    assert "momentum" in loaded._repr_html_()

    resumed = call(spark, train, BOUNDS, constraint=fits, resume=run, **longer, **QUIET)
    assert resumed.trials[:8] == result.trials
    assert [trial.status for trial in resumed.trials] == ["finished"] * 12


def test_a_resumed_search_reports_its_changes(spark, logdir):
    shared = {"samples": 4, **QUIET}
    run = experiment.random_search(
        spark, train, BOUNDS, constraint=fits, logdir=logdir, seed=1, **shared
    )
    changed = BOUNDS | {"momentum": Float(0.0, 0.9, step=0.1, when={"optimizer": ["adam", "sgd"]})}
    with pytest.raises(
        experiment.InvalidArgument, match=r"space of 'momentum' was Float\(.*when={'optimizer': \['"
    ):
        experiment.random_search(spark, train, changed, constraint=fits, resume=run, **shared)
    with pytest.warns(UserWarning, match="the constraint has changed since .* was started"):
        again = experiment.random_search(
            spark,
            train,
            BOUNDS,
            constraint=lambda p: p["batch"] * p["units"] <= 2048,
            resume=run,
            **shared,
        )
    assert again.trials == run.trials


def test_a_grid_runs_the_allowed_configurations_and_is_resumed_with_its_constraint(spark, logdir):
    grid, units = {"batch": [16, 32, 64], "units": [2, 4]}, [32, 64, 64, 128, 128]

    def product(batch, units):
        return batch * units

    def allow(params):
        return params["batch"] * params["units"] < 200

    first = experiment.launch(spark, product, grid, constraint=allow, logdir=logdir, **QUIET)
    assert sorted(trial.value for trial in first.trials) == units
    again = experiment.launch(spark, product, grid, constraint=allow, resume=first, **QUIET)
    assert [trial.params for trial in again.trials] == [trial.params for trial in first.trials]
