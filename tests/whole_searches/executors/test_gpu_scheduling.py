"""Slots with fake GPUs, which a script announces and Spark assigns."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest

import experiment
from search.errors import InvalidArgument
from tests.spark_jobs import train_functions as functions

QUIET: dict[str, Any] = {"preload": (), "verbose": 0}


def print_gpu_variables(trial, trials):
    """Print a trial's environment variables for GPUs; end when all trials run at once."""
    import os
    import pathlib
    import time

    names = "CUDA_VISIBLE_DEVICES XLA_PYTHON_CLIENT_MEM_FRACTION TF_FORCE_GPU_ALLOW_GROWTH"
    print(*(os.environ.get(name) for name in names.split()), sep="|")
    folder = pathlib.Path(experiment.logdir())
    (folder / "there").touch()
    give_up = time.monotonic() + 300
    while len(list(folder.parent.glob("*/there"))) < trials:
        if time.monotonic() > give_up:
            raise TimeoutError("the others did not come")
        time.sleep(0.01)
    return trial


def run_at_once(spark, trials: int, **settings: Any) -> list[list[str]]:
    """Run some trials at once; return, sorted, the variables that each printed."""
    space = {"trial": range(trials), "trials": [trials]}
    result = experiment.launch(spark, print_gpu_variables, space, **settings, **QUIET)
    logs = [Path(trial.logdir, "stdout.log").read_text() for trial in result.trials]
    return sorted(log.strip().split("|") for log in logs)


@pytest.mark.parametrize("isolation", ["process", "spawn", "none"])
def test_four_trials_share_a_gpu_and_its_memory(one_executor, logdir, isolation):
    words = (
        "GPUs for 8 trials at once, but runs only 4: .* 1 core and 0.25 GPU, and .* cores are 4;"
    )
    with pytest.warns(UserWarning, match=words):
        shares = run_at_once(one_executor, 4, logdir=logdir, trials_per_gpu=4, isolation=isolation)
    assert shares in ([["3", "0.2250", "true"]] * 4, [["5", "0.2250", "true"]] * 4)


@pytest.mark.parametrize("isolation", ["process", "none"])
def test_two_concurrent_trials_have_a_gpu_each(one_executor, logdir, isolation):
    shares = run_at_once(one_executor, 2, logdir=logdir, gpus_per_trial=1, isolation=isolation)
    assert shares == [["3", "None", "true"], ["5", "None", "true"]]


def test_each_worker_of_a_trial_has_a_gpu_of_its_own(one_executor, logdir):
    def train(trial):
        experiment.barrier()
        print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ["LOCAL_RANK"])
        return trial

    result = experiment.launch(
        one_executor,
        train,
        {"trial": [1, 2]},
        gpus_per_trial=1,
        workers_per_trial=2,
        logdir=logdir,
        **QUIET,
    )
    for trial in result.trials:
        assert trial.status == "finished"
        folders = Path(trial.logdir), Path(trial.logdir, "workers", "1")
        seen = [(folder / "stdout.log").read_text().split() for folder in folders]
        assert sorted(seen) == [["3", "0"], ["5", "0"]]


def test_more_workers_than_gpus_are_refused_before_any_job(one_executor, logdir):
    jobs = one_executor.sparkContext.statusTracker().getJobIdsForGroup(None)
    with pytest.raises(InvalidArgument, match="workers_per_trial: expected at most 1"):
        experiment.launch(
            one_executor,
            functions.double,
            {"x": [1]},
            gpus_per_trial=2,
            workers_per_trial=2,
            logdir=logdir,
            **QUIET,
        )
    assert one_executor.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs


def test_a_trial_may_have_both_gpus_or_none(one_executor, logdir):
    for gpus, seen in ((2, "3,5"), (0, "")):
        shares = run_at_once(one_executor, 1, logdir=logdir, gpus_per_trial=gpus)
        assert shares == [[seen, "None", "true"]]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"gpus_per_trial": 3}, "gpus_per_trial: expected at most 2, the GPUs of an executor"),
        ({"gpus_per_trial": 2, "trials_per_gpu": 2}, "trials_per_gpu: expected 1 with gpus_per"),
    ],
)
def test_an_impossible_profile_is_refused_before_any_job(one_executor, logdir, asked, words):
    jobs = one_executor.sparkContext.statusTracker().getJobIdsForGroup(None)
    with pytest.raises(InvalidArgument, match=words):
        experiment.launch(
            one_executor, functions.double, {"x": [1]}, logdir=logdir, **asked, **QUIET
        )
    assert one_executor.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs
    assert not os.path.exists(logdir)


@pytest.mark.parametrize("asked", [{"gpus_per_trial": 1}, {"trials_per_gpu": 2}])
def test_local_mode_is_refused_at_once(spark, logdir, asked):
    with pytest.raises(InvalidArgument, match="expected .* with the master local.2., got"):
        experiment.launch(spark, functions.double, {"x": [1]}, logdir=logdir, **asked, **QUIET)


def test_local_mode_with_gpu_settings_is_refused_at_once(sparks, logdir):
    amounts = {f"spark.{whose}.resource.gpu.amount": "1" for whose in ("task", "executor")}
    spark = sparks.get("local[2]", **amounts)
    with pytest.raises(InvalidArgument, match=r"^spark\.task\.resource\.gpu\.amount: .*for ever"):
        experiment.launch(spark, functions.double, {"x": [1]}, logdir=logdir, **QUIET)


def run_on_both_hosts(spark, **settings: Any) -> list[list[str]]:
    """Run a trial on each host, whose executors have one core and two GPUs."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", r"an executor has GPUs for \d trials at once, but runs only 1:"
        )
        return run_at_once(spark, 2, **settings)


@pytest.mark.slow
def test_trials_on_two_hosts_have_the_gpus_of_their_host(sparks, standalone, logdir):
    gpus = {"spark.executor.resource.gpu.amount": "2"}
    spark = sparks.get(standalone.master, **standalone.settings(), **gpus)
    first, second = run_on_both_hosts(spark, logdir=logdir, gpus_per_trial=1)
    assert first[0] in ("20", "21")
    assert second[0] in ("30", "31")
    first, second = run_on_both_hosts(spark, logdir=logdir, gpus_per_trial=2)
    assert (first[0], second[0]) == ("20,21", "30,31")


@pytest.mark.slow
def test_dynamic_allocation_starts_executors_for_the_profile(sparks, standalone, logdir):
    dynamic = {
        "enabled": "true",
        "shuffleTracking.enabled": "true",
        "initialExecutors": "0",
        "maxExecutors": "2",
    }
    settings = standalone.settings() | {"spark.executor.resource.gpu.amount": "2"}
    settings |= {f"spark.dynamicAllocation.{name}": value for name, value in dynamic.items()}
    del settings["spark.executor.instances"]
    spark = sparks.get(standalone.master, **settings)
    first, second = run_on_both_hosts(spark, logdir=logdir, trials_per_gpu=2)
    assert (first[0][0], second[0][0]) == ("2", "3")
    assert first[1] == second[1] == "0.4500"
