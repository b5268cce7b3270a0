"""Executors in JVMs of their own: other interpreters, folders that they do not see, GPUs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import experiment
from spark_jobs.slot.config import SlotConfig
from tests.experiment.waiting import wait_until
from tests.servers.clusters import CLUSTER, MEMORY, gpu_settings
from tests.spark_jobs import train_functions as functions
from tests.whole_searches.executors.unshared_folder import check_executors_without_the_folder


def meet(folder, name):
    """Wait, in a trial, until two slots with different names have called this function."""
    (folder / f"slot-{name}").touch()
    wait_until(lambda: len(list(folder.glob("slot-*"))) == 2, seconds=200)


def test_trials_run_on_both_executors_with_this_interpreter(cluster, tmp_path, logdir):
    def train(x):
        import os

        meet(tmp_path, os.getppid())
        print(os.getppid())
        return x

    result = experiment.launch(cluster, train, {"x": range(8)}, logdir=logdir, preload=())
    assert [trial.value for trial in result.trials] == [float(x) for x in range(8)]
    zygotes = {Path(trial.logdir, "stdout.log").read_text() for trial in result.trials}
    assert len(zygotes) == 2


@pytest.mark.fault(13)
@pytest.mark.parametrize("isolation", ["process", "none"])
def test_hostile_and_large_return_values_fail_in_the_executor(cluster, tmp_path, isolation):
    mark = tmp_path / "executed"

    def train(what):
        class Hostile:
            def __reduce__(self):
                import pathlib

                return pathlib.Path.touch, (pathlib.Path(mark),)

        return {"hostile": Hostile(), "lambda": lambda: 0, "large": "x" * (1200 << 20)}[what]

    with pytest.raises(experiment.SearchFailed) as caught:
        experiment.launch(
            cluster,
            train,
            {"what": ["hostile", "lambda", "large"]},
            logdir=tmp_path,
            isolation=isolation,
            preload=(),
            parallelism=1,
        )
    trials = caught.value.result.trials
    assert [trial.error.kind for trial in trials] == ["invalid value"] * 3
    assert not mark.exists()


@pytest.mark.fault(2)
def test_a_trial_that_ends_its_process_harms_no_neighbour(cluster, logdir):
    def train(x):
        import os

        return x if x else os._exit(17)

    result = experiment.launch(cluster, train, {"x": range(6)}, logdir=logdir, preload=())
    assert [trial.status for trial in result.trials] == ["failed", *["finished"] * 5]
    assert str(result.trials[0].error) == "exit 17 before it returned"


def test_a_folder_that_executors_do_not_see_is_one_sentence(cluster, tmp_path, monkeypatch):
    # The executors get another path, which is missing as on a host with its own disk.
    monkeypatch.setattr(
        "experiment.driver.jobs.slot_jobs.SlotConfig",
        lambda *, root, **rest: SlotConfig(root=f"{root}-elsewhere", **rest),
    )
    with pytest.raises(experiment.SearchFailed) as caught:
        experiment.launch(
            cluster, functions.double, {"x": [1]}, logdir=tmp_path / "runs", preload=()
        )
    message = str(caught.value)
    assert "does not see the folder" in message
    assert str(tmp_path / "runs") in message
    assert message.endswith("give logdir a shared folder or hdfs://...")


@pytest.mark.slow
def test_executors_that_do_not_see_the_handed_over_files_are_reported(
    cluster, tmp_path, monkeypatch
):
    check_executors_without_the_folder(cluster, tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory):
    """An interpreter without msgspec, which slots need.

    Slots on the driver's host also import from the driver's folders, so it is hidden there.
    """
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = folder.glob("lib/python3*/site-packages")
    (packages / "hidden.pth").write_text("import sys; sys.modules['msgspec'] = None\n")
    return str(folder / "bin" / "python")


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.fault(46)
def test_a_missing_package_on_an_executor_is_one_sentence_with_the_host(
    sparks, logdir, bare_python, monkeypatch
):
    spark = sparks.get(CLUSTER, **MEMORY, **{"spark.pyspark.python": bare_python})
    monkeypatch.setattr(spark.sparkContext, "pythonExec", bare_python)
    with pytest.raises(experiment.SearchFailed) as caught:
        experiment.launch(spark, functions.double, {"x": [1]}, logdir=logdir, preload=())
    message = str(caught.value)
    assert "no module named" in message
    assert "host " in message
    assert len(message.splitlines()) == 1
    assert caught.value.result.trials == []


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.fault(46)
def test_a_missing_python_is_one_sentence(sparks, logdir, monkeypatch):
    spark = sparks.get(CLUSTER, **MEMORY, **{"spark.pyspark.python": "/no/such/python"})
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/such/python")
    with pytest.raises(experiment.SearchFailed, match="/no/such/python") as caught:
        experiment.launch(spark, functions.double, {"x": [1]}, logdir=logdir, preload=())
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.slow
@pytest.mark.contract
def test_each_trial_sees_the_gpu_that_spark_assigned_to_its_slot(sparks, tmp_path):
    settings = gpu_settings(tmp_path, '["3", "5"]')
    spark = sparks.get("local-cluster[1,2,1024]", **MEMORY, **settings)

    def train(x):
        import os

        meet(tmp_path, os.environ["CUDA_VISIBLE_DEVICES"])
        return int(os.environ["CUDA_VISIBLE_DEVICES"])

    result = experiment.launch(spark, train, {"x": range(6)}, logdir=tmp_path, preload=())
    assert {trial.value for trial in result.trials} == {3.0, 5.0}


def test_cuda_visible_devices_is_not_changed_without_gpus_in_spark(cluster, logdir):
    result = experiment.launch(
        cluster, functions.visible_devices, {"x": [1]}, logdir=logdir, preload=()
    )
    assert result.best.value == -7.0
