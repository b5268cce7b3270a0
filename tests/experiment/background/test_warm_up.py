"""Executors that are prepared for a search before it starts."""

from __future__ import annotations

import contextlib
import os

import psutil
import pytest

import experiment
from experiment.setup.function.imports import Preload
from experiment.setup.preparation import shared_import
from search.errors import ExperimentError, InvalidArgument
from spark_jobs.session import session_of
from spark_jobs.warm.asking import kept_commands, warm_here
from spark_jobs.zygote.shared_import import GUESSED, IMPORTER, kept
from tests.experiment.waiting import wait_until
from tests.whole_searches.executors.kept import QUIET, importer_of_trial, keepers


@pytest.fixture
def fresh(sparks):
    """A session whose executors have imported nothing."""
    sparks.stop()
    spark = sparks.get("local[2]", **{"spark.experiment.keep_warm": "302"})
    yield spark
    sparks.stop()


def importers():
    found = set()
    for pid in keepers():
        with contextlib.suppress(psutil.NoSuchProcess):  # of a session that has ended
            found |= {child.pid for child in psutil.Process(pid).children()}
    return found


def test_a_search_uses_what_was_imported_before(fresh, tmp_path):
    earlier = importers()
    experiment.warm_up(fresh, importer_of_trial, preload=["numpy"]).result(120)
    wait_until(lambda: importers() - earlier)
    begun = importers() - earlier
    context = fresh.sparkContext
    assert context.parallelize([0], 1).map(lambda _: kept()).collect() == [[("numpy",)]]
    result = experiment.launch(fresh, importer_of_trial, {"x": [1]}, logdir=tmp_path, **QUIET)
    assert {int(trial.value) for trial in result.trials} == begun


@pytest.mark.slow
@pytest.mark.contract
def test_a_worker_that_ran_slots_prepares_another_import(spark, tmp_path):
    experiment.launch(spark, importer_of_trial, {"x": [1]}, logdir=tmp_path, **QUIET)
    earlier = importers()
    experiment.warm_up(spark, preload=["json", "numpy"]).result(120)
    wait_until(lambda: importers() - earlier)


def test_a_search_on_jax_finds_its_backend_selected(fresh):
    experiment.warm_up(fresh, preload=["json"], strategy="jax").result(120)
    session = session_of(fresh)
    wanted = shared_import(Preload(required=("json",)), session.keep_warm(), experiment.Jax())
    asked = fresh.sparkContext.parallelize([0], 1).map(
        lambda _: [tuple(words) for words in kept_commands(warm_here(1.0), IMPORTER)]
    )
    wait_until(lambda: asked.collect() == [[(*wanted.modules, GUESSED)]])


def test_without_modules_this_package_is_imported(fresh):
    earlier = importers()
    experiment.warm_up(fresh, os.getpid, preload=()).result(120)
    wait_until(lambda: importers() - earlier)


def test_an_executor_that_cannot_run_trials_is_named(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nonexistent/python")
    monkeypatch.setenv("PYSPARK_PYTHON", "/nonexistent/python")
    with pytest.raises(ExperimentError, match="/nonexistent/python"):
        experiment.warm_up(spark, preload=["numpy"]).result(120)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "train: expected the train function of the search, got None; or set preload"),
        ({"train": 3}, "train: expected a function, got 3"),
        ({"preload": "numpy"}, "preload: expected a list of module names"),
        ({"preload": (), "parallelism": 0}, "parallelism: expected"),
        ({"preload": (), "gpus_per_trial": -1}, "gpus_per_trial: expected"),
        ({"preload": (), "strategy": "jaxx"}, "strategy: expected"),
        ({"preload": (), "spark": None}, "spark: expected a SparkSession, got None"),
    ],
)
def test_invalid_arguments_are_refused_before_any_job(spark, arguments, words):
    with pytest.raises(InvalidArgument) as raised:
        experiment.warm_up(**{"spark": spark, **arguments})
    assert words in str(raised.value)
