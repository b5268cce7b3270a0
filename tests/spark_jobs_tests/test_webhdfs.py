"""Reading from a real HDFS, also while its nodes die."""

from __future__ import annotations

import getpass
import itertools
import os
import random
import socket
import threading

import hdfs as hdfs_package
import pytest

from spark_jobs.hadoop import HadoopSettings
from spark_jobs.locations import Location
from spark_jobs.webhdfs import WebHdfs
from tests.spark_jobs_tests.files_contract import FilesContract

_FOLDERS = itertools.count()


@pytest.fixture
def settings(hdfs):
    return HadoopSettings(hdfs.settings(), getpass.getuser())


@pytest.fixture
def root(hdfs):
    """The location of the root of the HDFS."""
    return Location.parse(hdfs.uri + "/")


@pytest.fixture
def files(settings, root):
    files = WebHdfs(root, settings)
    yield files
    files.close()


@pytest.fixture
def client(hdfs):
    client = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=30)
    yield client
    client._session.close()


class TestWebHdfs(FilesContract):
    @pytest.fixture
    def files(self, settings, root):
        files = WebHdfs(root, settings)
        yield files
        files.close()

    @pytest.fixture
    def folder(self, root, client):
        path = f"/contract-{next(_FOLDERS)}"
        client.makedirs(path)
        return root.at(path)

    @pytest.fixture
    def put(self, client):
        return lambda location, data: client.write(location.path, data=data, overwrite=True)


def read(files, location, disturb=lambda reached: None):
    """Return a file's bytes; `disturb` is told how many there are, after each piece."""
    pieces, reached = [], 0

    def sink(data):
        nonlocal reached
        pieces.append(data)
        reached += len(data)
        disturb(reached)

    files.read(files.status(location), sink)
    return b"".join(pieces)


def once(after, action):
    """Return a disturbance that acts when more than `after` bytes are there."""
    done = []

    def disturb(reached):
        if reached > after and not done:
            done.append(True)
            action()

    return disturb


def test_a_read_goes_on_from_a_replica_when_a_datanode_is_killed(hdfs, files, root, client):
    data = random.Random(1).randbytes(40 << 20)
    client.write("/killed", data=data, overwrite=True, replication=2)
    for name in ("datanode0", "datanode1"):
        kill = once(5 << 20, lambda name=name: hdfs.kill(name))
        assert read(files, root.at("/killed"), kill) == data
        hdfs.restore()


def test_a_read_goes_on_when_the_namenode_comes_back(hdfs, files, root, client):
    data = random.Random(2).randbytes(8 << 20)
    client.write("/restarted", data=data, overwrite=True, replication=2)
    hdfs.kill("namenode")
    starter = threading.Thread(target=hdfs.start_namenode)
    starter.start()
    try:
        assert read(files, root.at("/restarted")) == data
    finally:
        starter.join()


def test_files_are_read_in_safe_mode(hdfs, files, root, client):
    client.write("/safe", data=b"safe", overwrite=True)
    hdfs.admin("-safemode", "enter")
    try:
        assert read(files, root.at("/safe")) == b"safe"
    finally:
        hdfs.admin("-safemode", "leave")


def test_large_files_arrive_whole_while_nodes_are_killed_in_turn(hdfs, files, root, client):
    data = random.Random(3).randbytes(200 << 20)
    client.write("/large", data=data, overwrite=True, replication=2)
    names = itertools.cycle(["datanode0", "datanode1"])
    at = [(20 + 60 * number) << 20 for number in range(3)]

    def disturb(reached):
        if at and reached > at[0]:
            at.pop(0)
            hdfs.restore()
            hdfs.kill(next(names))

    assert read(files, root.at("/large"), disturb) == data
    assert not at


def refusal(call):
    with pytest.raises(OSError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert "org.apache" not in message.replace("org.apache.hadoop.security.", "")
    return caught.value, message


def test_a_missing_file_is_named_with_user_and_host(hdfs, files, root):
    error, message = refusal(lambda: files.status(root.at("/no such file")))
    assert isinstance(error, FileNotFoundError)
    for part in (f"{hdfs.uri}/no such file", getpass.getuser(), hdfs.http):
        assert part in message


def test_a_file_of_another_user_is_no_permission(hdfs, root, client):
    client.write("/mine", data=b"mine", overwrite=True, permission="600")
    other = WebHdfs(root, HadoopSettings(hdfs.settings(), "somebody"))
    error, message = refusal(lambda: read(other, root.at("/mine")))
    other.close()
    assert isinstance(error, PermissionError)
    assert "somebody" in message


def test_the_rpc_port_is_recognised(hdfs):
    location = Location.parse(hdfs.uri.replace("hdfs://", "webhdfs://") + "/x")
    files = WebHdfs(location, HadoopSettings(), patience=5)
    _, message = refusal(lambda: files.status(location))
    files.close()
    assert "RPC port; WebHDFS answers on another, by default 9870" in message


@pytest.mark.parametrize("where", ["closed", "unknown"])
def test_nothing_there_is_one_sentence(where):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}" if where == "closed" else "nowhere.invalid"
        location = Location.parse(f"webhdfs://{address}/x")
        files = WebHdfs(location, HadoopSettings(), patience=1)
        _, message = refusal(lambda: files.status(location))
        files.close()
    assert "no WebHDFS at http://" in message
    assert "is the address right" in message


def test_a_file_that_changed_meanwhile_is_said(files, root, client):
    client.write("/changed", data=b"0123456789", overwrite=True)
    before = files.status(root.at("/changed"))
    client.write("/changed", data=b"01234", overwrite=True)
    with pytest.raises(OSError, match="changed meanwhile"):
        files.read(before, lambda data: None)


def test_a_proxy_for_the_outside_is_not_asked(hdfs, settings, root, monkeypatch, client):
    client.write("/direct", data=b"direct", overwrite=True)
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setitem(os.environ, name, "http://127.0.0.1:9")
    files = WebHdfs(root, settings, patience=1)
    assert read(files, root.at("/direct")) == b"direct"
    files.close()
