"""The secrets of a run: in no log, argument, environment or event log, nor in a trial's process."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from base64 import b64encode
from pathlib import Path

import psutil
import pytest

import experiment
from experiment.driver.jobs import slot_jobs
from spark_jobs.channel import exchange
from spark_jobs.channel.credentials import AttemptKeys
from spark_jobs.channel.grpc_channel import ChannelServer
from spark_jobs.run_folder.paths import RunPaths
from tests.conftest import marked_commands, marked_processes
from tests.experiment.waiting import processes_in, wait_until
from tests.servers.connect import ConnectServer

pytestmark = pytest.mark.slow


@pytest.fixture
def secrets(monkeypatch):
    """Every token and key that searches create from now on."""
    known = set()

    class Server(ChannelServer):
        def __enter__(self):
            server = super().__enter__()
            known.add(self.address.token)
            return server

    class Keys(AttemptKeys):
        def admits(self, slot, key):
            admitted = super().admits(slot, key)
            known.update((key, self.following(slot)))
            return admitted

    monkeypatch.setattr(slot_jobs, "ChannelServer", Server)
    monkeypatch.setattr(exchange, "AttemptKeys", Keys)
    return known


@pytest.fixture
def logged(sparks, tmp_path):
    """A session that writes all logs of Spark, and its own files, below `tmp_path`."""
    (tmp_path / "events").mkdir()
    yield sparks.get(
        "local-cluster[2,1,1024]",
        **{
            "spark.executor.memory": "512m",
            "spark.executor.memoryOverhead": "384m",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (tmp_path / "events").as_uri(),
            "spark.local.dir": str(tmp_path / "local"),
        },
    )
    sparks.stop()


def forms(secrets):
    """Return each secret in plain text, and in base64 at any offset."""
    texts = list(secrets)
    for secret, before in itertools.product(secrets, range(3)):
        data = bytes(before) + secret.encode()
        texts.append(b64encode(data).decode()[-(-before * 8 // 6) : len(data) * 8 // 6])
    return texts


def files_with(secrets, *folders):
    """Return the files below folders that contain one of the secrets."""
    found = []
    for path in (path for folder in folders for path in below(folder) if path.is_file()):
        with contextlib.suppress(FileNotFoundError):  # Spark has removed it since
            if contains(path.read_bytes().decode("latin-1"), secrets):
                found.append(path)
    return found


def below(folder):
    """Yield what is no folder below a folder; what is removed meanwhile may be missing."""
    for parent, _, names in os.walk(folder):  # unlike `rglob`, which fails then
        yield from (Path(parent, name) for name in names)


def contains(text, secrets):
    return any(form in text for form in forms(secrets))


def what_processes_show():
    """Return arguments and environment of each process of the suite."""
    shown = []
    for process in marked_processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since
            shown.append((process.cmdline(), process.environ()))
    return shown


def memory_of(pid):
    """Yield the written memory of a process."""
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb") as memory:
        for line in maps:
            span, permissions = line.split()[:2]
            if permissions.startswith("rw"):
                start, end = (int(address, 16) for address in span.split("-"))
                with contextlib.suppress(OSError):
                    memory.seek(start)
                    yield memory.read(end - start)


@pytest.mark.fault(35)
@pytest.mark.parametrize(
    ("ballast", "preload", "depth"),
    [pytest.param(0, (), 1, marks=pytest.mark.thorough), (2 << 20, ("numpy",), 3)],
    ids=["small closure", "large closure, shared import"],
)
def test_no_secret_is_written_anywhere(
    logged, secrets, tmp_path, capfd, caplog, ballast, preload, depth
):
    """`depth` is the number of our processes above a trial that know no secret."""
    large = bytes(range(256)) * (ballast // 256)

    def train(trial, folder):
        import os
        import pathlib
        import sys
        import time

        import experiment

        print(dict(os.environ), sys.argv, len(large))
        print(dict(os.environ), file=sys.stderr)
        pathlib.Path(folder, f"pid-{os.getpid()}").touch()
        while not pathlib.Path(folder, "enough").exists():
            experiment.report(value=1.0)
            time.sleep(0.05)
        if trial:
            raise ValueError("as long as a traceback may be")
        return {"value": 1.0}

    caplog.set_level("DEBUG")
    handle = experiment.submit(
        experiment.launch,
        logged,
        train,
        {"trial": [0, 1], "folder": [str(tmp_path)]},
        logdir=tmp_path / "runs",
        preload=preload,
        verbose=2,
    )
    wait_until(lambda: len(processes_in(tmp_path)) == 2)
    wait_until(lambda: len(secrets) >= 5)
    wait_until(lambda: all(out.last for out in handle._control.status().running))
    known = set(secrets)
    shown = what_processes_show()
    assert len(shown) > 6  # JVMs, Python workers, zygotes, trials
    assert not contains(str(shown), known)
    for trial in map(psutil.Process, processes_in(tmp_path)):
        above = trial.parents()[:depth]
        assert all("spark_jobs" in " ".join(process.cmdline()) for process in above)
        for process in (trial, *above):
            for part in memory_of(process.pid):
                assert not any(secret.encode() in part for secret in known), process
    folders = {Path(logged.sparkContext._temp_dir).parent} | {
        Path(folder)
        for _, environment in shown
        for folder in environment.get("SPARK_LOCAL_DIRS", "").split(",")
        if folder
    }
    assert files_with(known, *folders) == []
    (tmp_path / "enough").touch()
    result = handle.result(120)
    assert [trial.status for trial in result.trials] == ["finished", "failed"]
    assert files_with(secrets, *folders) == []
    logged.stop()
    # Executors remove their folders while they end.
    wait_until(lambda: not any("ExecutorBackend" in line for line in marked_commands().values()))
    events = "".join(path.read_text() for path in (tmp_path / "events").rglob("events_*"))
    assert "PythonRDD" in events
    assert files_with(secrets, tmp_path, *folders) == []  # the run, its logs, the event log
    output = capfd.readouterr()
    assert not contains(output.out + output.err + caplog.text, secrets)


@pytest.mark.fault(35)
def test_no_secret_of_a_search_in_spark_connect_is_written_anywhere(secrets, tmp_path, monkeypatch):
    """Except where slots read it, while the search runs.

    The server logs what it has executed where the session ends before pyspark's client has told
    it, in a thread, that the results have arrived.
    """
    from pyspark.sql.connect.session import SparkSession

    large = bytes(range(256)) * (16 << 10)

    def train(folder):
        import os
        import pathlib
        import time

        import experiment

        pathlib.Path(folder, f"pid-{os.getpid()}").touch()
        while not pathlib.Path(folder, "enough").exists():
            experiment.report(value=1.0)
            time.sleep(0.05)
        return {"value": len(large)}

    (tmp_path / "events").mkdir()
    logging = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
    }
    with ConnectServer(tmp_path / "server", "local-cluster[1,1,1024]", **logging) as server:
        spark = SparkSession.builder.remote(server.address).create()
        stub = spark.client._stub
        release = stub.ReleaseExecute

        def release_late(*arguments, **keywords):
            time.sleep(1)
            return release(*arguments, **keywords)

        monkeypatch.setattr(stub, "ReleaseExecute", release_late)
        handle = experiment.submit(
            experiment.launch,
            spark,
            train,
            {"folder": [str(tmp_path)]},
            logdir=tmp_path / "runs",
            preload=(),
            verbose=0,
        )
        wait_until(lambda: processes_in(tmp_path), seconds=120)
        wait_until(lambda: len(secrets) >= 3)
        assert not contains(str(what_processes_show()), set(secrets))
        lent = {path.parent.parent for path in files_with(set(secrets), tmp_path)}
        assert lent == {RunPaths(root).secrets for root in (tmp_path / "runs").iterdir()}
        (tmp_path / "enough").touch()
        assert handle.result(120).best.value == len(large)
        spark.stop()
    assert "MapInArrow" in "".join(p.read_text() for p in (tmp_path / "events").rglob("events_*"))
    assert files_with(secrets, tmp_path) == []
