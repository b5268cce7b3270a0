"""Searches whose slots share a connection through a relay."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from experiment.driver.jobs import slot_jobs
from experiment.run_files.journal import read_journal
from spark_jobs.run_folder.paths import RunPaths
from tests.conftest import marked_commands
from tests.whole_searches.executors.steady_search import SECONDS, search, wait_for_steps, wait_until


def relays():
    """Return the relays of all sessions of the tests."""
    return [pid for pid, line in marked_commands().items() if "spark_jobs.relay.start" in line]


@pytest.fixture
def relayed(monkeypatch):
    """Searches share connections, however few slots they have."""
    monkeypatch.setattr(slot_jobs, "_RELAYED", 1)


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.usefixtures("relayed")
@pytest.mark.parametrize("harm", [None, signal.SIGKILL], ids=["", "killed"])
def test_all_reports_and_outcomes_arrive_once(spark, logdir, tmp_path, harm):
    handle = search(spark, logdir, tmp_path)
    wait_for_steps(tmp_path)
    (relay,) = relays()
    if harm is not None:
        psutil.Process(relay).send_signal(harm)
    wait_for_steps(tmp_path)
    (tmp_path / "enough").touch()
    result = handle.result(SECONDS)
    assert [trial.status for trial in result.trials] == ["finished"] * 2
    records = list(read_journal(RunPaths(Path(result.logdir)).journal))
    for trial in result.trials:
        mine = [r for r in records if r["event"] == "reported" and r["trial"] == trial.id]
        heard = [report["step"] for record in mine for report in record["reports"]]
        assert list(dict.fromkeys(heard)) == list(range(int(trial.value)))
    ended = [r["outcome"]["trial"] for r in records if r["event"] == "finished"]
    assert sorted(ended) == [0, 1]
    wait_until(lambda: not relays())


def test_a_search_with_few_slots_has_no_relay(spark, logdir, tmp_path):
    handle = search(spark, logdir, tmp_path)
    wait_for_steps(tmp_path)
    assert relays() == []
    (tmp_path / "enough").touch()
    assert handle.result(SECONDS).done == 2
