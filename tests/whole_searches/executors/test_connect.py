"""Searches in a Spark Connect session, on a server with executors in other processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pyarrow
import pytest

import experiment
from experiment.diagnosis.examiner import Examiner
from search.errors import InvalidArgument
from spark_jobs.session import session_of
from spark_jobs.session.connect import ConnectSession
from spark_jobs.storage.locations import Location
from tests.conftest import marked_commands
from tests.experiment.waiting import alive, processes_in, wait_until
from tests.servers.connect import ConnectServer
from tests.whole_searches.executors.unshared_folder import check_executors_without_the_folder

UNREACHABLE = "192.0.2.1"  # for documentation only: RFC 5737
QUIET = {"preload": (), "verbose": 0}


def open_session(server, **settings):
    """Return a new session of a server; pyspark's builder refuses one beside a classic session."""
    from pyspark.sql.connect.session import SparkSession

    builder = SparkSession.builder.remote(server.address)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.create()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("connect")
    # The server does not end the jobs of a killed client while a test runs.
    kept = {"spark.connect.execute.manager.detachedTimeout": "1h"}
    with ConnectServer(root, "local[2]", **kept) as server:
        yield server


@pytest.fixture
def executors(tmp_path):
    """A server whose executors are JVMs of their own."""
    with ConnectServer(tmp_path / "server", "local-cluster[2,1,1024]") as server:
        yield server


@pytest.fixture
def connect(server):
    spark = open_session(server)
    yield spark
    spark.stop()


@pytest.mark.slow
def test_a_trial_runs_on_several_slots(connect, tmp_path):
    def train(x):
        return x + experiment.world_size() if experiment.rank() == 0 else None

    settings = {"workers_per_trial": 2, "logdir": tmp_path, **QUIET}
    result = experiment.launch(connect, train, {"x": [1.0, 2.0]}, **settings)
    assert [trial.value for trial in result.trials] == [3.0, 4.0]


@pytest.fixture
def submit(connect, tmp_path):
    """Starts searches in the background, whose trials wait until the test releases them."""
    handles = []

    def start(trials=2, **settings):
        handle = experiment.submit(
            experiment.launch,
            settings.pop("spark", connect),
            held,
            {"folder": [str(tmp_path)], "x": range(trials)},
            logdir=tmp_path / "runs",
            **QUIET | settings,
        )
        handles.append(handle)
        return handle

    yield start
    for handle in handles:  # left by a failed test
        handle.cancel()
        with contextlib.suppress(Exception):
            handle.result(timeout=240)


def held(folder, x):
    import os
    from pathlib import Path

    Path(folder, f"pid-{os.getpid()}").touch()
    while not Path(folder, "release").exists():
        time.sleep(0.02)
    return 2.0 * x


def test_searches_and_calls(connect, tmp_path):
    def train(x):
        if x == 2:
            raise ValueError("not this one")
        return {"loss": (x - 1.0) ** 2}

    grid = {"x": [0, 1, 2, 3]}
    settings = QUIET | {"logdir": tmp_path, "direction": "min"}
    result = experiment.launch(connect, train, grid, **settings)
    assert [t.status for t in result.trials] == ["finished", "finished", "failed", "finished"]
    assert (result.best.params, result.best.value) == ({"x": 1}, 0)
    assert "not this one" in result.failed[0].error.traceback
    loaded = experiment.load(result.logdir)
    assert [trial.value for trial in loaded.trials] == [t.value for t in result.trials]

    evolved = experiment.evolutionary_search(
        connect, lambda x: {"loss": abs(x - 1)}, {"x": [0.0, 2.0]}, popsize=4, generations=2,
        seed=1, **settings,
    )  # fmt: skip
    assert {trial.status for trial in evolved.trials} == {"finished"}
    assert len(evolved.trials) == 12

    with experiment.executor(connect, logdir=tmp_path) as pool:
        assert list(pool.map(pow, [2, 3], [5, 2])) == [32, 9]


def test_executors_that_do_not_see_the_handed_over_files_are_reported(
    connect, tmp_path, monkeypatch
):
    check_executors_without_the_folder(connect, tmp_path, monkeypatch)


def test_a_session_has_its_master_and_no_warning(connect, server):
    session = session_of(connect)
    assert isinstance(session, ConnectSession)
    assert session.master == "local[2]"
    assert session.application_id.startswith("local-")
    assert session.on_this_host
    assert session.search_path()
    assert session.task_slots() == 2
    assert str(session.task_needs) == "1 core"
    assert not session.assigns_gpus
    assert session.driver_host == session.bind_host == "127.0.0.1"
    assert not session.stopped
    warnings = []
    session.tell_risk(warnings.append)
    assert warnings == []


@pytest.mark.slow
@pytest.mark.contract
def test_a_client_without_the_token_is_refused(server, monkeypatch):
    monkeypatch.delenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", raising=False)
    without = SimpleNamespace(address=server.address.partition("/;")[0])
    stranger = open_session(without)
    with pytest.raises(InvalidArgument, match="No authentication token provided"):
        session_of(stranger)
    stranger.client.close()  # at exit it would call a server that has ended


def test_a_plan_runs_nothing(connect, tmp_path):
    def train(x):
        raise AssertionError("a plan runs nothing")

    grid = {"x": [1, 2, 3]}
    plan = experiment.plan(experiment.launch, connect, train, grid, logdir=tmp_path, **QUIET)
    assert (plan.trials, plan.slots, plan.slots_now, plan.needs) == (3, 2, None, "1 core")
    assert (plan.gpus, plan.gpus_now, plan.trials_per_slot, plan.hindrances) == (0, None, 2, ())
    assert "slots    2 at most; each 1 core" in str(plan)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_sound_session_is_green_for_the_doctor(connect, tmp_path):
    (tmp_path / "data.csv").write_text("1,2\n")
    examiner = Examiner(
        session=session_of(connect), timeout=240.0, modules=("msgspec", "numpy", "pyspark")
    )
    runs = str(tmp_path / "runs")
    diagnosis = examiner.examine(lambda x: x, Location.parse(tmp_path / "data.csv"), runs)
    assert {f.level for f in diagnosis.findings} == {"ok"}, diagnosis
    found = {f.check: f.got for f in diagnosis.findings}
    assert found["slots"] == "2 of 2 slots answered, on 1 host"
    assert found["data"].startswith("1 file, 4 bytes; 4 bytes of the first file read")
    # Another test's search on this host may have left its shared import.
    assert set(found) - {"shared import"} == {
        *("train", "slots", "software", "driver", "clock", "logdir", "data", "space", "memory"),
        *("gpus", "authentication"),
    }
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.slow
@pytest.mark.contract
def test_settings_of_a_session(server):
    settings = {
        "spark.experiment.driver.host": "driver.example.org",
        "spark.experiment.logdir": "hdfs://nn/runs",
        "spark.experiment.cache.limit": "20g",
        "spark.hadoop.dfs.namenode.http-address": "nn:9999",
    }
    session = session_of(spark := open_session(server, **settings))
    assert session.driver_host == "driver.example.org"
    assert session.bind_host == "127.0.0.1"
    assert session.default_logdir() == session.shared_folder() == "hdfs://nn/runs"
    data = session.data_settings()
    assert data.cache.limit == 20 << 30
    assert data.hadoop.values["dfs.namenode.http-address"] == "nn:9999"
    spark.conf.set("spark.experiment.cache.limit", "much")
    with pytest.raises(InvalidArgument, match="spark.experiment.cache.limit: expected a size"):
        session_of(spark).data_settings()
    session._settings["spark.speculation"] = "true"  # as on another server
    with pytest.raises(InvalidArgument, match="spark.speculation: expected false, got true"):
        session.check_settings()
    spark.stop()


@pytest.mark.slow
@pytest.mark.contract
def test_a_stopped_session_is_refused(server):
    spark = open_session(server)
    spark.stop()
    with pytest.raises(InvalidArgument, match="a stopped one"):
        experiment.launch(spark, lambda x: x, {"x": [1]})


@pytest.mark.slow
@pytest.mark.contract
def test_a_server_with_an_old_version_is_refused(server, tmp_path, monkeypatch):
    spark = open_session(server)
    monkeypatch.setattr(
        type(spark), "version", "3.5.7"
    )  # as an old server reports to a newer client
    expected = "expected a Spark Connect server of Spark 4.0 or newer, got .* 3.5.7; connect to"
    with pytest.raises(InvalidArgument, match=expected):
        experiment.launch(spark, lambda x: x, {"x": [1]}, logdir=tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []
    spark.stop()


@pytest.mark.slow
@pytest.mark.contract
def test_a_session_ended_by_its_server_is_refused(server):
    spark = open_session(server)
    spark.client.release_session()
    with pytest.raises(InvalidArgument, match="one that its server has ended"):
        experiment.launch(spark, lambda x: x, {"x": [1]})
    spark.client.close()  # or pyspark would call the server when this process ends


def test_cancelling_leaves_no_trial_and_keeps_other_jobs(connect, tmp_path, submit):
    release = tmp_path / "release"

    def other(batches):

        while not release.exists():
            time.sleep(0.02)
        yield from batches

    table = []

    def work():
        table.append(connect.range(0, 1, 1, 1).mapInArrow(other, "id long").toArrow())

    user = threading.Thread(target=work)
    user.start()
    handle = submit(parallelism=1)
    wait_until(lambda: processes_in(tmp_path))
    handle.cancel()
    result = handle.result(timeout=240)
    assert {trial.status for trial in result.trials} == {"cancelled"}
    wait_until(lambda: not alive(processes_in(tmp_path)))
    assert not table
    release.touch()
    user.join(60)
    assert table == [pyarrow.table({"id": [0]})]
    resumed = experiment.launch(
        connect,
        held,
        {"folder": [str(tmp_path)], "x": range(2)},
        resume=result.logdir,
        **QUIET,
    )
    assert [trial.value for trial in resumed.trials] == [0, 2]


@pytest.mark.parametrize("what", ["the session", "a frame of it"])
def test_a_function_that_captures_the_session_is_refused(connect, tmp_path, what):
    """Unlike a classic session, that of Spark Connect can be pickled, and fails in the trial."""
    captured = connect if what == "the session" else connect.range(3)
    message = (
        r"train: .*one that refers to 'captured' \((SparkSession|DataFrame)\): "
        r"the SparkSession exists on the driver only; make 'captured' inside"
    )
    with pytest.raises(InvalidArgument, match=message):
        experiment.launch(connect, lambda x: captured, {"x": [1]}, logdir=tmp_path, **QUIET)
    assert not list(tmp_path.iterdir())
    with experiment.executor(connect, logdir=tmp_path) as pool:
        with pytest.raises(InvalidArgument, match="the SparkSession exists on the driver only"):
            pool.submit(len, captured)


@pytest.mark.slow
def test_data_frames_are_written_for_trials(connect, tmp_path):
    path = experiment.data.from_dataframe(connect.range(10), str(tmp_path / "frame"))
    rows = experiment.data.parquet(path)
    assert sorted(rows["id"].to_pylist()) == list(range(10))


@pytest.fixture
def on_executors(executors):
    """A session of `executors`, which ends before its server: else it would wait for that one."""
    spark = open_session(executors)
    yield spark
    spark.stop()


@pytest.mark.slow
def test_a_killed_executor_costs_an_attempt_not_the_trial(
    executors, on_executors, tmp_path, submit
):
    handle = submit(trials=3, spark=on_executors)
    wait_until(lambda: len(processes_in(tmp_path)) == 2, seconds=120)
    # Of two with a trial each. No trial descends from one, since the shared import outlives it.
    below = executors.process.children(recursive=True)
    next(p for p in below if "ExecutorBackend" in " ".join(p.cmdline())).kill()
    wait_until(lambda: len(processes_in(tmp_path)) == 3, seconds=120)
    (tmp_path / "release").touch()
    result = handle.result(timeout=120)
    assert [t.value for t in result.trials] == [0, 2, 4]
    assert sorted(t.attempt for t in result.trials) == [1, 1, 2]


@pytest.mark.slow
def test_tfrecords_are_written_in_executors(connect, tmp_path):
    frame = connect.range(10)
    path = experiment.data.from_dataframe(frame, str(tmp_path / "records"), format="tfrecord")
    assert sum(map(len, experiment.data.record_batches(path))) == 10


@pytest.mark.slow
def test_a_dead_server_ends_a_search(tmp_path, submit):
    with ConnectServer(tmp_path / "server", "local[1]") as server:
        spark = open_session(server)
        handle = submit(trials=2, spark=spark)
        wait_until(lambda: processes_in(tmp_path), seconds=120)
        server.kill()
        with pytest.raises(experiment.SearchFailed, match="the SparkSession was stopped"):
            handle.result(timeout=120)
        wait_until(lambda: not alive(processes_in(tmp_path)))
        with pytest.raises(InvalidArgument, match="expected a Spark Connect server that answers"):
            experiment.launch(spark, lambda x: x, {"x": [1]})
        spark.client.close()


PROGRAM = """
import sys
from pyspark.sql import SparkSession
import experiment
from tests.whole_searches.executors.test_connect import held

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
points = {"folder": [sys.argv[2]], "x": range(2)}
result = experiment.launch(spark, held, points, logdir=sys.argv[2], preload=(), verbose=0)
print([trial.status for trial in result.trials], spark.range(3).count(), flush=True)
spark.stop()
"""


@pytest.mark.slow
def test_ctrl_c_ends_the_search_and_not_the_session(server, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, server.address, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(processes_in(tmp_path)) == 2 or process.poll() is not None, seconds=120)
    os.kill(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert output == "['cancelled', 'cancelled'] 3\n", errors
    wait_until(lambda: not alive(processes_in(tmp_path)))
    # No search waits for its tasks here.
    wait_until(
        lambda: not [c for c in marked_commands().values() if "spark_jobs.zygote.zygote" in c]
    )


@pytest.mark.slow
def test_executors_that_cannot_reach_the_client_use_the_mailbox(server, tmp_path):
    spark = open_session(server, **{"spark.experiment.driver.host": UNREACHABLE})
    (tmp_path / "release").touch()
    points = {"folder": [str(tmp_path)], "x": range(4)}
    with pytest.warns(UserWarning, match=f"does not reach the driver at {UNREACHABLE}"):
        result = experiment.launch(spark, held, points, logdir=tmp_path / "runs", **QUIET)
    assert [trial.value for trial in result.trials] == [0, 2, 4, 6]
    spark.stop()


@pytest.mark.slow
def test_slots_of_a_killed_client_end_for_the_resumed_search(connect, server, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, server.address, str(tmp_path)]
    )
    wait_until(lambda: len(processes_in(tmp_path)) == 2 or process.poll() is not None)
    process.kill()
    process.wait()
    before = processes_in(tmp_path)
    (run,) = (path.parent for path in tmp_path.glob("*/manifest.json"))
    handle = experiment.submit(
        experiment.launch,
        connect,
        held,
        {"folder": [str(tmp_path)], "x": range(2)},
        resume=run,
        startup_timeout=5,
        **QUIET,
    )
    wait_until(lambda: len(processes_in(tmp_path)) == 4 or handle.status() != "running")
    assert not alive(before)
    (tmp_path / "release").touch()
    result = handle.result(timeout=120)
    assert [(trial.value, trial.attempt) for trial in result.trials] == [(0, 2), (2, 2)]
