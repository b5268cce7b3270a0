from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from search.errors import InvalidArgument
from spark_jobs.addresses import named
from spark_jobs.session import active_data_settings
from spark_jobs.session.classic import ClassicSession, make_session
from spark_jobs.session.connect import ConnectSession
from spark_jobs.session.session import Session


@pytest.mark.parametrize("wrong", [None, "local[2]", object()])
def test_anything_but_a_session_is_refused(wrong):
    with pytest.raises(InvalidArgument, match="spark: expected a SparkSession"):
        ClassicSession(wrong)


def test_a_spark_context_is_refused(spark):
    with pytest.raises(InvalidArgument, match="SparkContext"):
        ClassicSession(spark.sparkContext)


def test_a_stopped_session_is_refused(sparks):
    stopped = sparks.get("local[1]")
    sparks.stop()
    with pytest.raises(InvalidArgument, match="a stopped one"):
        ClassicSession(stopped)


def test_a_job_on_a_server_of_spark_connect_starts_no_jvm(monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:15002")
    monkeypatch.delattr(SparkContext, "_ensure_initialized")
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda builder: "of the server")
    assert make_session() == "of the server"


@pytest.mark.parametrize(
    ("master", "settings", "slots"),
    [("local[3]", {}, 3), ("local[4,2]", {"spark.task.cpus": "2"}, 2), ("local", {}, 1)],
)
def test_task_slots_of_local_masters(sparks, master, settings, slots):
    session = ClassicSession(sparks.get(master, **settings))
    assert session.task_slots() == slots
    assert (session.driver_host, session.assigns_gpus) == ("127.0.0.1", False)


def test_task_slots_of_a_cluster(cluster):
    session = ClassicSession(cluster)
    assert session.task_slots() == 2
    assert session.on_this_host


def test_options_for_a_session_that_exists_change_no_setting_of_its_context(sparks):
    """Spark stores them in the session, and reads them nowhere."""
    spark = sparks.get("local[2]", **{"spark.authenticate": "false"})
    options = {
        "spark.authenticate": "true",
        "spark.task.cpus": "2",
        "spark.task.resource.gpu.amount": "1",
        "spark.experiment.keep_warm": "7",
        "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "true",
    }
    SparkSession.builder.config(map=options).getOrCreate()
    session = ClassicSession(spark)
    try:
        assert session.exposure.off == ("spark.authenticate",)
        assert (session.task_needs.cpus, session.assigns_gpus) == (1, False)
        assert session.keep_warm() == 7
        assert session.setting("spark.sql.execution.pyspark.udf.killOnIdleTimeout") == "true"
    finally:
        sparks.stop()  # no other test gets the options


class Settings(ClassicSession):
    """A session without a cluster: only its settings are used."""

    on_this_host = False

    def __init__(self, master, **settings):
        self.master, self._settings = master, settings

    def setting(self, name):
        return self._settings.get(name)


@pytest.mark.parametrize(
    ("master", "mode", "expected"),
    [
        ("yarn", "cluster", True),
        ("yarn", "client", False),
        ("yarn", None, False),
        ("k8s://https://host:443", "cluster", False),
    ],
)
def test_a_driver_is_in_a_container_of_yarn_in_cluster_mode_only(master, mode, expected):
    session = Settings(master, **{"spark.submit.deployMode": mode})
    assert session.in_container is expected


def test_a_local_session_has_the_processors_that_its_jvm_counts(sparks):
    spark = sparks.get("local[*]")
    processors = spark.sparkContext._jvm.java.lang.Runtime.getRuntime().availableProcessors()
    assert ClassicSession(spark).task_slots() == processors


def test_cancelling_ends_this_job_and_no_other(spark, tmp_path):
    session = ClassicSession(spark)
    mark, release = tmp_path / "started", tmp_path / "release"

    def hang(batches):
        import pathlib
        import time

        pathlib.Path(str(mark)).touch()
        time.sleep(600)
        yield from batches

    def other(batches):
        import pathlib
        import time

        while not pathlib.Path(str(release)).exists():
            time.sleep(0.01)
        for _ in batches:
            pass
        yield from ()

    job = session.job(hang, 1, "to-be-cancelled")
    neighbour = session.job(other, 1, "to-be-left")
    job.start()
    neighbour.start()
    while not mark.exists():
        assert not job.wait(0.01)
    job.cancel()
    assert job.wait(0)
    assert job.error is not None
    assert not neighbour.wait(0)
    release.touch()
    assert neighbour.wait(60)
    assert neighbour.error is None


def test_executors_use_this_interpreter(sparks):
    spark = sparks.get("local[2]", **{"spark.a.session": "of its own"})
    expected = sys.executable
    assert spark.sparkContext.pythonExec != expected

    def look(batches):
        import sys

        for _ in batches:
            pass
        assert sys.executable == expected, sys.executable
        yield from ()

    job = ClassicSession(spark).job(look, 2, "interpreter")
    job.start()
    assert job.wait(120)
    assert job.error is None


def test_an_interpreter_that_the_user_chose_stays(sparks, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/such/python")
    spark = sparks.get("local[2]", **{"spark.a.session": "with a choice"})
    job = ClassicSession(spark).job(lambda batches: batches, 1, "chosen")
    job.start()
    assert job.wait(120)
    assert "/no/such/python" in str(job.error)
    assert job.failed_hosts


def test_a_job_that_was_never_started_can_be_left(spark):
    with ClassicSession(spark).job(lambda batches: batches, 1, "never") as job:
        pass
    assert job.error is None


def test_leaving_a_job_ends_it(spark, tmp_path):
    mark = tmp_path / "started"

    def hang(batches):
        import pathlib
        import time

        pathlib.Path(str(mark)).touch()
        time.sleep(600)
        yield from batches

    with pytest.raises(KeyboardInterrupt), ClassicSession(spark).job(hang, 1, "left") as job:
        job.start()
        while not mark.exists():
            assert not job.wait(0.01)
        raise KeyboardInterrupt
    assert job.wait(0)


def test_jobs_of_slots_leave_the_accumulators_of_other_jobs_alone(spark):
    with ClassicSession(spark).job(lambda batches: iter(()), 1, "slots") as job:
        job.start()
        assert job.wait(60)
    total = spark.sparkContext.accumulator(0)
    spark.sparkContext.parallelize([1, 2, 3], 2).foreach(total.add)
    assert total.value == 6


class Meanwhile:
    """Makes a call when it is pickled, as another thread may."""

    def __init__(self, call):
        self.call = call

    def __reduce__(self):
        self.call()
        return int, ()


def test_a_job_that_is_made_at_the_same_time_keeps_its_accumulators(spark):
    total = spark.sparkContext.accumulator(0)
    other = Meanwhile(lambda: spark.sparkContext.parallelize([1, 2, 3], 2).foreach(total.add))

    def slot(batches, other=other):
        return iter(())

    with ClassicSession(spark).job(slot, 1, "slots") as job:
        job.start()
        assert job.wait(60)
    assert total.value == 6


@pytest.mark.parametrize("prefix", ["spark.python.worker", "spark.sql.execution.pyspark.udf"])
def test_settings_that_kill_slots_with_long_trials_are_refused(prefix):
    kills = {f"{prefix}.killOnIdleTimeout": "true", f"{prefix}.idleTimeoutSeconds": "60s"}
    with pytest.raises(InvalidArgument, match="killOnIdleTimeout"):
        Settings("yarn", **kills).check_settings()
    Settings("yarn", **(kills | {f"{prefix}.idleTimeoutSeconds": "0"})).check_settings()
    Settings("yarn").check_settings()


def test_threads_that_share_connections_to_the_jvm_are_refused(monkeypatch):
    """The tag by which a search ends its job would be on another thread's job."""
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    with pytest.raises(InvalidArgument, match="PYSPARK_PIN_THREAD: expected true, .* got 'false'"):
        Settings("yarn").check_settings()
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "True")
    Settings("yarn").check_settings()


def listening(host, address):
    return Settings(
        "yarn", **{"spark.driver.host": host, "spark.driver.bindAddress": address}
    ).bind_host


def test_the_driver_listens_where_spark_does():
    assert listening("192.0.2.1", "10.0.0.9") == "10.0.0.9"
    assert listening("localhost", None) == "localhost"
    assert listening("127.0.0.1", "0.0.0.0") == "127.0.0.1"


def test_in_a_container_the_driver_listens_on_its_own_address():
    """Executors then know the driver by an address of the container's host."""
    assert any(named(listening("192.0.2.1", "0.0.0.0")))
    assert any(named(listening("nowhere.invalid", "0.0.0.0")))


@pytest.mark.parametrize("host", ["127.0.0.1", "[127.0.0.1]"])
def test_a_client_of_spark_connect_listens_at_an_address_with_brackets_too(host):
    session = object.__new__(ConnectSession)
    session._settings = {"spark.experiment.driver.host": host}
    assert session.bind_host == host


CONNECT = """
    import os
    from pyspark.sql import SparkSession
    import experiment
    from spark_jobs.storage.locations import Location
    from spark_jobs.session import active_data_settings

    builder = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.hadoop.fs.defaultFS", "hdfs://nn:8020")
    builder = builder.config("spark.experiment.logdir", os.getcwd())
    builder = builder.config("spark.hadoop.dfs.namenode.http-address", "nn:9999")
    spark = builder.getOrCreate()
    settings = active_data_settings()
    print(settings.hadoop.namenodes(Location.parse("hdfs:///data")), settings.hadoop.user)
    result = experiment.launch(spark, lambda x: 2.0 * x, {"x": [1]}, preload=(), verbose=0)
    print(result.best.value)
    spark.stop()
"""


@pytest.mark.slow
def test_a_session_of_spark_connect_says_where_hdfs_is_and_runs_searches(tmp_path):
    script = tmp_path / "connect.py"
    script.write_text(textwrap.dedent(CONNECT))
    path = os.pathsep.join(folder for folder in sys.path if folder)
    ran = subprocess.run(
        [sys.executable, script],
        env={
            **os.environ,
            "PYTHONPATH": path,
            "PYSPARK_PYTHON": sys.executable,
            "HADOOP_USER_NAME": "me",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.stdout.splitlines()[:2] == ["('http://nn:9999',) me", "2.0"], ran.stderr


def test_the_settings_of_the_session_are_those_of_every_thread(spark):
    assert active_data_settings().hadoop.values
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(active_data_settings).result() == active_data_settings()


@pytest.mark.parametrize("error", [ConnectionRefusedError(), Py4JNetworkError()], ids=repr)
@pytest.mark.usefixtures("spark")
def test_a_session_whose_jvm_has_ended_counts_as_none(monkeypatch, error):
    """So the results of its searches can be looked at."""

    def active():
        raise error

    monkeypatch.setattr(SparkSession, "active", active)
    assert not active_data_settings().hadoop.values


@pytest.mark.usefixtures("spark")
def test_a_session_whose_server_does_not_answer_counts_as_none(monkeypatch):
    def session_of(given):
        raise InvalidArgument("spark", "a Spark Connect server that answers", "no answer")

    monkeypatch.setattr("spark_jobs.session.session_of", session_of)
    assert not active_data_settings().hadoop.values


def test_the_settings_of_a_stopped_context_count_no_more(sparks):
    context = sparks.get("local[1]").sparkContext
    context.stop()
    try:
        assert not active_data_settings().hadoop.values
    finally:
        sparks.stop()


@pytest.mark.parametrize(
    ("dynamic", "there", "slots"),
    [(False, 3, 2**31), (True, 3, 3), (True, 0, 1), (True, None, None)],
)
def test_present_slots_are_waited_for_and_are_not_those_that_spark_may_add(dynamic, there, slots):
    session = SimpleNamespace(
        task_slots=lambda tick=None: 1 if tick is None else 2**31,
        _is_on=lambda name: dynamic,
        cluster=lambda: SimpleNamespace(tasks=lambda needs: there),
        task_needs=None,
    )
    assert Session.present_slots(session) == slots


@pytest.mark.slow
@pytest.mark.contract
def test_a_new_jvm_has_the_addresses_of_hdfs_site_xml(tmp_path):
    """Hadoop reads the file only once something in the JVM uses HDFS."""
    addresses = {
        "core-site.xml": ("fs.defaultFS", "hdfs://namenode.invalid:8020"),
        "hdfs-site.xml": ("dfs.namenode.http-address", "\n  namenode.invalid:9999\n"),
    }
    for file, (name, value) in addresses.items():
        text = f"<property><name>{name}</name><value>{value}</value></property>"
        (tmp_path / file).write_text(f"<configuration>{text}</configuration>")
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            from pyspark.sql import SparkSession

            from spark_jobs.session import active_data_settings

            spark = SparkSession.builder.master("local[1]").getOrCreate()
            print(active_data_settings().hadoop.values["dfs.namenode.http-address"])
            spark.stop()
        """)
    )
    ran = subprocess.run(
        [sys.executable, script],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HADOOP_CONF_DIR": str(tmp_path),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (0, "namenode.invalid:9999\n"), ran.stderr[-2000:]
