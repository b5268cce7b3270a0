"""Runs whose folder cannot be begun, and requests to stop while it is read."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

import experiment
from experiment.driver import open_run
from experiment.driver.control import Control
from experiment.driver.interrupts import Interrupts
from experiment.setup.resuming import Past
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.refusals import StorageFailed
from tests.experiment.waiting import wait_until
from tests.whole_searches.executors.kept import QUIET


def train(x):
    return float(x)


def full(path):
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def test_a_run_whose_folder_cannot_be_written_fails_with_an_empty_result(
    spark, tmp_path, monkeypatch
):
    monkeypatch.setattr(open_run, "write_manifest", lambda paths, manifest: full(paths.manifest))
    with pytest.raises(experiment.SearchFailed, match="No space left on device") as failed:
        experiment.launch(spark, train, {"x": [1, 2]}, logdir=tmp_path, **QUIET)
    assert failed.value.result.trials == []
    assert failed.value.result.problem.startswith("the driver cannot continue: OSError")


def test_a_run_to_resume_whose_folder_cannot_be_written_is_refused(spark, tmp_path, monkeypatch):
    begun = experiment.launch(spark, train, {"x": [1]}, logdir=tmp_path, **QUIET)
    monkeypatch.setattr(open_run, "make_folder", full)
    with pytest.raises(StorageFailed, match=r"resume: .*No space left on device"):
        experiment.launch(spark, train, {"x": [1]}, resume=begun.logdir, **QUIET)


def test_a_request_to_stop_while_the_past_is_read_ends_the_search(tmp_path, monkeypatch):
    def read(files, root, spec):
        (tmp_path / "stop").touch()
        return Past()

    monkeypatch.setattr(open_run, "read_past", read)
    prepared = SimpleNamespace(
        root=Location.parse(str(tmp_path)),
        data=SimpleNamespace(hadoop=HadoopSettings()),
        spec=SimpleNamespace(settings=SimpleNamespace(resume=str(tmp_path))),
        manifest=SimpleNamespace(application="local-1700000000000"),
    )
    control = Control()
    with open_run.open_run(prepared, Interrupts(control)):
        assert (tmp_path / "stop").exists()
        wait_until(lambda: control.reason)
    assert control.reason == "stopped by python -m experiment stop"
