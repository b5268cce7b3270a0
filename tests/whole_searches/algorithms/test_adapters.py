"""Searches by other libraries' algorithms on a real local Spark."""

from __future__ import annotations

import json
from pathlib import Path

import deap.cma
import optuna
import pytest

import experiment
from spark_jobs.run_folder.paths import RunPaths

BOUNDS = {"x": [-5.0, 5.0], "y": [-5.0, 5.0], "epochs": [1, 9], "kind": ["plain", "odd"]}

# The warning comes from pycma in Nevergrad's CMA, also without us.
pytestmark = pytest.mark.filterwarnings("ignore:.*orphanated injected solution")


def bowl(x, y, epochs, kind):
    if kind == "odd" and x < -4:
        raise ValueError("no")
    return -((x - 1) ** 2) - (y + 2) ** 2 - 1 / epochs


def cma_es(dimensions):
    return deap.cma.Strategy(centroid=[0.5] * dimensions, sigma=0.3)


@pytest.mark.parametrize(
    ("make", "type_name"),
    [
        (
            lambda: experiment.OptunaSearcher(optuna.samplers.TPESampler(n_startup_trials=4)),
            "optuna",
        ),
        (lambda: experiment.NevergradSearcher("CMA", num_workers=2), "nevergrad"),
        (lambda: experiment.DeapSearcher(cma_es), "deap"),
        (lambda: experiment.DehbSearcher("epochs"), "dehb"),
    ],
    ids=["TPE of Optuna", "CMA of Nevergrad", "CMA-ES of DEAP", "DEHB"],
)
def test_a_search_runs_and_is_resumed(spark, logdir, make, type_name):
    def search(**settings):
        return experiment.run(
            spark, bowl, BOUNDS, searcher=make(), parallelism=2, isolation="none", **settings
        )

    begun = search(samples=12, logdir=logdir)
    assert [trial.id for trial in begun.trials] == list(range(12))
    assert {trial.status for trial in begun.trials} <= {"finished", "failed"}
    manifest = json.loads(RunPaths(Path(begun.logdir)).manifest.read_text())
    assert manifest["algorithm"] == {**make().to_json(), "samples": 12}
    assert manifest["algorithm"]["type"] == type_name

    resumed = search(samples=16, resume=begun)
    assert len(resumed.trials) == 16
    before = [(trial.params, trial.value) for trial in begun.trials]
    assert [(trial.params, trial.value) for trial in resumed.trials[:12]] == before


def test_nevergrads_workers_are_the_slots_of_the_first_call(spark, logdir):
    def search(samples, **settings):
        searcher = experiment.NevergradSearcher("CMA")
        return experiment.run(
            spark,
            bowl,
            BOUNDS,
            searcher=searcher,
            samples=samples,
            isolation="none",
            **settings,
        )

    begun = search(6, parallelism=3, logdir=logdir)
    manifest = json.loads(RunPaths(Path(begun.logdir)).manifest.read_text())
    assert manifest["slots"] == 3
    assert search(8, parallelism=1, resume=begun).trials[:6] == begun.trials


def test_an_exhausted_sampler_ends_the_search_with_all_trials(spark, logdir):
    sampler = optuna.samplers.GridSampler({"a": [1, 2], "b": [0.5, 1.5]})
    result = experiment.run(
        spark,
        lambda a, b: a * b,
        {"a": [1, 3], "b": [0.0, 2.0]},
        searcher=experiment.OptunaSearcher(sampler),
        samples=30,
        parallelism=1,
        logdir=logdir,
        isolation="none",
    )
    assert sorted((trial.params["a"], trial.params["b"]) for trial in result.trials) == [
        (1, 0.5),
        (1, 1.5),
        (2, 0.5),
        (2, 1.5),
    ]
    assert result.total == 4
    assert result.best.value == 3.0


def reporting(x):
    import time

    experiment.report(score=x)
    while x < 0:  # until a stop request
        experiment.report(score=x)
        time.sleep(0.005)
    return {"score": x}


def test_an_optuna_pruner_stops_trials_and_a_resumed_search_repeats_them(spark, logdir):
    def search(samples, **settings):
        searcher = experiment.OptunaSearcher(
            optuna.samplers.TPESampler(n_startup_trials=3), optuna.pruners.ThresholdPruner(lower=0)
        )
        return experiment.run(
            spark,
            reporting,
            {"x": [-1.0, 1.0]},
            searcher=searcher,
            samples=samples,
            parallelism=1,
            optimization_key="score",
            isolation="none",
            **settings,
        )

    begun = search(8, seed=1, logdir=logdir)
    assert {trial.status for trial in begun.trials} == {"finished", "stopped"}
    for trial in begun.trials:
        assert trial.status == ("stopped" if trial.params["x"] < 0 else "finished")
        assert trial.value == trial.params["x"]
        assert trial.reason.endswith("ThresholdPruner has pruned it" if trial.value < 0 else "")
    assert search(10, resume=begun).trials[:8] == begun.trials


def test_optuna_with_several_objectives_has_a_front(spark, logdir):
    def both(x, y):
        return {"near": -(x**2) - y**2, "left": x}

    result = experiment.run(
        spark,
        both,
        {"x": [-1.0, 1.0], "y": [-1.0, 1.0]},
        direction={"near": "max", "left": "min"},
        searcher=experiment.OptunaSearcher(optuna.samplers.NSGAIISampler(population_size=4)),
        samples=12,
        parallelism=2,
        isolation="none",
        logdir=logdir,
    )
    assert len(result.trials) == 12
    assert result.front == experiment.load(result.logdir).front != []
