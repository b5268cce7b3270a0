"""Searches with their runs on a real HDFS, which fails and restarts meanwhile."""

from __future__ import annotations

import contextlib
import getpass
import itertools
import json
import os
import signal
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import hdfs as hdfs_package
import numpy as np
import pytest

import experiment
from experiment.cli.commands import main
from experiment.display import tensorboard_server
from experiment.run_files.journal import JournalDamaged, read_journal
from experiment.run_files.loading import find_runs
from search.errors import InvalidArgument
from spark_jobs.session.classic import ClassicSession
from spark_jobs.storage import webhdfs
from spark_jobs.storage.locations import Location
from tests.experiment.waiting import wait_until

_FOLDERS = itertools.count()
LIGHT = {"isolation": "none", "preload": ()}
OF_A_TRIAL = {
    "trial.json",
    "outcome.json",
    "stdout.log",
    "stderr.log",
    "events.out.tfevents.trial",
}


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """The folder for the driver's scratch folders."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


@pytest.fixture(scope="module")
def scratch_of_slots(tmp_path_factory):
    """The folder for the slots' scratch folders; a killed slot leaves its own."""
    return tmp_path_factory.mktemp("slots")


@pytest.fixture
def spark(sparks, hdfs, scratch_of_slots):
    """A session with the HDFS as its default file system."""
    settings = {f"spark.hadoop.{name}": value for name, value in hdfs.settings().items()}
    return sparks.get("local[2]", **settings, **{"spark.executorEnv.TMPDIR": str(scratch_of_slots)})


@pytest.fixture
def client(hdfs):
    client = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=30)
    yield client
    client._session.close()


@pytest.fixture
def logdir(hdfs):
    """A missing folder on HDFS for runs, with a name that must be quoted."""
    return f"{hdfs.uri}/runs of ü/{next(_FOLDERS)}"


@pytest.fixture
def impatient(monkeypatch):
    """The driver's HDFS calls fail after a second."""
    monkeypatch.setattr(webhdfs.WebHdfs.__init__, "__defaults__", (1.0,))


class Kept:
    """The files of a run on HDFS."""

    def __init__(self, client, hdfs, url):
        assert url.startswith(f"{hdfs.uri}/")
        self._client, self.root = client, url.removeprefix(hdfs.uri)
        walked = client.walk(self.root)
        self.names = sorted(
            f"{folder}/{name}".removeprefix(f"{self.root}/")
            for folder, _, names in walked
            for name in names
        )

    def read(self, name):
        with self._client.read(f"{self.root}/{name}") as reader:
            return reader.read()

    def in_folder(self, folder):
        found = (name for name in self.names if name.startswith(f"{folder}/"))
        return {name.removeprefix(f"{folder}/") for name in found}


def assert_all_is_there(kept, result):
    """Check the run's own files, and those of each trial."""
    assert "manifest.json" in kept.names
    assert json.loads(kept.read("result.json"))["trials"] == len(result.trials)
    assert not [name for name in kept.names if name.endswith(".part") or "probe" in name]
    (events,) = kept.in_folder("search")
    assert "tfevents" in events
    with tempfile.TemporaryDirectory() as folder:
        for name in kept.in_folder("journal"):
            Path(folder, name).write_bytes(kept.read(f"journal/{name}"))
        ended = [record for record in read_journal(Path(folder)) if record["event"] == "finished"]
    assert {record["outcome"]["trial"] for record in ended} == {t.id for t in result.trials}
    for trial in result.trials:
        assert trial.logdir.startswith(f"{result.logdir}/trials/")
        folder = trial.logdir.removeprefix(f"{result.logdir}/")
        assert kept.in_folder(folder) >= OF_A_TRIAL
        outcome = json.loads(kept.read(f"{folder}/outcome.json"))
        assert (outcome["trial"], outcome["value"]) == (trial.id, trial.value)
        assert kept.read(f"{folder}/stdout.log") == f"trial {trial.params['x']}\n".encode()


def train(x):
    print("trial", x)
    return x


def test_a_run_is_on_hdfs_with_all_its_files(
    spark, hdfs, client, logdir, scratch, scratch_of_slots
):
    result = experiment.launch(spark, train, {"x": [1.0, 2.0, 3.0]}, logdir=logdir, **LIGHT)
    assert result.logdir.startswith(f"{logdir}/train-")
    kept = Kept(client, hdfs, result.logdir)
    assert_all_is_there(kept, result)
    assert json.loads(kept.read("manifest.json"))["name"] == "train"
    assert json.loads(kept.read("result.json"))["best"]["value"] == 3.0
    for folder in (scratch, scratch_of_slots):
        assert not list(folder.glob("experiment-run-*"))
    assert {status["permission"] for _, status in client.list(kept.root, status=True)} == {
        "600",
        "700",
    }


def test_a_run_is_in_the_users_home_where_hdfs_is_the_default(spark, hdfs, client, capfd):
    client.makedirs(f"/user/{getpass.getuser()}")
    result = experiment.launch(spark, train, {"x": [1.0]}, **LIGHT)
    home = f"{hdfs.uri}/user/{getpass.getuser()}/experiments"
    assert result.logdir.startswith(f"{home}/train-")
    assert_all_is_there(Kept(client, hdfs, result.logdir), result)
    assert result.logdir in capfd.readouterr().err


def test_an_evolution_is_on_hdfs(spark, hdfs, client, logdir):
    result = experiment.evolutionary_search(
        spark, train, {"x": [0.0, 1.0]}, popsize=4, generations=2, seed=1, logdir=logdir, **LIGHT
    )
    assert len(result.trials) == 12
    kept = Kept(client, hdfs, result.logdir)
    assert_all_is_there(kept, result)
    assert json.loads(kept.read("manifest.json"))["call"] == "evolutionary_search"


def test_prior_observations_of_a_run_on_hdfs_are_recorded_there(spark, hdfs, client, logdir):
    def search(**settings):
        bounds = {"x": [0.0, 1.0]}
        return experiment.evolutionary_search(
            spark, train, bounds, popsize=4, seed=1, parallelism=1, **LIGHT, **settings
        )

    before = search(generations=1, logdir=logdir)
    begun = search(generations=1, warm_start=before.logdir, logdir=logdir)
    kept = Kept(client, hdfs, begun.logdir)
    assert len(json.loads(kept.read("known.json"))["trials"]) == 8
    client.delete(Kept(client, hdfs, before.logdir).root, recursive=True)
    resumed = search(generations=2, warm_start=before.logdir, resume=begun)
    assert resumed.trials[:8] == begun.trials
    assert len(resumed.trials) == 12


def test_files_of_separate_processes_and_sub_folders_are_on_hdfs(spark, hdfs, client, logdir):
    def save(x):
        from pathlib import Path

        import experiment

        print("trial", x)
        folder = Path(experiment.logdir())
        (folder / "checkpoints" / "of ü").mkdir(parents=True)
        (folder / "checkpoints" / "of ü" / "model.keras").write_bytes(b"model" * 1000)
        return x

    result = experiment.launch(spark, save, {"x": [1.0, 2.0]}, logdir=logdir, preload=())
    kept = Kept(client, hdfs, result.logdir)
    assert_all_is_there(kept, result)
    for number in range(2):
        assert kept.read(f"trials/00000{number}/checkpoints/of ü/model.keras") == b"model" * 1000


def test_the_failure_of_a_trial_is_on_hdfs(spark, hdfs, client, logdir):
    def fail(x):
        print("trial", x)
        if x == 2:
            raise ValueError("a bug of the user")
        return x

    result = experiment.launch(spark, fail, {"x": [1, 2]}, logdir=logdir, **LIGHT)
    (failed,) = result.failed
    assert "a bug of the user" in failed.error.message
    kept = Kept(client, hdfs, result.logdir)
    outcome = json.loads(kept.read("trials/000001/outcome.json"))
    assert "ValueError: a bug of the user" in outcome["error"]["traceback"]
    assert kept.read("trials/000001/stdout.log") == b"trial 2\n"
    assert b"a bug of the user" in kept.read("trials/000001/events.out.tfevents.trial")


def test_a_lost_attempt_disappears_from_tensorboard(spark, hdfs, client, logdir, tmp_path):
    mark = tmp_path / "once"

    def die(x):
        import os

        print("trial", x)
        if x == 1 and not mark.exists():
            mark.touch()
            os._exit(9)
        return x

    result = experiment.launch(spark, die, {"x": [0, 1, 2]}, logdir=logdir, parallelism=1, **LIGHT)
    assert [trial.value for trial in result.trials] == [0.0, 1.0, 2.0]
    assert result.trials[1].logdir.endswith("000001-2")
    kept = Kept(client, hdfs, result.logdir)
    assert_all_is_there(kept, result)
    assert not [name for name in kept.in_folder("trials/000001") if "tfevents" in name]


def test_the_tab_shows_a_running_search_with_its_output_and_tracebacks(
    spark, logdir, tmp_path, monkeypatch
):
    monkeypatch.setattr(tensorboard_server, "_RELOAD", 1)

    def train(x):
        import time

        print("trial", x, flush=True)
        if x == 2:
            raise ValueError("a bug of the user")
        experiment.report(step=0, loss=0.5)
        while not (tmp_path / "continue").exists():
            time.sleep(0.02)
        with open(os.path.join(experiment.logdir(), "model.txt"), "w") as file:
            file.write("weights")
        return x

    search = threading.Thread(
        target=experiment.launch,
        args=(spark, train, {"x": [1, 2]}),
        kwargs={"logdir": logdir, "preload": (), "verbose": 0},
    )
    search.start()
    try:
        with _first_run(logdir, search) as board:
            [facts] = _shown(board, "runs", lambda runs: runs and runs[0]["counts"]["failed"])
            assert facts["state"] == "running"
            assert facts["folder"].startswith(logdir)
            query = {"run": facts["name"]}
            printed = {"name": "stdout", "text": "trial 1\n"}  # its stderr may be there before
            page = _shown(board, "trial", lambda page: printed in page["output"], **query, trial=0)
            assert page["status"] == "running"
            page = _shown(board, "trial", lambda page: page["output"], **query, trial=1)
            assert "ValueError: a bug of the user" in page["error"]["traceback"]
            (tmp_path / "continue").touch()
            _shown(board, "run", lambda run: run["state"] == "finished", **query)
            page = _shown(board, "trial", lambda page: page["files"], **query, trial=0)
            assert page["files"] == [{"name": "model.txt", "size": 7}]
            page = _shown(board, "trial", lambda page: page["curves"], **query, trial=0)
            assert "loss" in [curve["tag"] for curve in page["curves"]]
    finally:
        (tmp_path / "continue").touch()
        search.join()


def _first_run(logdir, search):
    """Start TensorBoard on the only run of a folder, once it is there."""
    runs = []
    while not runs:
        assert search.is_alive()
        search.join(0.1)
        with contextlib.suppress(FileNotFoundError):
            runs = find_runs(Location.parse(logdir))
    return experiment.tensorboard(str(runs[0]))


def _shown(board, path, ready, **query):
    """Ask the tab until its answer is ready; the limit only keeps a failing test from hanging."""
    address = f"{board.url}/data/plugin/experiment/{path}?{urllib.parse.urlencode(query)}"
    end = time.monotonic() + 240
    answer = None
    while time.monotonic() < end:
        with contextlib.suppress(urllib.error.HTTPError):  # not copied yet
            with urllib.request.urlopen(address, timeout=30) as response:
                answer = json.load(response)
            if ready(answer):
                return answer
        time.sleep(0.1)
    raise AssertionError(answer)


def waiting_trial(folder):
    """Return a train function that waits for a file and then ends."""

    def wait(x):
        import time

        print("trial", x)
        (folder / f"began-{x}").touch()
        while not (folder / "continue").exists():
            time.sleep(0.02)
        return x

    return wait


def when_begun(folder, action):
    """Start a thread that acts when the first trial has begun, and then releases all trials."""

    def act():
        try:
            wait_until(lambda: list(folder.glob("began-*")))
            action()
        finally:
            (folder / "continue").touch()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


@pytest.mark.slow
@pytest.mark.fault(28)
def test_a_namenode_that_restarts_costs_no_trial(spark, hdfs, client, logdir, tmp_path, scratch):
    def restart():
        hdfs.kill("namenode")
        (tmp_path / "continue").touch()  # trials end without a NameNode
        time.sleep(0.5)
        hdfs.start_namenode()

    thread = when_begun(tmp_path, restart)
    result = experiment.launch(
        spark, waiting_trial(tmp_path), {"x": range(8)}, logdir=logdir, **LIGHT
    )
    thread.join()
    hdfs.wait_ready()
    assert [trial.value for trial in result.trials] == [float(x) for x in range(8)]
    assert_all_is_there(Kept(client, hdfs, result.logdir), result)
    assert os.listdir(scratch) == []


@pytest.mark.fault(27)
@pytest.mark.parametrize("name", ["datanode0", pytest.param("datanode1", marks=pytest.mark.slow)])
def test_a_datanode_that_dies_costs_no_trial(spark, hdfs, client, logdir, tmp_path, name):
    thread = when_begun(tmp_path, lambda: hdfs.kill(name))
    result = experiment.launch(
        spark, waiting_trial(tmp_path), {"x": range(4)}, logdir=logdir, **LIGHT
    )
    thread.join()
    assert [trial.value for trial in result.trials] == [float(x) for x in range(4)]
    assert_all_is_there(Kept(client, hdfs, result.logdir), result)


@pytest.mark.fault(38)
def test_an_interrupted_search_keeps_its_files(spark, hdfs, client, logdir, tmp_path, scratch):
    def train(x):
        import time

        print("trial", x, flush=True)
        if x:
            (tmp_path / "began").touch()
            time.sleep(1000)
        return x

    def interrupt():
        wait_until((tmp_path / "began").exists)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.warns(UserWarning, match="interrupted"):
        result = experiment.launch(
            spark, train, {"x": range(3)}, logdir=logdir, preload=(), parallelism=1
        )
    thread.join()
    assert [trial.status for trial in result.trials] == ["finished", "cancelled"]
    kept = Kept(client, hdfs, result.logdir)
    summary = json.loads(kept.read("result.json"))
    assert (summary["trials"], summary["problem"]) == (2, "interrupted")
    assert kept.in_folder("trials/000000") >= OF_A_TRIAL
    assert "events.out.tfevents.trial.driver" in kept.in_folder("trials/000001")
    assert os.listdir(scratch) == []
    everything = b"".join(kept.read(name) for name in kept.names)
    assert b"PRIVATE KEY" not in everything


def never(x):
    raise AssertionError("a trial began")


def refused(spark, logdir):
    """Return the error that refuses a folder before any trial."""
    with pytest.raises(InvalidArgument) as caught:
        experiment.launch(spark, never, {"x": [1]}, logdir=logdir, **LIGHT)
    message = str(caught.value)
    assert message.startswith("logdir: expected ")
    assert "\n" not in message
    assert "org.apache.hadoop.hdfs" not in message
    return message


@pytest.mark.fault(30)
def test_a_folder_of_another_user_is_refused(spark, hdfs, client, monkeypatch):
    client.makedirs("/own", permission="700")
    monkeypatch.setattr(ClassicSession, "_hadoop_user", "somebody")
    for folder in ("/own", "/own/runs", "/runs-of-somebody"):
        message = refused(spark, hdfs.uri + folder)
        assert f"{hdfs.uri}{folder}" in message
        assert "no permission, as user somebody" in message


@pytest.mark.slow
@pytest.mark.fault(28)
@pytest.mark.usefixtures("impatient")
def test_safe_mode_is_reported(spark, hdfs, logdir):
    hdfs.admin("-safemode", "enter")
    try:
        message = refused(spark, logdir)
    finally:
        hdfs.admin("-safemode", "leave")
    assert "HDFS failed for 1 s: " in message
    assert "safe mode" in message


@pytest.mark.fault(30)
@pytest.mark.parametrize("quota", [("-setSpaceQuota", "1m"), ("-setQuota", "1")])
def test_an_exhausted_quota_is_reported(spark, hdfs, client, logdir, quota):
    path = logdir.removeprefix(hdfs.uri)
    client.makedirs(path)
    hdfs.admin(*quota, path)
    message = refused(spark, logdir)
    assert "quota" in message
    assert logdir in message
    assert client.list(path) == []


@pytest.mark.usefixtures("impatient")
def test_a_port_without_webhdfs_is_reported(spark, hdfs):
    message = refused(spark, hdfs.uri.replace("hdfs://", "webhdfs://") + "/runs")
    assert "RPC port; WebHDFS answers on another, by default 9870" in message
    message = refused(spark, "webhdfs://127.0.0.1:9/runs")
    assert "no WebHDFS at http://127.0.0.1:9" in message
    assert "is the address right" in message


def test_a_file_in_place_of_a_folder_is_reported(spark, hdfs, client, logdir):
    path = logdir.removeprefix(hdfs.uri)
    client.write(path, data=b"mine")
    for folder in (logdir, f"{logdir}/deeper"):
        assert f"{logdir}" in refused(spark, folder)
    assert client.status(path)["length"] == 4


def test_a_run_is_resumed_on_hdfs_in_the_background(spark, hdfs, client, logdir, scratch):
    points = [{"x": x} for x in (1, 2, 3, 4)]
    before = experiment.launch(spark, train, points[:2], logdir=logdir, **LIGHT)
    handle = experiment.submit(
        experiment.launch, spark, train, points, resume=before, preload=(), verbose=0
    )
    result = handle.result(timeout=120)
    assert [trial.value for trial in result.trials] == [1.0, 2.0, 3.0, 4.0]
    assert Kept(client, hdfs, result.logdir).in_folder("journal") == {
        "000001.jsonl",
        "000002.jsonl",
    }
    assert experiment.load(result).trials == result.trials
    assert not list(scratch.iterdir())


def test_a_refused_run_leaves_nothing_on_this_host(spark, hdfs, client, logdir, scratch):
    before = experiment.launch(spark, train, [{"x": 1}], logdir=logdir, preload=(), verbose=0)
    journal = f"{before.logdir.removeprefix(hdfs.uri)}/journal/000001.jsonl"
    client.write(journal, b"damaged\n", overwrite=True)
    with pytest.raises(JournalDamaged):
        experiment.launch(spark, train, [{"x": 1}], resume=before, preload=(), verbose=0)
    assert not list(scratch.iterdir())


def test_an_executors_calls_and_values_go_through_hdfs(spark, logdir):
    big = np.arange(20_000.0)
    with experiment.executor(spark, logdir=logdir, parallelism=1) as pool:
        assert pool.submit(np.add, big, 1).result(120).tolist() == (big + 1).tolist()
        assert type(pool.submit(int, "x").exception(120)) is ValueError
    assert experiment.load(pool.logdir).done == 2


def test_workers_of_a_trial_share_its_checkpoint_and_leave_their_output(
    spark, client, hdfs, logdir, tmp_path, capsys
):
    saved = tmp_path / "saved"

    def train(x):
        path = Path(experiment.checkpoint_dir(), "x")
        seen = path.read_text() if path.exists() else ""
        print(f"rank {experiment.rank()} saw {seen!r}")
        Path(experiment.logdir(), "model").touch()
        path.write_text(str(x))
        if not seen and experiment.rank() == 0:
            saved.touch()
            threading.Event().wait()
        while not saved.exists():
            time.sleep(0.01)
        if not seen:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    result = experiment.launch(
        spark,
        train,
        {"x": [7]},
        workers_per_trial=2,
        retry_on=("exit",),
        logdir=logdir,
        preload=(),
        verbose=0,
    )
    [trial] = result.trials
    assert (trial.value, trial.attempt) == (7.0, 2)
    kept = Kept(client, hdfs, result.logdir)
    workers = kept.in_folder("trials/000000-2/workers/1")
    assert workers == {"trial.json", "outcome.json", "stdout.log", "stderr.log"}
    assert kept.read("trials/000000-2/workers/1/stdout.log") == b"rank 1 saw '7'\n"
    assert kept.read("trials/000000-2/stdout.log") == b"rank 0 saw '7'\n"
    main(["logs", result.logdir, "0", "--worker", "1"])
    assert "rank 1 saw '7'" in capsys.readouterr().out
