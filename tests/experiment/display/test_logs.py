"""The output of a worker is followed to its end; `test_commands.py` has the command `logs`."""

from __future__ import annotations

import itertools

import pytest

from experiment.display import logs
from experiment.run_files.loading import Reader
from spark_jobs import time_limits
from spark_jobs.run_folder.paths import RunPaths


@pytest.fixture
def paths(tmp_path, monkeypatch):
    """A run with a trial whose worker 1 has begun."""
    monkeypatch.setattr(logs, "_POLL", 0.01)
    paths = RunPaths(tmp_path)
    worker = paths.attempt(3, rank=1)
    worker.folder.mkdir(parents=True)
    worker.stdout.write_text("begun\n")
    return paths


def test_a_worker_that_ends_after_rank_0_is_followed_to_its_end(paths, capsys):
    worker, looks = paths.attempt(3, rank=1), itertools.count()

    def ended(attempt, outcome):
        if next(looks) == 1:
            worker.stdout.write_text("begun\nended\n")
            worker.outcome.touch()
        return True

    logs.copy_logs(Reader(paths, lambda: None), 3, worker=1, until=ended)
    assert capsys.readouterr().out == "begun\nended\n"


def test_a_worker_that_was_lost_is_not_followed_for_ever(paths, capsys, monkeypatch):
    monkeypatch.setattr(time_limits, "GANG_END", 0.1)
    logs.copy_logs(Reader(paths, lambda: None), 3, worker=1, until=lambda *attempt: True)
    assert capsys.readouterr().out == "begun\n"
