"""Searches in the background, whose trials wait for the test."""

from __future__ import annotations

import contextlib

import pytest

import experiment
from tests.faults.held import QUIET, held_in


@pytest.fixture
def submit(tmp_path):
    """Starts searches in the background, whose trials wait for files in the test's folder."""
    handles = []

    def start(spark, points=None, *, trials=4, call=experiment.launch, train=None, **settings):
        handle = experiment.submit(
            call,
            spark,
            train or held_in(tmp_path),
            points or {"x": range(trials)},
            logdir=tmp_path / "runs",
            **QUIET | settings,
        )
        handles.append(handle)
        return handle

    yield start
    for handle in handles:  # of a test that failed
        handle.cancel()
        with contextlib.suppress(Exception):
            handle.result(timeout=240)
