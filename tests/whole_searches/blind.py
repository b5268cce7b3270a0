"""Executors that do not see the folder of a run, as where it lies on the driver's own disk."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

import experiment
from experiment.driver import slot_jobs
from spark_jobs.handover import handover
from spark_jobs.storage.locations import Location


def check_blind_executors(spark, folder, monkeypatch):
    """Make sure that a search whose slots see no secrets ends with a sentence that says why."""

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
