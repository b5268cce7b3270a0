"""Executors that do not see the run folder, for example one on the driver's own disk."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

import experiment
from experiment.driver.jobs import slot_jobs
from spark_jobs.handover import handover
from spark_jobs.storage.locations import Location


def check_executors_without_the_folder(spark, folder, monkeypatch):
    """Check that a search whose slots do not see the folder fails with an error that names it."""

    @contextlib.contextmanager
    def elsewhere(session, root, function):
        with handover(session, Location.parse(f"{root}-elsewhere"), function) as lender:
            missing = lender.function
        yield SimpleNamespace(function=missing, lend=lambda secret: missing)

    monkeypatch.setattr(slot_jobs, "handover", elsewhere)
    with pytest.raises(experiment.SearchFailed) as caught:
        experiment.launch(
            spark, lambda x: x, {"x": [1]}, logdir=folder / "runs", preload=(), verbose=0
        )
    assert f"does not see the folder {folder / 'runs'}" in str(caught.value)
    assert str(caught.value).endswith("give logdir a shared folder or hdfs://...")
