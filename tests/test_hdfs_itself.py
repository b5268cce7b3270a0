import random
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import requests
from hdfs import HdfsError, InsecureClient
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

import tests.servers.hdfs
from tests.servers.hdfs import Hdfs, HdfsUnavailable, server_classes

DATA = random.Random(1).randbytes(5_000_000)


def passes(error):
    """Say whether a client meets this error only until the servers have met again."""
    if isinstance(error, HdfsError):
        return error.exception != "SafeModeException"
    return isinstance(error, (requests.RequestException, AssertionError))


patiently = Retrying(
    retry=retry_if_exception(passes), stop=stop_after_delay(60), wait=wait_fixed(0.1), reraise=True
)


@pytest.fixture
def client(hdfs):
    client = InsecureClient(hdfs.http, timeout=10)
    yield client
    client._session.close()


def read(client, path):
    def attempt():
        with client.read(path) as file:
            return file.read()

    return patiently(attempt)


def write(client, path, data, **options):
    patiently(client.write, path, data, overwrite=True, **options)


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_gone(pid):
    assert is_gone(pid)


def test_a_written_file_can_be_read_and_has_two_replicas(hdfs, client):
    write(client, "/two", DATA, replication=2)
    assert read(client, "/two") == DATA
    status = client.status("/two")
    assert (status["length"], status["replication"]) == (len(DATA), 2)
    assert hdfs.settings()["fs.defaultFS"] == hdfs.uri


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_one_dead_datanode_does_not_stop_readers(hdfs, client, number):
    write(client, "/survivor", DATA, replication=2)
    before = hdfs.pids()
    hdfs.kill(f"datanode{number}")
    assert is_gone(before[f"datanode{number}"])
    assert read(client, "/survivor") == DATA
    hdfs.wait_ready(live=1)

    # The process outlives the thread that asked for it.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(hdfs.start_datanode, number).result()
        hdfs.wait_ready()
    assert hdfs.pids().keys() == before.keys()
    assert read(client, "/survivor") == DATA


@pytest.mark.slow
def test_a_restarted_namenode_has_its_files(hdfs, client):
    write(client, "/kept", DATA)
    hdfs.kill("namenode")
    with pytest.raises(requests.ConnectionError):
        client.status("/kept")
    hdfs.start_namenode()
    hdfs.wait_ready()
    assert read(client, "/kept") == DATA
    write(client, "/more", DATA)


def test_a_paused_namenode_answers_later(hdfs):
    client = InsecureClient(hdfs.http, timeout=0.5)
    hdfs.pause("namenode")
    with pytest.raises(requests.ReadTimeout):
        client.list("/")
    with pytest.raises(TimeoutError, match=r"namenode\.log"):
        hdfs.wait_ready(timeout=0)
    hdfs.resume("namenode")
    patiently(client.list, "/")
    client._session.close()


def test_safe_mode_refuses_a_write(hdfs, client):
    assert "ON" in hdfs.admin("-safemode", "enter")
    try:
        with pytest.raises(HdfsError) as refused:
            write(client, "/refused", b"")
        assert refused.value.exception == "SafeModeException"
    finally:
        assert "OFF" in hdfs.admin("-safemode", "leave")


def test_a_refused_admin_command_says_why(hdfs):
    with pytest.raises(RuntimeError, match="nonsense"):
        hdfs.admin("-setSpaceQuota", "nonsense", "/")


def test_bytes_read_counts(hdfs, client):
    def total():
        return sum(map(hdfs.bytes_read, (0, 1)))

    write(client, "/counted", DATA)
    before = total()
    read(client, "/counted")

    def check():
        assert len(DATA) <= total() - before < 1.1 * len(DATA)

    patiently(check)


@pytest.mark.slow
def test_stop_ends_all_processes_and_leaves_only_logs(tmp_path, monkeypatch):
    monkeypatch.setattr(
        tests.servers.hdfs, "FORMATTED", tmp_path / "none"
    )  # else nothing is formatted
    with Hdfs(tmp_path, datanodes=1) as hdfs:
        assert (tmp_path / "format.log").exists()
        pids = hdfs.pids()
        assert pids.keys() == {"namenode", "datanode0"}
        assert not any(map(is_gone, pids.values()))
        hdfs.pause("datanode0")
    assert all(map(is_gone, pids.values()))
    assert hdfs.pids() == {}
    assert {path.suffix for path in tmp_path.iterdir()} == {".log", ".properties"}
    with pytest.raises(ValueError, match="stopped"):
        hdfs.start_namenode()


@pytest.mark.slow
@pytest.mark.contract
def test_a_failed_start_shows_the_log_and_leaves_no_process(tmp_path):
    hdfs = Hdfs(tmp_path, properties={"dfs.namenode.name.dir": "unknown://folder"})
    with pytest.raises(RuntimeError, match=r"(?s)format\.log.*unknown"):
        hdfs.start()
    assert hdfs.pids() == {}
    assert not (tmp_path / "data").exists()


def test_a_folder_name_that_hadoop_cannot_use_is_refused(tmp_path):
    with pytest.raises(ValueError, match="plain"):
        Hdfs(tmp_path / "a b")


def test_no_process_outlives_a_killed_parent():
    program = (
        "import subprocess, tests.servers.hdfs\n"
        "command = tests.servers.hdfs.dying_with_parent(['sleep', '600'])\n"
        "child = subprocess.Popen(command, stdout=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        assert not is_gone(child)
        parent.kill()
    patiently(wait_gone, child)


def test_two_runs_that_start_at_once_fetch_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []

    def fetch(version, folder):
        calls.append(version)
        time.sleep(0.2)  # so that the other one comes meanwhile
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / "classes.jar", "w") as jar:
            jar.writestr("A.class", "a")
            jar.writestr("META-INF/versions/9/A.class", "of no use")
            jar.writestr("webapps/hdfs/index.html", "a page")
        return [folder / "classes.jar"]

    monkeypatch.setattr(tests.servers.hdfs, "_fetch", fetch)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: server_classes(), range(2))
    assert first == second
    assert len(calls) == 1
    with zipfile.ZipFile(first / "classes.jar") as jar:
        assert jar.namelist() == ["A.class"]
    assert (first / "webapps/hdfs/index.html").read_text() == "a page"


@pytest.mark.slow
@pytest.mark.contract
def test_classes_that_cannot_be_fetched_are_named_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # Neither an index, since nothing listens there, nor what Maven has in the home folder.
    proxy = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{proxy} -Duser.home={tmp_path}")
    with pytest.raises(HdfsUnavailable, match=r"(?s)fetched.*Connection refused"):
        server_classes()
    cache = tmp_path / "spark-tf-experiment-tests"
    assert [path.suffix for path in cache.iterdir()] == [".lock"]
