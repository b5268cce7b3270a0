"""Real Spark sessions, one at a time, and a last check that no process outlives the suite."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import secrets
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import properties
from tests.servers import jvm
from tests.servers.spark_home import spark_home

# These tests import packages that only `make test-browser` installs.
collect_ignore = [] if importlib.util.find_spec("playwright") else ["browser"]

_MARK = "EXPERIMENT_TEST_SUITE"
# Identifies the processes of this suite, and of each worker of pytest-xdist.
_WORKER = os.environ.get("PYTEST_XDIST_WORKER")
os.environ[_MARK] = f"{os.environ[_MARK]}/{_WORKER}/" if _WORKER else uuid.uuid4().hex
# TensorFlow's log is not needed, and a fresh import of it needs its compiled files.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("PYSPARK_PYTHON", None)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# Defaults of each driver that a test starts.
with contextlib.suppress(ModuleNotFoundError):  # tests on a GPU need no Spark
    os.environ.setdefault("SPARK_HOME", str(spark_home()))
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{jvm.SPARK_OPTIONS} -Dspark.authenticate=true")
os.environ.setdefault("SPARK_LAUNCHER_OPTS", jvm.LAUNCHER_OPTIONS)


properties.register()


class Sparks:
    """Keeps one session; a test with another master or other settings gets a new one."""

    def __init__(self) -> None:
        self._session: Any = None
        self._wanted: dict[str, str] = {}

    def get(self, master: str, **settings: str) -> Any:
        from pyspark.sql import SparkSession

        wanted = {"master": master, **settings}
        if self._session is not None and wanted == self._wanted and self._alive():
            return self._session
        self.stop()
        builder = SparkSession.builder.master(master).appName("tests")
        builder = builder.config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.warehouse.dir", "/nonexistent")
        builder = builder.config("spark.executor.extraJavaOptions", jvm.SPARK_OPTIONS)
        # Applications that start in the same second would share a folder for their executors.
        pattern = f"app-%s-%04d-{_WORKER or os.getpid()}"
        builder = builder.config("spark.deploy.appIdPattern", pattern)
        if master.startswith("local-cluster"):
            settings = {"spark.authenticate.secret": secrets.token_hex(16), **settings}
        if "spark.authenticate.secret" in settings:
            _use_secret(settings["spark.authenticate.secret"])
        for name, value in settings.items():
            builder = builder.config(name, value)
        self._session, self._wanted = builder.getOrCreate(), wanted
        self._session.sparkContext.setLogLevel("OFF")
        return self._session

    def stop(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None

    def _alive(self) -> bool:
        return self._session.sparkContext._jsc is not None


@pytest.fixture(scope="session")
def sparks() -> Iterator[Sparks]:
    from pyspark import SparkContext

    # A JVM keeps the settings that it was started with: all sessions would have the first one's.
    SparkContext._ensure_initialized()
    keeper = Sparks()
    yield keeper
    keeper.stop()
    _end_jvm()


@pytest.fixture
def spark(sparks: Sparks) -> Any:
    """A local session with two slots."""
    return sparks.get("local[2]")


@pytest.fixture
def own_zygotes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots start their zygotes themselves, so a trial is a grandchild of its slot."""
    from spark_jobs.session.session import Session

    monkeypatch.setattr(Session, "keep_warm", lambda self: 0.0)


@pytest.fixture
def cluster(sparks: Sparks, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two executors in JVMs of their own."""
    return sparks.get(
        "local-cluster[2,1,1024]",
        **{"spark.executor.memory": "512m", "spark.executor.memoryOverhead": "384m"},
    )


@pytest.fixture
def one_executor(sparks: Sparks, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An executor with four cores and the GPUs 3 and 5, which tasks do not get by default."""
    script = tmp_path_factory.getbasetemp() / "discover-3-and-5"
    script.write_text('#!/bin/sh\necho \'{"name": "gpu", "addresses": ["3", "5"]}\'\n')
    script.chmod(0o755)
    settings = {
        f"spark.{whose}.resource.gpu.{name}": value
        for whose in ("worker", "executor")
        for name, value in {"amount": "2", "discoveryScript": str(script)}.items()
    }
    memory = {"spark.executor.memory": "512m"}
    return sparks.get("local-cluster[1,4,1024]", **memory, **settings)


@pytest.fixture(scope="session")
def hdfs_of_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A NameNode and two DataNodes; skipped where Hadoop's servers cannot be had.

    `EXPERIMENT_TEST_HDFS` names a cluster to use instead, see `GivenHdfs`.
    """
    from tests.servers.hdfs import GivenHdfs, Hdfs, HdfsUnavailable, server_classes

    if given := os.environ.get("EXPERIMENT_TEST_HDFS"):
        yield GivenHdfs(given)
        return
    try:
        server_classes()
    except HdfsUnavailable as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no HDFS: {error}")
    with Hdfs(tmp_path_factory.mktemp("hdfs"), datanodes=2) as hdfs:
        yield hdfs


@pytest.fixture
def hdfs(hdfs_of_session: Any) -> Iterator[Any]:
    """The HDFS of the session; servers that a test ended are started again."""
    yield hdfs_of_session
    hdfs_of_session.restore()


@pytest.fixture(scope="session")
def standalone_of_session(
    sparks: Sparks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A standalone master with workers that simulate two hosts."""
    from tests.servers.standalone import Standalone

    with Standalone(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster
        sparks.stop()  # before its master


@pytest.fixture
def standalone(standalone_of_session: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The standalone cluster of the session; workers that a test ended are started again."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # for sessions that the test creates
    yield standalone_of_session
    standalone_of_session.restore()


@pytest.fixture
def two_hosts(sparks: Sparks, standalone: Any) -> Any:
    """A session with an executor of one core on each host of the standalone cluster."""
    return sparks.get(standalone.master, **standalone.settings())


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A substitute for NVIDIA's library; skipped if it cannot be compiled."""
    from tests.fake_nvml import NoCompiler, build

    try:
        return build(tmp_path_factory.mktemp("nvml"))
    except NoCompiler as error:
        pytest.skip(str(error))


@pytest.fixture
def nvml(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two simulated GPUs for the real `pynvml` of this process."""
    import pynvml

    from tests.fake_nvml import FakeNvml

    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(nvml_library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    gpus = FakeNvml(tmp_path / "gpus")
    monkeypatch.setenv("FAKE_NVML", str(gpus.root))
    return gpus


@pytest.fixture
def logdir(tmp_path: Path) -> str:
    """A folder for runs, with a name that must be quoted."""
    return str(tmp_path / "runs of ü 'quoted'")


def _use_secret(secret: str) -> None:
    """Remove the secret of an earlier local session from the JVM, which Spark would prefer."""
    from pyspark import SparkContext

    hadoop: Any = SparkContext._jvm.org.apache.hadoop
    credentials = hadoop.security.Credentials()
    credentials.addSecretKey(hadoop.io.Text("sparkCookie"), secret.encode())
    hadoop.security.UserGroupInformation.getCurrentUser().addCredentials(credentials)


def _end_jvm() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=240)
        SparkContext._gateway = SparkContext._jvm = None


def marked_processes() -> list[psutil.Process]:
    """Return the running processes that this suite has started."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get(_MARK, "").startswith(os.environ[_MARK])
            if (
                ours
                and process.pid != os.getpid()
                and process.status() != psutil.STATUS_ZOMBIE
                and not _is_resource_tracker(process)
            ):
                found.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return found


def _is_resource_tracker(process: psutil.Process) -> bool:
    """Return whether it is the helper of `multiprocessing`, which ends with this process."""
    helper = any("multiprocessing.resource_tracker" in part for part in process.cmdline())
    return helper and process.ppid() == os.getpid()


def marked_commands() -> dict[int, str]:
    """Return the command lines of the running processes that this suite has started."""
    found = {}
    for process in marked_processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            found[process.pid] = " ".join(process.cmdline())
    return found


# Fixtures that start servers or executors in JVMs of their own.
_SERVERS = (
    "hdfs_of_session",
    "https_hdfs",
    "standalone_of_session",
    "connect",
    "cluster",
    "one_executor",
)


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")
        if _server(item) < len(_SERVERS):
            _leave_to_ci(item)
    # pytest-xdist gives each process consecutive tests: in this order few start the same server.
    items.sort(key=_server)


def _server(item: pytest.Item) -> int:
    """Return the place in `_SERVERS` of the first one that a test needs, or their number."""
    needed = set(getattr(item, "fixturenames", ()))
    return next((n for n, name in enumerate(_SERVERS) if name in needed), len(_SERVERS))


def _leave_to_ci(item: pytest.Item) -> None:
    if item.get_closest_marker("slow") is None:  # else its own marks say where it runs
        item.add_marker("slow")
        item.add_marker("contract")


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    yield  # pytest-xdist ends its workers
    if _WORKER:
        return
    until = time.monotonic() + 120
    while (left := marked_processes()) and time.monotonic() < until:
        time.sleep(0.1)
    for process in left:
        print(f"\nstill running after the suite: {process}", file=sys.stderr)
    print(f"\n{len(left)} processes outlived the suite")
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
