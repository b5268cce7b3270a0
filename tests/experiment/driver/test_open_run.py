"""Runs whose folder cannot be begun."""

from __future__ import annotations

import errno

import pytest

import experiment
from experiment.driver import open_run
from spark_jobs.storage.refusals import StorageFailed
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
