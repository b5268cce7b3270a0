"""Searches of a session share the import of preloaded modules."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

import experiment
from experiment.diagnosis.driver_findings import size_of_function
from search.errors import InvalidArgument
from tests.conftest import marked_commands
from tests.experiment.waiting import alive, processes_in, wait_until
from tests.whole_searches.executors.kept import QUIET, importer_of_trial, keepers


def session_of(keeper):
    return psutil.Process(keeper).environ()["SPARK_LOCAL_DIRS"]


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("preload", [("numpy",), ()])
def test_the_second_search_of_a_session_imports_nothing(sparks, tmp_path, preload):
    spark = sparks.get("local[2]", **{"spark.experiment.keep_warm": "301"})
    settings = {**QUIET, "preload": preload, "logdir": tmp_path}
    importers = set()
    for _ in range(2):
        result = experiment.launch(spark, importer_of_trial, {"x": range(4)}, **settings)
        importers |= {int(trial.value) for trial in result.trials}
    assert len(importers) == 1
    keeper = psutil.Process(importers.pop()).ppid()
    # One: the workers had asked for it before they imported the rest, with the same result.
    assert [keeper] == [pid for pid in keepers() if session_of(pid) == session_of(keeper)]
    assert "spark_jobs.zygote.zygote" not in str(marked_commands())
    sparks.stop()
    wait_until(lambda: not alive([keeper]))


def imports_scipy(x):
    import scipy.special

    return float(scipy.special.expit(x))


def test_the_modules_that_a_function_imports_are_named_by_plan_doctor_and_manifest(spark, tmp_path):
    search = (experiment.launch, spark, imports_scipy, {"x": [0.0]})
    plan = experiment.plan(*search, logdir=tmp_path)
    assert plan.preload == ("scipy.special",)
    assert "  preload  scipy.special; once per executor" in str(plan)
    result = experiment.launch(*search[1:], logdir=tmp_path, verbose=0)
    manifest = json.loads(Path(result.logdir, "manifest.json").read_text())
    assert manifest["preload"] == ["scipy.special"]
    finding = size_of_function(imports_scipy, 1_000, [])
    assert finding.got.endswith("; preloads scipy.special")


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize(
    ("warm", "more"),
    [("0", {}), ("300", {"isolation": "spawn", "parallelism": 1})],
    ids=["turned off", "spawn"],
)
def test_each_slot_starts_its_zygote_where_nothing_is_shared(sparks, tmp_path, warm, more):
    spark = sparks.get("local[2]", **{"spark.experiment.keep_warm": warm})
    before = keepers()
    settings = {**QUIET, **more}
    result = experiment.launch(spark, importer_of_trial, {"x": [1]}, logdir=tmp_path, **settings)
    slot = psutil.Process(int(result.trials[0].value))
    assert "pyspark" in " ".join(slot.cmdline())
    assert set(keepers()) <= set(before)  # those of a session that has ended may end meanwhile


@pytest.mark.parametrize("value", ["-1", "inf", "nan", "a minute"])
def test_a_time_that_is_none_is_refused_before_any_job(spark, tmp_path, value):
    spark.conf.set("spark.experiment.keep_warm", value)
    try:
        with pytest.raises(InvalidArgument, match=r"spark\.experiment\.keep_warm: expected a num"):
            experiment.launch(spark, importer_of_trial, {"x": [1]}, logdir=tmp_path, **QUIET)
    finally:
        spark.conf.unset("spark.experiment.keep_warm")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.fault(8)
def test_a_killed_executor_leaves_neither_keeper_nor_trial(cluster, tmp_path):
    def train(x):
        import os
        import pathlib
        import subprocess
        import time

        folder = pathlib.Path(tmp_path)
        if not (folder / "enough").exists():
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    (folder / f"pid-{os.getpid()}").touch()
                    time.sleep(3600)
                os._exit(0)
            (folder / f"pid-{os.getpid()}").touch()
            subprocess.run(["sleep", "3600"])
        return 1.0

    handle = experiment.submit(
        experiment.launch, cluster, train, {"x": [1]}, logdir=tmp_path / "runs", **QUIET
    )
    wait_until(lambda: len(processes_in(tmp_path)) == 2)
    trial = processes_in(tmp_path)
    above = {parent.pid for pid in trial for parent in psutil.Process(pid).parents()}
    first = [pid for pid in keepers() if pid in above]
    assert len(first) == 1
    (tmp_path / "enough").touch()
    for pid, line in marked_commands().items():
        if "ExecutorBackend" in line:
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive([*first, *trial]))
    assert handle.result(240).trials[0].value == 1.0
