"""Searches on a real cluster whose executors cannot reach the driver's port."""

from __future__ import annotations

import itertools
import json
import os
import threading
import warnings
from pathlib import Path

import hdfs as hdfs_package
import pytest

import experiment
from experiment.run_files.journal import read_journal
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.session.classic import ClassicSession
from tests.experiment.waiting import alive, processes_in, wait_until

_FOLDERS = itertools.count()


@pytest.fixture
def refused(monkeypatch):
    """Executors get an address of this host on which no process listens."""
    monkeypatch.setattr(ClassicSession, "driver_host", property(lambda _: "127.0.0.9"))


def train(x):
    import itertools
    import time

    import experiment

    for step in range(1) if x else itertools.count():  # the first is stopped
        experiment.report(step=step, value=float(x))
        time.sleep(0 if x else 0.05)
    return {"value": float(x)}


def search(spark, logdir, **settings):
    return experiment.launch(
        spark,
        train,
        {"x": [0, 1, 2, 3]},
        logdir=logdir,
        preload=(),
        optimization_key="value",
        stopping=experiment.Threshold(lower=0.5),
        **settings,
    )


def check(result, caught):
    """Check that a search warned once of the refused port, and ended as usual."""
    (sentence,) = [str(warning.message) for warning in caught]
    assert sentence.startswith("host 127.0.0.")
    assert "does not reach the driver at 127.0.0.9:" in sentence
    statuses = {trial.params["x"]: trial.status for trial in result.trials}
    assert statuses == {0: "stopped", 1: "finished", 2: "finished", 3: "finished"}
    assert result.best.value == 3.0


@pytest.mark.usefixtures("refused")
def test_a_search_uses_the_mailbox_if_the_port_is_refused(two_hosts, logdir):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = search(two_hosts, logdir)
    check(result, caught)
    assert not Path(result.logdir, "mailbox").exists()


def test_an_open_port_gives_no_warning_and_no_mailbox(two_hosts, logdir):
    result = search(two_hosts, logdir)  # a warning would be an error
    assert [trial.status for trial in result.trials].count("finished") == 3
    assert not Path(result.logdir, "mailbox").exists()


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.usefixtures("refused")
def test_a_worker_that_fails_ends_the_others_and_is_named_by_the_mailbox(
    two_hosts, logdir, tmp_path
):
    def train(x):
        (total,) = experiment.all_reduce([[1.0]], "sum")
        if x == 2.0 and experiment.rank() == 1:
            while not processes_in(tmp_path):
                threading.Event().wait(0.01)
            raise ValueError("rank 1 does not like this")
        if x == 2.0:
            (tmp_path / f"pid-{os.getpid()}").touch()
            threading.Event().wait()  # as in a collective that does not see the other's end
        return x + 10 * float(total[0])

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = experiment.launch(
            two_hosts,
            train,
            {"x": [1.0, 2.0, 3.0]},
            workers_per_trial=2,
            logdir=logdir,
            preload=(),
            verbose=0,
        )
    (sentence,) = [str(warning.message) for warning in caught]
    assert "does not reach the driver at 127.0.0.9:" in sentence
    assert [(trial.status, trial.value) for trial in run.trials] == [
        ("finished", 21.0),
        ("failed", None),
        ("finished", 23.0),
    ]
    records = list(read_journal(RunPaths(Path(run.logdir)).journal))
    hosts = {record["slot"]: record["host"] for record in records if record["event"] == "joined"}
    (slots,) = (
        record["slots"]
        for record in records
        if record["event"] == "planned" and record["trial"]["id"] == 1
    )
    error, host = run.trials[1].error, hosts[slots[1]]
    assert error.message == f"worker 1 of 2, on {host}: ValueError: rank 1 does not like this"
    ended = json.loads(Path(run.trials[1].logdir, "outcome.json").read_text())
    assert (ended["status"], ended["reason"]) == ("cancelled", "worker 1 of 2 has failed")
    wait_until(lambda: not alive(processes_in(tmp_path)))
    assert not Path(run.logdir, "mailbox").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("refused")
def test_a_search_on_hdfs_uses_the_mailbox_there(sparks, standalone, hdfs):
    hadoop = {f"spark.hadoop.{name}": value for name, value in hdfs.settings().items()}
    spark = sparks.get(standalone.master, **standalone.settings(), **hadoop)
    folder = f"/tmp/out of reach ü/{next(_FOLDERS)}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = search(spark, hdfs.uri + folder)
    check(result, caught)
    client = hdfs_package.InsecureClient(hdfs.http)
    (run,) = client.list(folder)
    assert "trials" in client.list(f"{folder}/{run}")
    assert "mailbox" not in client.list(f"{folder}/{run}")
    client._session.close()


@pytest.mark.slow
@pytest.mark.fault(17)
@pytest.mark.usefixtures("refused")
def test_the_trials_of_a_lost_host_run_on_the_other_one(standalone, two_hosts, logdir, tmp_path):
    def train(trial, folder):
        import os
        import time
        from pathlib import Path

        Path(folder, f"{trial}-{os.getpid()}").touch()
        while not Path(folder, "enough").exists():
            time.sleep(0.05)
        return float(trial)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        handle = experiment.submit(
            experiment.launch,
            two_hosts,
            train,
            {"trial": [0, 1], "folder": [str(tmp_path)]},
            logdir=logdir,
            preload=(),
        )
        wait_until(lambda: len(list(tmp_path.glob("[01]-*"))) == 2)
        standalone.kill_worker(standalone.hosts[0])
        (tmp_path / "enough").touch()
        result = handle.result(120)
    assert [trial.status for trial in result.trials] == ["finished"] * 2
    assert sorted(trial.value for trial in result.trials) == [0.0, 1.0]
    assert len([t for t in caught if "does not reach the driver" in str(t.message)]) == 1
    records = list(read_journal(RunPaths(Path(result.logdir)).journal))
    assert [record["attempt"] for record in records if record["event"] == "lost"] == [1]
    assert not Path(result.logdir, "mailbox").exists()
