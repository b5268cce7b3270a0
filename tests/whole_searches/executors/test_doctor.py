"""`experiment.doctor` on real executors, with each problem that a test can cause."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import sys
import threading
import time
import urllib.request

import numpy as np
import pytest

import experiment
from experiment.diagnosis.examiner import Examiner
from experiment.diagnosis.gathering import Gathering
from spark_jobs.doctor.examination import Examination
from spark_jobs.doctor.examination import examine as examine_slot
from spark_jobs.doctor.facts import RoundTrip
from spark_jobs.messages import Hello, Next
from spark_jobs.session import session_of
from spark_jobs.session.classic import ClassicSession
from spark_jobs.session.slot_job import SlotJob
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at
from tests.experiment.waiting import wait_until
from tests.faults.test_executors import without
from tests.faults.test_scaling import ALLOCATION
from tests.servers.clusters import CLUSTER, MEMORY, gpu_settings
from tests.servers.hdfs import free_ports
from tests.servers.standalone import HOSTS

FEW = ("msgspec", "numpy", "pyspark")  # without TensorFlow, whose import takes seconds


def examine(
    spark, logdir, *, train=None, data=None, modules=FEW, timeout=240.0, clock=time.time, **gpus
):
    """Run the doctor's checks without TensorFlow."""
    examiner = Examiner(
        session=session_of(spark), timeout=timeout, clock=clock, modules=modules, **gpus
    )
    place = None if data is None else Location.parse(data)
    return examiner.examine(train, place, str(logdir))


def only(diagnosis, check, host=None):
    """Return the only finding of a check, on a host."""
    (finding,) = [
        f for f in diagnosis.findings if f.check == check and (host is None or f.host == host)
    ]
    return finding


def test_a_sound_session_is_all_green(spark, tmp_path):
    (tmp_path / "data.csv").write_text("1,2\n")

    def train(x, y=1):
        return x

    diagnosis = experiment.doctor(
        spark, train, tmp_path / "data.csv", logdir=tmp_path / "runs of ü", timeout=600.0
    )
    assert diagnosis.ok, diagnosis
    assert {f.level for f in diagnosis.findings} == {"ok"}, diagnosis
    names = {f.check for f in diagnosis.findings}
    assert names - {"shared import"} == {  # there is one after an earlier search of this session
        *("train", "slots", "software", "tensorflow", "driver", "clock", "logdir", "data"),
        *("space", "memory", "gpus", "authentication"),
    }
    assert only(diagnosis, "slots").got == "2 of 2 slots answered, on 1 host"
    assert only(diagnosis, "data").got.startswith("1 file, 4 bytes; 4 bytes of the first file read")
    assert "the search must give it x" in only(diagnosis, "train", "driver").got
    assert only(diagnosis, "tensorflow").got.startswith(__import__("tensorflow").__version__)
    assert list((tmp_path / "runs of ü").iterdir()) == []


def test_a_diagnosis_is_a_table_in_text_html_and_pandas(spark, tmp_path, capsys):
    table = np.zeros(12 << 20, "u1")
    diagnosis = examine(spark, tmp_path, train=lambda x: len(table))
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == [
        "doctor: checks the driver, its settings and its storage",
        "doctor: checks 2 slots, for at most 240 s",
    ]
    (finding,) = [f for f in diagnosis.findings if f.level != "ok"]
    assert diagnosis.ok
    assert (finding.check, finding.host, finding.level) == ("train", "driver", "warning")
    assert "'table' 12.6 MB" in finding.got
    assert "make 'table' inside the train function" in finding.advice
    first, second, *_ = str(diagnosis).splitlines()
    assert (first, second.split()[:3]) == ("1 warning", ["warning", "train", "driver"])
    assert "    -> make 'table' inside" in str(diagnosis)
    assert repr(diagnosis) == str(diagnosis)
    html = diagnosis._repr_html_()
    rows = [line for line in str(diagnosis).splitlines()[1:] if not line.startswith(" ")]
    assert html.count("<tr>") == 1 + len(rows)
    frame = diagnosis.to_pandas()
    assert list(frame.columns) == ["check", "host", "level", "got", "expected", "advice"]
    assert len(frame) == len(diagnosis.findings)


@pytest.mark.slow
@pytest.mark.contract
def test_sparks_progress_bar_ends(sparks, tmp_path):
    spark = sparks.get("local[2]", **{"spark.ui.showConsoleProgress": "true"})

    def is_drawn():
        threads = spark.sparkContext._jvm.java.lang.Thread.getAllStackTraces().keySet()
        return "refresh progress" in {thread.getName() for thread in threads}

    wait_until(is_drawn)
    examine(spark, tmp_path)
    wait_until(lambda: not is_drawn())


def test_a_function_that_cannot_be_pickled_does_not_hide_other_checks(spark, tmp_path):
    table, lock = np.zeros(80 << 20, "u1"), __import__("threading").Lock()

    diagnosis = examine(spark, tmp_path, train=lambda x: len(table))
    finding = only(diagnosis, "train")
    assert not diagnosis.ok
    assert (finding.host, finding.level) == ("driver", "red")
    assert "'table' (ndarray): more than 64 MiB" in finding.got
    assert finding.advice == "make 'table' inside the train function"
    assert [f.check for f in diagnosis.red] == ["train"]

    finding = only(examine(spark, tmp_path, train=lambda x: lock), "train")
    assert "'lock' (lock)" in finding.got

    def by_position(x, /):
        return x

    finding = only(examine(spark, tmp_path, train=by_position), "train", "driver")
    assert (finding.level, finding.got) == ("red", "'x', by position only")


@pytest.mark.slow
def test_slots_occupied_by_another_job_are_reported(spark, tmp_path):
    gate = tmp_path / "gate"

    def hold(batches):
        import time

        (tmp_path / "held").touch()
        while not gate.exists():
            time.sleep(0.05)
        yield from batches

    job = session_of(spark).job(hold, 1, "holds a slot", "id long")
    with job:
        job.start()
        wait_until((tmp_path / "held").exists)
        diagnosis = examine(spark, tmp_path / "runs", timeout=60.0)
        gate.touch()
        assert job.wait(60)
    finding = only(diagnosis, "slots")
    assert (finding.level, finding.got) == ("red", "1 of 2 slots answered, on 1 host")
    assert finding.expected == "all of them within 60 s"
    assert "a slot requests 1 core" in finding.advice
    assert [f.check for f in diagnosis.red] == ["slots"]
    assert only(diagnosis, "logdir").level == "ok"


def test_a_wrong_clock_is_reported(spark, tmp_path):
    """A pause of a process changes the difference that is measured: then it is measured again."""

    def clocks(shift):
        found = examine(spark, tmp_path, clock=lambda: time.time() + shift).findings
        return [(f.level, f.got, "chrony" in f.advice) for f in found if f.check == "clock"]

    slow = ("warning", "3.0 s ahead of the driver's clock", True)
    wait_until(lambda: clocks(-3) == [slow])
    far = ("red", "3600.0 s behind the driver's clock", True)
    wait_until(lambda: clocks(3600) == [far])


@pytest.mark.slow
def test_each_host_of_a_cluster_is_examined(two_hosts, tmp_path, monkeypatch):
    """A module that only the driver's host has is missing on the others."""
    (tmp_path / "only_here.py").write_text("def train(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here

    diagnosis = examine(two_hosts, tmp_path, train=only_here.train)
    assert only(diagnosis, "slots", "driver").got == "2 of 2 slots answered, on 2 hosts", diagnosis
    for host in HOSTS:
        finding = only(diagnosis, "train", host)
        assert finding.level == "red"
        assert finding.got == "ModuleNotFoundError: No module named 'only_here'"
        assert "--py-files" in finding.advice
        for check in ("software", "driver", "clock", "logdir", "space", "gpus", "workers"):
            assert only(diagnosis, check, host).level == "ok"
        reached = only(diagnosis, "workers", host).got
        assert reached.startswith("1 other slot reached at ports 20000 to 32767 in ")
    table = str(diagnosis).splitlines()
    assert sum(", ".join(HOSTS) in line for line in table) >= 6  # one row for both
    del sys.modules["only_here"]


def test_an_unreachable_port_is_reported(two_hosts, tmp_path, monkeypatch):
    """The driver listens on another address than the one that executors get."""
    monkeypatch.setattr(ClassicSession, "bind_host", "127.0.0.9")
    wait_until(lambda: len(session_of(two_hosts).cluster().executors) == 2)
    diagnosis = examine(two_hosts, tmp_path)
    for host in HOSTS:
        finding = only(diagnosis, "driver", host)
        assert finding.level == "warning"  # both see the folder
        assert finding.got.startswith("the driver at 127.0.0.1, port ")
        assert "Connection refused" in finding.got
        assert "messages of its trials go through the run's folder" in finding.got
        assert "spark.driver.host" in finding.advice
    assert only(diagnosis, "slots").level == "ok"
    assert {f.check for f in diagnosis.findings if f.level != "ok"} == {"driver"}


@pytest.mark.slow
@pytest.mark.parametrize("allocation", ["static", "dynamic"])
def test_a_host_whose_executors_cannot_start_is_reported(
    sparks, standalone, tmp_path, monkeypatch, allocation
):
    """The host's Java starts Spark's worker, but no executor."""
    settings = standalone.settings()
    if allocation == "dynamic":
        settings |= ALLOCATION | {"spark.dynamicAllocation.minExecutors": "2"}
    two_hosts = sparks.get(standalone.master, **settings)
    java, host = tmp_path / "bin" / "java", HOSTS[1]
    java.parent.mkdir()
    refuse = '*ExecutorBackend*) echo "no Java for executors" >&2; exit 1;;'
    java.write_text(f'#!/bin/sh\ncase "$*" in {refuse} esac\nexec {shutil.which("java")} "$@"\n')
    java.chmod(0o755)
    session = session_of(two_hosts)
    assert session.failing_hosts() == ()
    standalone.kill_worker(host)
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_HOME", str(tmp_path))
        standalone.restore()
    try:
        wait_until(session.failing_hosts)
        finding = only(examine(two_hosts, tmp_path, timeout=30.0), "slots", host)
        log = finding.advice.removeprefix("see the log of the last one: ")
        with urllib.request.urlopen(log, timeout=60) as page:
            assert "no Java for executors" in page.read().decode()
    finally:
        standalone.kill_worker(host)  # the next test gets a worker with the usual Java
    assert finding.level == "red"
    assert re.fullmatch(r"no executor starts there: \d+ have ended", finding.got)


@pytest.mark.slow
def test_hosts_whose_executors_ended_idle_are_not_reported(sparks, standalone):
    spark = sparks.get(standalone.master, **standalone.settings() | ALLOCATION)
    work = f"work/{{}}/{spark.sparkContext.applicationId}/*"

    def most_ended():
        wait_until(lambda: not any(map(standalone.executors, HOSTS)))
        return max(len(list(standalone.root.glob(work.format(host)))) for host in HOSTS)

    while most_ended() < 2:
        assert len(spark.range(8).collect()) == 8  # without a shuffle, which Spark would keep
    assert session_of(spark).failing_hosts() == ()


@pytest.mark.slow
def test_an_executor_with_another_python_version_is_reported(two_hosts, tmp_path, monkeypatch):
    here = ".".join(map(str, sys.version_info[:2]))
    monkeypatch.setattr(two_hosts.sparkContext, "pythonVer", "3.9")
    red = examine(two_hosts, tmp_path).red
    finding = next(f for f in red if f.host in HOSTS)
    assert (finding.check, finding.got) == (
        "slots",
        f"the executor has Python {here}, the driver 3.9",
    )
    assert "PYSPARK_PYTHON" in finding.advice


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["msgspec", "keras"])
def test_a_package_missing_on_executors_is_reported(
    sparks, standalone, tmp_path, monkeypatch, missing
):
    python = without(tmp_path / "python", missing)
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    sparks.stop()
    spark = sparks.get(standalone.master, **standalone.settings())
    try:
        diagnosis = examine(spark, tmp_path / "runs", modules=(*FEW, "keras"))
    finally:
        sparks.stop()
    finding = next(f for f in diagnosis.red if f.host in HOSTS)
    version = ".".join(map(str, sys.version_info[:3]))
    if missing == "msgspec":  # no slot runs without it
        assert finding.check == "slots"
        assert finding.got == f"Python {version} at {python}: no module named 'msgspec'"
        assert "install this package" in finding.advice
    else:
        assert (finding.check, finding.got) == ("software", "no keras")
        assert python in finding.advice


@pytest.mark.slow
def test_workers_with_the_same_gpus_are_reported(sparks, tmp_path):
    settings = gpu_settings(tmp_path, '["0"]')
    one = {name: "1" for name in settings if name.endswith(".amount")}
    spark = sparks.get(CLUSTER, **MEMORY, **settings | one)
    finding = only(examine(spark, tmp_path / "runs"), "gpus")
    assert (finding.level, finding.got) == ("red", "GPU 0 in 2 slots at once")
    assert finding.expected == "one slot per GPU"
    assert "discovery script" in finding.advice


def test_a_local_session_with_gpu_settings_is_reported_at_once(sparks, tmp_path):
    amounts = {f"spark.{whose}.resource.gpu.amount": "1" for whose in ("executor", "task")}
    spark = sparks.get("local[2]", **amounts)
    (finding,) = examine(spark, tmp_path).red
    assert (finding.check, finding.host) == ("settings", "driver")
    assert finding.expected == "spark.task.resource.gpu.amount: unset with the master local[2]"


@pytest.mark.slow
def test_slots_are_examined_with_the_gpus_of_the_search(sparks, tmp_path):
    """Spark has GPUs, and its tasks request none by default."""
    settings = gpu_settings(tmp_path, '["0", "1"]')
    del settings["spark.task.resource.gpu.amount"]
    spark = sparks.get("local-cluster[1,2,1024]", **MEMORY, **settings)
    finding = only(examine(spark, tmp_path / "runs"), "gpus")
    assert (finding.level, finding.advice[:19]) == ("warning", "set gpus_per_trial=")
    for asked, handed_out in [
        ({"gpus_per_trial": 1}, "2 GPUs assigned"),
        ({"trials_per_gpu": 2}, "1 GPU assigned"),
    ]:
        diagnosis = examine(spark, tmp_path / "runs", **asked)
        assert only(diagnosis, "slots").got == "2 of 2 slots answered, on 1 host"
        assert only(diagnosis, "gpus").got.startswith(handed_out)
    (finding,) = examine(spark, tmp_path / "runs", gpus_per_trial=3).red
    assert (finding.check, finding.got) == ("settings", "3")


def test_gpus_for_trials_in_local_mode_are_reported_at_once(spark, tmp_path):
    (finding,) = examine(spark, tmp_path, trials_per_gpu=2).red
    assert (finding.check, finding.host) == ("settings", "driver")
    assert finding.expected == f"trials_per_gpu: 1 with the master {spark.sparkContext.master}"


def test_slots_wait_until_each_running_job_has_one():
    gathering, ends = Gathering(time.time), [threading.Event() for _ in range(3)]
    with contextlib.ExitStack() as running:
        jobs = []
        for end in ends:
            job = running.enter_context(SlotJob(end.wait, end.set, list, list, lambda: 0))
            job.start()
            jobs.append(job)
        gathering.next(Next("1.0.0"))
        gathering.next(Next("1.0.1"))  # Spark's retry of a lost task
        gathering.next(Next("2.0.0"))
        gathering.hello(Hello(slot="3.0.0", host="node-2"))  # it still checks its host
        assert not gathering.has_all(jobs)  # two of three
        jobs[1].cancel()
        assert not gathering.has_all(jobs)  # two jobs are left, and three slots said hello
        gathering.next(Next("3.0.0"))
        assert gathering.has_all(jobs)


@pytest.mark.slow
@pytest.mark.contract
def test_a_slot_that_does_not_see_the_folder_runs_its_other_checks(tmp_path):
    def lent():
        raise FileNotFoundError(2, "No such file or directory", str(tmp_path / "elsewhere"))

    examination = Examination(
        number=1,
        key="key",
        folder=str(tmp_path),
        content="",
        data="/data",
        modules=FEW,
        assigns_gpus=False,
        has_function=True,
        timeout=60.0,
    )
    found = examine_slot(examination, lent, lent, slot="1.0.0", gpus=(), cpus=1)
    assert found.trouble == {}
    assert found.folder == RoundTrip(0.0, shared=False)
    assert found.software is not None
    assert (found.driver, found.data, found.function) == (None, None, None)

    def closed():
        raise PermissionError("file: expected mode 600, got 644, so others can read it")

    found = examine_slot(examination, closed, lent, slot="1.0.0", gpus=(), cpus=1)
    assert found.trouble == {"folder": "file: expected mode 600, got 644, so others can read it"}


def test_a_folder_and_data_on_hdfs_are_checked(sparks, hdfs, tmp_path):
    data = tmp_path / "data.csv"
    data.write_text("1,2\n")
    hadoop = {f"spark.hadoop.{name}": value for name, value in hdfs.settings().items()}
    spark = sparks.get("local[2]", **hadoop)
    folder = Location.parse(f"{hdfs.uri}/doctor")
    with contextlib.closing(
        writable_files_at(folder, session_of(spark).data_settings().hadoop)
    ) as files:
        files.make_folder(folder)
        files.write(folder.below("data.csv"), data)
        diagnosis = examine(spark, f"{folder}/runs", data=f"{folder}/data.csv")
        assert files.names(folder.below("runs")) == []
    assert diagnosis.ok, diagnosis
    assert only(diagnosis, "logdir").got.startswith(f"{folder}/runs: written")
    assert only(diagnosis, "data").got.startswith("1 file, 4 bytes")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["hdfs", "folder"])
def test_unreachable_storage_is_red_and_does_not_hide_other_checks(spark, tmp_path, place):
    (port,) = free_ports(1)
    (tmp_path / "file").touch()
    away = f"webhdfs://127.0.0.1:{port}/runs" if place == "hdfs" else str(tmp_path / "file" / "x")
    # A third of the timeout is for the checks, and another for the start of slots.
    diagnosis = examine(spark, away, data=f"{away}/data.csv", timeout=60.0)
    assert {f.check for f in diagnosis.red} == {"logdir", "data"}
    assert only(diagnosis, "logdir").host == "driver"
    assert only(diagnosis, "data", socket.gethostname()).advice
    assert only(diagnosis, "slots").level == "ok"


def test_a_cache_that_is_too_small_is_reported(sparks, tmp_path):
    (tmp_path / "data.bin").write_bytes(bytes(5000))
    folder = tmp_path / "cache"
    spark = sparks.get(
        "local[1]",
        **{
            "spark.experiment.cache.limit": "1000b",
            "spark.experiment.cache.folder": str(folder),
        },
    )
    data = f"local://{tmp_path}/data.bin"  # of fsspec, unlike a file of the host it is copied
    finding = only(examine(spark, tmp_path / "runs", data=data), "data")
    assert finding.level == "warning"
    assert finding.got == f"1 file, 5 kB; {folder} has room for 1 kB"
    assert "spark.experiment.cache.limit" in finding.advice


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"data": 5}, "data"),
        ({"data": ""}, "data"),
        ({"data": "hdfs:/one-slash"}, "data"),
        ({"train": "train"}, "train"),
        ({"logdir": 5}, "logdir"),
        ({"logdir": "ftp://host/runs"}, "logdir"),
        ({"gpus_per_trial": -1}, "gpus_per_trial"),
        ({"trials_per_gpu": 0}, "trials_per_gpu"),
        ({"gpus_per_trial": 2, "trials_per_gpu": 2}, "trials_per_gpu"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
    ],
)
def test_bad_arguments_are_refused_before_spark_is_used(given, named):
    with pytest.raises(experiment.InvalidArgument) as caught:
        experiment.doctor(None, **given)
    assert caught.value.name == named


def test_only_a_running_session_is_accepted(sparks):
    with pytest.raises(experiment.InvalidArgument, match="spark: expected a SparkSession"):
        experiment.doctor(None)
    spark = sparks.get("local[1]")
    sparks.stop()
    with pytest.raises(experiment.InvalidArgument, match="a stopped one"):
        experiment.doctor(spark)
