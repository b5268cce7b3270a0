"""Runs on a real HDFS, read by the library, the command line and TensorBoard, also in progress."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.request

import psutil
import pytest

import experiment
from experiment.cli.commands import main
from experiment.run_files.journal import encode_line
from experiment.run_files.ownership import owned
from search.errors import InvalidArgument
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.run_folder.uploader import Uploader
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.webhdfs import WebHdfs
from tests.experiment.runs import begun, make_run, start_attempt

SECONDS = 120  # the limit for each wait


@pytest.fixture
def logdir(hdfs):
    """The location of a folder of runs, with an address that needs no configuration."""
    http = hdfs.http.removeprefix("http")
    return Location.parse(f"webhdfs{http}/runs-{secrets.token_hex(4)}")


@pytest.fixture
def upload(logdir):
    """A function that uploads a run to HDFS, or updates it there, and returns its URL."""
    known = {}
    with contextlib.closing(WebHdfs(logdir, HadoopSettings(user=getpass.getuser()))) as files:

        def upload(root):
            if root not in known:
                known[root] = Uploader(files, root, logdir.below(root.name))
            known[root].upload()
            return str(logdir.below(root.name))

        yield upload


def command(*arguments):
    return [sys.executable, "-m", "experiment", *map(str, arguments)]


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files, including copies."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_run_on_hdfs_is_loaded_like_a_local_one(tmp_path, upload, temporary):
    root = make_run(tmp_path, trials=6)
    url = upload(root)
    there, here = experiment.load(url), experiment.load(root)
    assert there.logdir == url
    assert [t.logdir for t in there.trials] == [f"{url}/trials/{t.id:06d}" for t in here.trials]
    assert there.to_pandas().drop(columns="logdir").equals(here.to_pandas().drop(columns="logdir"))
    assert list(temporary.iterdir()) == []


def test_a_run_in_progress_is_loaded_up_to_its_last_record(tmp_path, upload, capsys):
    url = upload(make_run(tmp_path, trials=6, running=(2, 4), ended=False))
    assert experiment.load(url).done == 4
    assert main(["show", url]) == 0
    output = capsys.readouterr().out
    assert "not ended, last update" in output
    assert "Running, at the last update" in output


def test_a_run_in_progress_shows_its_driver_and_can_be_stopped(tmp_path, upload, capsys):
    url = upload(make_run(tmp_path, trials=6, running=(2,), ended=False))
    root, hadoop = Location.parse(url), HadoopSettings(user=getpass.getuser())
    state = rf"running on host .*, pid {os.getpid()}"
    with owned(root, hadoop, "app", taken=pytest.fail, tell=pytest.fail):
        assert main(["show", url]) == 0
        assert re.search(state, capsys.readouterr().out)
        assert main(["stop", url]) == 0
        assert re.search(f"^asked to stop: {url}, {state}", capsys.readouterr().out)
    with contextlib.closing(WebHdfs(root, hadoop)) as files:
        assert files.status(root.below("stop")).length == 0
    assert main(["show", url]) == 0
    assert "running on" not in capsys.readouterr().out


def test_runs_are_listed_with_the_newest_last(tmp_path, upload, logdir, capsys):
    urls = [upload(make_run(tmp_path, trials=3, name=name)) for name in ("first", "second")]
    assert main(["list", str(logdir)]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [url.rpartition("/")[2] for url in urls]


def test_the_command_line_shows_a_trial_and_its_output(tmp_path, upload, capsys):
    root = make_run(tmp_path, trials=4, failed=(1,))
    url = upload(root)
    assert main(["show", url, "1"]) == 0
    output = capsys.readouterr().out
    assert f"{url}/trials/000001" in output
    assert "ValueError: too large" in output
    assert main(["logs", url, "1"]) == 0
    assert capsys.readouterr().out == RunPaths(root).attempt(1).stdout.read_text()
    assert main(["export", url, "--csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
    assert main(["logs", url, "17"]) == 2
    assert "17" in capsys.readouterr().err


def test_a_log_is_followed_while_it_is_uploaded(tmp_path, upload):
    root = make_run(tmp_path, trials=2, failed=(), running=(1,), ended=False)
    url, attempt = upload(root), RunPaths(root).attempt(1)
    follower = subprocess.Popen(
        command("logs", "-f", url, 1), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        first = follower.stdout.readline()
        assert first in attempt.stdout.read_text()
        with attempt.stdout.open("a") as log:
            log.write("news\n")
        upload(root)
        while follower.stdout.readline() != "news\n":
            assert follower.poll() is None
        attempt.outcome.write_text("{}")
        upload(root)
        assert follower.wait(SECONDS) == 0
    finally:
        follower.kill()
        follower.communicate()


def test_tensorboard_shows_a_run_in_progress(tmp_path, upload):
    root = make_run(tmp_path, trials=8, generations=True, running=(7,), ended=False)
    url = upload(root)
    with experiment.tensorboard(url) as board:
        runs = {"search", *(f"trials/{number:06d}" for number in range(8))}
        wait_for(f"{board.url}/data/runs", lambda found: set(found) == runs)
        wait_for(f"{board.url}/search/data/runs", lambda found: found == ["search"])
        from search.trial import Trial
        from spark_jobs.messages import Attempt

        start_attempt(RunPaths(root), Attempt(Trial(8, {"learning_rate": 0.1})))
        upload(root)
        wait_for(f"{board.url}/data/runs", lambda found: "trials/000008" in found)
        server = psutil.Process(board._process.pid)
    _, alive = psutil.wait_procs([server], timeout=SECONDS)
    assert alive == []


def test_an_abandoned_attempt_disappears_from_tensorboard(tmp_path, upload, logdir):
    from spark_jobs.run_folder.writing import hide_events

    root = make_run(tmp_path, trials=3, failed=(), running=(2,), ended=False)
    url = upload(root)
    files = WebHdfs(logdir, HadoopSettings(user=getpass.getuser()))
    with contextlib.closing(files), experiment.tensorboard(url) as board:
        wait_for(f"{board.url}/data/runs", lambda found: "trials/000002" in found)
        hide_events(files, Location.parse(url), 2, 2)
        wait_for(f"{board.url}/data/runs", lambda found: "trials/000002" not in found)


@pytest.mark.slow
def test_tensorboard_continues_when_the_namenode_is_back(hdfs, tmp_path, upload):
    root = make_run(tmp_path, trials=2, failed=(), running=(1,), ended=False)
    with experiment.tensorboard(upload(root)) as board:
        wait_for(f"{board.url}/data/runs", lambda found: "trials/000001" in found)
        hdfs.kill("namenode")
        hdfs.restore()
        add_nested_run(root)
        upload(root)
        wait_for(f"{board.url}/data/runs", lambda found: "trials/000001/train" in found)


def add_nested_run(root):
    """Add a run below that of a trial, like Keras' TensorBoard callback."""
    from spark_jobs.trial.events.event_file import EventFile

    folder = RunPaths(root).attempt(1).folder / "train"
    folder.mkdir()
    with EventFile(folder) as events:
        events.scalars({"loss": 0.5}, 0)


def wait_for(url, ready):
    end = time.monotonic() + SECONDS
    while not ready(answer := json.loads(urllib.request.urlopen(url, timeout=SECONDS).read())):
        assert time.monotonic() < end, answer
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("read", "path", "reason"),
    [
        (experiment.load, "nowhere", "which is no folder"),
        (experiment.tensorboard, "nowhere", "which is no folder"),
        (experiment.load, "", "it holds 1 run, the newest is"),
    ],
)
def test_a_folder_without_a_run_is_refused_in_one_sentence(
    tmp_path, upload, logdir, read, path, reason
):
    upload(make_run(tmp_path, trials=1, failed=()))
    url = str(logdir.below(path)).rstrip("/")
    with pytest.raises(InvalidArgument) as caught:
        read(url)
    message = str(caught.value)
    assert reason in message
    assert message.startswith(f"run: expected the folder of a run, got {url!r}")
    assert "\n" not in message


def test_the_tensorboard_of_a_folder_of_runs_shows_each(tmp_path, upload, logdir):
    name = upload(make_run(tmp_path, trials=1, failed=())).rpartition("/")[2]
    with experiment.tensorboard(str(logdir)) as board:
        wait_for(f"{board.url}/data/runs", lambda found: f"{name}/trials/000000" in found)


def test_an_unreadable_file_is_reported_with_user_and_address(tmp_path, upload, hdfs):
    url = upload(make_run(tmp_path, trials=1, failed=()))
    import hdfs as hdfs_package

    stranger = hdfs_package.InsecureClient(hdfs.http, user="stranger", timeout=30)
    with contextlib.closing(stranger._session), pytest.raises(hdfs_package.HdfsError):
        stranger.list(Location.parse(url).path)
    environment = {**os.environ, "HADOOP_USER_NAME": "stranger"}
    answer = subprocess.run(
        command("show", url), env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert answer.returncode == 2
    assert "that cannot be read: no permission, as user stranger at" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_other_files_beside_runs_do_not_hide_them(tmp_path, upload, logdir, hdfs, capsys):
    import hdfs as hdfs_package

    url = upload(make_run(tmp_path, trials=1, failed=()))
    owner = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=30)
    with contextlib.closing(owner._session):
        owner.write(logdir.below("README.txt").path, data=b"hello")
        owner.makedirs(logdir.below("foreign").path, permission="700")
        owner.set_owner(logdir.below("foreign").path, owner="bob")
    assert main(["list", str(logdir)]) == 0
    assert url.rpartition("/")[2] in capsys.readouterr().out
    assert main(["show", str(logdir)]) == 2
    assert "it holds 1 run" in capsys.readouterr().err


def test_the_last_update_of_a_run_has_its_age(tmp_path, upload, hdfs, capsys):
    import hdfs as hdfs_package

    url = upload(make_run(tmp_path, trials=2, failed=(), running=(1,), ended=False))
    client = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=30)
    yesterday = int((time.time() - 24 * 3600) * 1000)
    with contextlib.closing(client._session):
        path = Location.parse(url).path
        for name in ("manifest.json", "journal/000001.jsonl"):
            client.set_times(f"{path}/{name}", modification_time=yesterday)
    assert main(["show", url]) == 0
    assert "last update 24 h" in capsys.readouterr().out


def test_a_damaged_journal_is_reported_with_its_url(tmp_path, upload, capsys):
    root = make_run(tmp_path, trials=2, failed=())
    [segment] = RunPaths(root).journal.glob("*.jsonl")
    segment.write_bytes(b"damaged\n" + segment.read_bytes())
    url = upload(root)
    assert main(["show", url]) == 2
    assert f"{url}/journal/000001.jsonl, line 1" in capsys.readouterr().err


def test_a_damaged_journal_is_repaired_on_hdfs(tmp_path, upload, temporary, hdfs, capsys):
    import hdfs as hdfs_package

    root = make_run(tmp_path, trials=3, failed=())
    [segment] = RunPaths(root).journal.glob("*.jsonl")
    damaged = segment.read_bytes().replace(b'"trial":1', b'"trial":7')
    segment.write_bytes(damaged)
    segment.with_name("000002.jsonl").write_bytes(encode_line(begun(8)))
    url = upload(root)
    assert main(["repair", url]) == 0
    assert f"{url}/journal/000001.jsonl.damaged" in capsys.readouterr().out
    assert [trial.id for trial in experiment.load(url).trials] == [0]
    assert list(temporary.iterdir()) == []
    client = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=30)
    with contextlib.closing(client._session):
        path = Location.parse(url).below("journal").path
        found = dict(client.list(path, status=True))
        with client.read(f"{path}/000001.jsonl.damaged") as file:
            assert file.read() == damaged
        with client.read(f"{path}/000001.jsonl") as file:
            assert damaged.startswith(file.read())
    assert sorted(found) == ["000001.jsonl", "000001.jsonl.damaged", "000002.jsonl.damaged"]
    assert {status["permission"] for status in found.values()} == {"600"}


def test_a_trailing_slash_is_ignored(tmp_path, upload):
    url = upload(make_run(tmp_path, trials=1, failed=()))
    assert experiment.load(f"{url}/").trials[0].logdir == f"{url}/trials/000000"


@pytest.mark.parametrize("run", ["foo://x/y", "hdfs:/x", "webhdfs://127.0.0.1:1/run"])
def test_an_unreachable_address_is_refused_in_one_line(run, capsys, monkeypatch):
    monkeypatch.setattr("spark_jobs.storage.webhdfs.WebHdfs.__init__.__defaults__", (0.0,))
    assert main(["show", run]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
