"""Reading from and writing to a real HDFS, also while its nodes die."""

from __future__ import annotations

import contextlib
import getpass
import http.server
import io
import itertools
import json
import os
import random
import socket
import threading
import time

import hdfs as hdfs_package
import pytest
import requests
import tenacity

from spark_jobs.storage import webhdfs
from spark_jobs.storage.files import FileStatus, StoreUnavailable, check_writable
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.webhdfs import WebHdfs
from tests.spark_jobs.storage.disturbed_hdfs import (
    Impostor,
    datanodes,
    disturbed,
    once,
    read,
)
from tests.spark_jobs.storage.files_contract import WritableFilesContract

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
def patient_files(settings, root):
    """For one call that survives the ends of several nodes, and their restarts between."""
    with contextlib.closing(WebHdfs(root, settings, patience=200)) as files:
        yield files


@pytest.fixture
def client(hdfs):
    client = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=30)
    # Each DataNode answers its first client after a restart of the NameNode by an error.
    client.write = tenacity.retry(reraise=True, stop=tenacity.stop_after_attempt(5))(client.write)
    yield client
    client._session.close()


class TestWebHdfs(WritableFilesContract):
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

    @pytest.fixture
    def mode(self, client):
        return lambda location: int(client.status(location.path)["permission"], 8)


def test_a_name_in_decomposed_characters_is_not_another_file(files, root):
    """As macOS writes names. The NameNode composes them in its redirects to DataNodes."""
    folder = root.below(f"names{next(_FOLDERS)}")
    composed, decomposed = folder.below("caf\u00e9"), folder.below("cafe\u0301")
    files.write(composed, b"composed")
    files.write(decomposed, b"decomposed")
    files.append(decomposed, b"!", len(b"decomposed"))
    assert read(files, decomposed) == b"decomposed!"
    assert read(files, composed) == b"composed"


def test_nothing_is_below_a_file_also_for_users_who_are_not_the_superuser(hdfs, files, root):
    folder = root.below(f"alice{next(_FOLDERS)}")
    files.make_folder(folder)
    files._client.set_permission(folder.path, "777")
    alice = WebHdfs(root, HadoopSettings(hdfs.settings(), "alice"))
    with contextlib.closing(alice):
        alice.write(folder.below("file"), b"1")
        with pytest.raises(FileNotFoundError, match="as user alice"):
            alice.status(folder.below("file/child"))


@pytest.mark.fault(27)
def test_a_read_resumes_from_a_replica_when_a_datanode_is_killed(hdfs, files, root, client):
    data = random.Random(1).randbytes(40 << 20)
    client.write("/killed", data=data, overwrite=True, replication=2)
    for name in ("datanode0", "datanode1"):
        kill = once(5 << 20, lambda name=name: hdfs.kill(name))
        assert read(files, root.at("/killed"), kill) == data
        hdfs.restore()


@pytest.mark.slow
@pytest.mark.fault(28)
def test_a_read_resumes_when_the_namenode_restarts(hdfs, files, root, client):
    data = random.Random(2).randbytes(8 << 20)
    client.write("/restarted", data=data, overwrite=True, replication=2)
    hdfs.kill("namenode")
    starter = threading.Thread(target=hdfs.start_namenode)
    starter.start()
    try:
        assert read(files, root.at("/restarted")) == data
    finally:
        starter.join()


@pytest.mark.fault(28)
def test_files_are_read_in_safe_mode(hdfs, files, root, client):
    client.write("/safe", data=b"safe", overwrite=True)
    hdfs.admin("-safemode", "enter")
    try:
        assert read(files, root.at("/safe")) == b"safe"
    finally:
        hdfs.admin("-safemode", "leave")


class KilledInTurn:
    """A disturbance that kills the one DataNode and then the other, at 20, 80 and 140 MB."""

    def __init__(self, hdfs):
        self._hdfs, self._names = hdfs, itertools.cycle(["datanode0", "datanode1"])
        self.at = [(20 + 60 * number) << 20 for number in range(3)]

    def __call__(self, reached):
        if self.at and reached > self.at[0]:
            self.at.pop(0)
            self._hdfs.restore()
            self._hdfs.kill(next(self._names))


@pytest.mark.thorough
@pytest.mark.fault(27)
@pytest.mark.slow
def test_large_files_are_written_and_read_whole_while_nodes_are_killed_in_turn(
    hdfs, patient_files, root, source_of, disturbed_source
):
    data = random.Random(3).randbytes(200 << 20)
    there, back = KilledInTurn(hdfs), KilledInTurn(hdfs)
    disturbed_source(there)
    patient_files.write(root.at("/large"), source_of(data))
    hdfs.restore()
    wait_for_replicas(hdfs, "/large")
    assert read(patient_files, root.at("/large"), back) == data
    assert not there.at
    assert not back.at


@pytest.fixture
def source_of(tmp_path):
    """A function of bytes: a file of this host that holds them."""

    def make(data):
        (tmp_path / "source").write_bytes(data)
        return tmp_path / "source"

    return make


@pytest.fixture
def disturbed_source(monkeypatch):
    """A function of a disturbance, through which all later writes go."""
    plain = webhdfs.pieces

    def use(disturb):
        monkeypatch.setattr(webhdfs, "pieces", lambda *given: disturbed(plain(*given), disturb))

    return use


@pytest.fixture
def disturbed_appends(monkeypatch):
    """A function of a `WebHdfs` and a disturbance, through which all later appends go."""

    def use(files, disturb):
        plain = files._client.write

        def write(path, data, **options):
            if options.get("append"):
                slices = [data[at : at + (1 << 16)] for at in range(0, len(data), 1 << 16)]
                data = disturbed(slices, disturb)
            return plain(path, data=data, **options)

        monkeypatch.setattr(files._client, "write", write)

    return use


def wait_for_replicas(hdfs, path):
    """Wait until each block of a file has two replicas, so that one DataNode may be killed."""
    end = time.monotonic() + 120
    query = f"/webhdfs/v1{path}?op=GETFILEBLOCKLOCATIONS&user.name={getpass.getuser()}"
    while time.monotonic() < end:
        answer = requests.get(hdfs.http + query, timeout=30).json()
        blocks = answer["BlockLocations"]["BlockLocation"]
        if blocks and all(len(block["names"]) == 2 for block in blocks):
            return
        time.sleep(0.1)
    raise TimeoutError(blocks)


def left(client, path):
    """Return the names in a folder."""
    return sorted(client.list(path))


@pytest.mark.fault(27)
@pytest.mark.parametrize("role", ["taker", pytest.param("other", marks=pytest.mark.slow)])
def test_a_write_arrives_whole_when_a_datanode_is_killed(
    hdfs, files, root, client, source_of, disturbed_source, role
):
    data, folder = random.Random(4).randbytes(40 << 20), f"/write-killed-{role}"
    client.write(f"{folder}/a", data=b"before")
    disturbed_source(once(20 << 20, lambda: hdfs.kill(datanodes(hdfs)[role])))
    files.write(root.at(f"{folder}/a"), source_of(data))
    assert len(hdfs.pids()) == 2
    assert read(files, root.at(f"{folder}/a")) == data
    assert left(client, folder) == ["a"]


@pytest.mark.slow
@pytest.mark.fault(27)
def test_an_append_arrives_whole_when_the_next_datanode_is_killed(
    hdfs, files, root, client, disturbed_appends
):
    data = random.Random(5).randbytes(12 << 20)
    client.write("/append-next", data=data[:5], overwrite=True, replication=2)
    disturbed_appends(files, once(4 << 20, lambda: hdfs.kill(datanodes(hdfs)["other"])))
    files.append(root.at("/append-next"), data[5:], 5)
    assert len(hdfs.pids()) == 2
    assert read(files, root.at("/append-next")) == data


@pytest.mark.slow
@pytest.mark.fault(27)
def test_an_append_whose_datanode_is_killed_is_refused_and_a_new_file_is_not(
    hdfs, files, root, client, source_of, disturbed_appends
):
    """The lease is the dead DataNode's, for a minute at least; a new file has none."""
    data = random.Random(6).randbytes(12 << 20)
    client.write("/lease/a", data=data[:5], overwrite=True, replication=2)
    disturbed_appends(files, once(4 << 20, lambda: hdfs.kill(datanodes(hdfs)["taker"])))
    error, message = refusal(lambda: files.append(root.at("/lease/a"), data[5:], 5))
    assert not isinstance(error, ConnectionError), message
    assert f"{hdfs.uri}/lease/a" in message
    found = read(files, root.at("/lease/a"))
    assert data.startswith(found)
    files.write(root.at("/lease/a"), source_of(data))
    assert read(files, root.at("/lease/a")) == data
    files.append(root.at("/lease/a"), b"more", len(data))
    assert read(files, root.at("/lease/a")) == data + b"more"
    assert left(client, "/lease") == ["a"]


def test_an_append_that_arrived_twice_is_noticed(files, root, client, monkeypatch):
    """As by a DataNode that hung and continued after the next one was asked."""
    client.write("/twice", data=b"12345", overwrite=True)
    plain, tries = files._client.write, []

    def write(path, data, **options):
        tries.append(data)
        if len(tries) == 1:
            raise ConnectionError("as if it hung")
        plain(path, data=tries[0], append=True)
        plain(path, data=data, append=True)

    monkeypatch.setattr(files._client, "write", write)
    with pytest.raises(OSError, match="9 bytes where 7 should be"):
        files.append(root.at("/twice"), b"67", 5)


@pytest.mark.parametrize("replace", [True, False])
def test_a_rename_whose_answer_was_lost_succeeds(files, root, client, monkeypatch, replace):
    folder = f"/lost answer/{replace}"
    client.write(f"{folder}/a", data=b"12345", overwrite=True)
    plain, tries = files._client._rename, []

    def rename(path, **options):
        answer = plain(path, **options)
        tries.append(answer)
        if len(tries) == 1:
            raise ConnectionError("as if the network broke")
        return answer

    monkeypatch.setattr(files._client, "_rename", rename)
    files.rename(root.at(f"{folder}/a"), root.at(f"{folder}/b"), replace=replace)
    assert len(tries) == 1
    assert client.list(folder) == ["b"]


class OtherNameNodes:
    """A session to two NameNodes, or routers, of which the first one is lost in a rename.

    Args:
        renamed: Whether the file was renamed before.
    """

    def __init__(self, renamed):
        self._renamed, self.asked = renamed, []

    def request(self, method, url, *, params, **options):
        self.asked.append((url.split("/")[2], params["op"]))
        if len(self.asked) == 1:
            raise requests.ReadTimeout("lost")
        name = url.rpartition("/")[2]
        if params["op"] == "RENAME" or name == ("a" if self._renamed else "b"):
            missing = {"exception": "FileNotFoundException", "message": f"no {url}"}
            return answer(404, {"RemoteException": missing})
        return answer(200, {"FileStatus": {"type": "FILE", "length": 1, "modificationTime": 1}})


def answer(status, content):
    """Return an answer of WebHDFS."""
    found = requests.Response()
    found.status_code, found._content = status, json.dumps(content).encode()
    return found


TWO_NAMENODES = {
    "dfs.nameservices": "ns",
    "dfs.ha.namenodes.ns": "1,2",
    "dfs.namenode.rpc-address.ns.1": "nn1:8020",
    "dfs.namenode.rpc-address.ns.2": "nn2:8020",
}


@pytest.mark.parametrize("renamed", [True, False])
@pytest.mark.parametrize("replace", [True, False])
def test_a_rename_whose_answer_one_namenode_lost_is_found_by_the_other(renamed, replace):
    a, b = (Location("hdfs", "ns", f"/{name}") for name in "ab")
    files = WebHdfs(a, HadoopSettings(TWO_NAMENODES), patience=0)
    files._client._session = session = OtherNameNodes(renamed)
    if renamed:
        files.rename(a, b, replace=replace)
    else:
        with pytest.raises(FileNotFoundError, match="hdfs://ns/a"):
            files.rename(a, b, replace=replace)
    assert session.asked == [
        ("nn1:9870", "RENAME"),
        ("nn2:9870", "RENAME"),
        ("nn2:9870", "GETFILESTATUS"),
    ]


def no_answer(url, reason):
    """Return the error of a request that reaches no server."""
    error = requests.ConnectionError(request=requests.Request("GET", url).prepare())
    error.__cause__ = reason
    return error


class LosesSome:
    """A session to HDFS in which the first requests reach no server.

    Args:
        lost: The server that each of them goes to, a NameNode or a DataNode that it names, and why.
    """

    def __init__(self, *lost):
        self._lost = list(lost)

    def request(self, method, url, *, params, **options):
        if self._lost:
            server, reason = self._lost.pop(0)
            raise no_answer(f"http://{server}/webhdfs/v1/a", reason)
        if params["op"] == "OPEN":
            found = answer(200, {})
            found._content, found.raw = False, io.BytesIO(b"hello")
            return found
        return answer(200, {"FileStatus": {"type": "FILE", "length": 5, "modificationTime": 1}})


UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
REFUSED = ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize("reason", [UNKNOWN, REFUSED], ids=["unknown", "refused"])
def test_a_read_continues_from_another_datanode_though_the_name_of_one_is_gone(reason):
    """On Kubernetes the name of a pod ends with the pod."""
    location = Location.parse("webhdfs://nn/a")
    files = WebHdfs(location, HadoopSettings(), patience=5)
    files._client._session = LosesSome(("dn1:9864", reason))
    content = bytearray()
    files.read(
        FileStatus(location=location, length=5, version="1", is_folder=False), content.extend
    )
    assert content == b"hello"


def test_the_other_namenode_is_waited_for_though_the_name_of_one_is_gone():
    location = Location("hdfs", "ns", "/a")
    files = WebHdfs(location, HadoopSettings(TWO_NAMENODES), patience=5)
    files._client._session = LosesSome(("nn1:9870", UNKNOWN), ("nn2:9870", REFUSED))
    assert files.status(location).length == 5


def test_namenodes_without_any_known_name_are_a_wrong_address():
    location = Location("hdfs", "ns", "/a")
    files = WebHdfs(location, HadoopSettings(TWO_NAMENODES), patience=1000)
    files._client._session = LosesSome(("nn1:9870", UNKNOWN), ("nn2:9870", UNKNOWN))
    error, message = refusal(lambda: files.status(location))
    assert type(error) is OSError
    assert "no WebHDFS at http://nn1:9870 or http://nn2:9870" in message


@pytest.mark.parametrize("reason", [UNKNOWN, REFUSED], ids=["unknown", "refused"])
def test_a_datanode_that_cannot_be_reached_is_named(reason):
    location = Location.parse("webhdfs://nn/a")
    files = WebHdfs(location, HadoopSettings(), patience=0)
    files._client._session = LosesSome(*[("DN1:9864", reason)] * 100)
    error, message = refusal(lambda: files.status(location))
    assert isinstance(error, StoreUnavailable)
    assert message == (
        f"webhdfs://nn/a: no answer from the DataNode dn1:9864 within 0 s ({reason.strerror}); "
        "can this host reach it? http://nn:9870 has named it"
    )


def test_a_name_that_is_not_text_is_an_error_that_says_so():
    location = Location("webhdfs", "nn", "/caf\udce9")
    files = WebHdfs(location, HadoopSettings(), patience=0)
    with pytest.raises(
        OSError, match=r"^'webhdfs://nn/caf\\udce9': a name that UTF-8 cannot hold$"
    ):
        files.status(location)


class Gateway:
    """A session to an HttpFS, which does not know the options of a rename."""

    def __init__(self):
        self.files, self.loses_an_answer = {}, False

    def request(self, method, url, *, params, **options):
        path = url.partition("/webhdfs/v1")[2]
        if params["op"] == "RENAME":
            done = path in self.files and params["destination"] not in self.files
            if done:
                self.files[params["destination"]] = self.files.pop(path)
            if self.loses_an_answer:
                self.loses_an_answer = False
                raise requests.ConnectionError("lost")
            return answer(200, {"boolean": done})
        if params["op"] == "DELETE":
            return answer(200, {"boolean": self.files.pop(path, None) is not None})
        if params["op"] == "GETFILESTATUS":
            if path in self.files:
                found = {"type": "FILE", "length": 1, "modificationTime": 1}
                return answer(200, {"FileStatus": found})
            missing = {"exception": "FileNotFoundException", "message": f"no {url}"}
            return answer(404, {"RemoteException": missing})
        return answer(200, {"boolean": True})


@pytest.fixture
def gateway(monkeypatch):
    gateway = Gateway()
    with contextlib.closing(
        WebHdfs(Location.parse("webhdfs://gateway:14000/"), HadoopSettings(user="me"))
    ) as files:

        def write(path, *, data, **options):
            gateway.files[path] = b"".join(data)

        files._client._session = gateway
        monkeypatch.setattr(files._client, "write", write)
        yield files


def test_a_gateway_that_replaces_no_file_is_an_error_that_says_so(gateway):
    location = Location.parse("webhdfs://gateway:14000/a")
    gateway.write(location, b"1")
    error, message = refusal(lambda: gateway.write(location, b"2"))
    assert not isinstance(error, ConnectionError)
    assert message == (
        "webhdfs://gateway:14000/a: http://gateway:14000 has renamed no file to it; "
        "HttpFS does not replace files, so give the address of a NameNode"
    )
    assert gateway._client._session.files == {"/a": b"1"}


def test_a_rename_whose_answer_a_gateway_lost_succeeds_if_it_was_done(gateway):
    location, session = Location.parse("webhdfs://gateway:14000/a"), gateway._client._session
    session.loses_an_answer = True
    gateway.write(location, b"1")
    assert session.files == {"/a": b"1"}
    session.loses_an_answer = True
    with pytest.raises(OSError, match="HttpFS does not replace files"):
        gateway.write(location, b"2")
    assert session.files == {"/a": b"1"}


def test_a_gateway_that_replaces_no_file_is_not_written_to(gateway):
    with pytest.raises(OSError, match="HttpFS does not replace files"):
        check_writable(gateway, Location.parse("webhdfs://gateway:14000/run"))
    assert gateway._client._session.files == {}


@pytest.mark.slow
@pytest.mark.parametrize("role", ["taker", "other"])
def test_a_write_arrives_whole_when_a_datanode_hangs(
    hdfs, settings, root, client, source_of, disturbed_source, monkeypatch, role
):
    data, folder = random.Random(7).randbytes(40 << 20), f"/write-hangs-{role}"
    # A DataNode has few threads for WebHDFS; each try before HDFS calls the other one dead, after
    # 12 s, takes one of them.
    monkeypatch.setattr(webhdfs, "_TIMEOUT", (15.0, 15.0))  # the first one is for sending, too
    files = WebHdfs(root, settings)
    disturbed_source(once(20 << 20, lambda: hdfs.pause(datanodes(hdfs)[role])))
    files.write(root.at(f"{folder}/a"), source_of(data))
    assert read(files, root.at(f"{folder}/a")) == data
    files.close()
    assert left(client, folder) == ["a"]


@pytest.mark.slow
@pytest.mark.fault(28)
def test_a_write_arrives_whole_when_the_namenode_restarts(
    hdfs, files, root, client, source_of, disturbed_source
):
    data = random.Random(8).randbytes(40 << 20)
    starters = []

    def restart():
        hdfs.kill("namenode")
        starters.append(threading.Thread(target=hdfs.start_namenode))
        starters[0].start()

    disturbed_source(once(20 << 20, restart))
    try:
        files.write(root.at("/write-restarted/a"), source_of(data))
    finally:
        for starter in starters:
            starter.join()
    assert read(files, root.at("/write-restarted/a")) == data
    assert left(client, "/write-restarted") == ["a"]


@pytest.mark.slow
@pytest.mark.fault(28)
def test_a_write_resumes_after_a_safe_mode(hdfs, files, root, client, source_of, disturbed_source):
    data = random.Random(9).randbytes(40 << 20)
    leaving = []

    def enter():
        hdfs.admin("-safemode", "enter")
        leaving.append(threading.Thread(target=hdfs.admin, args=("-safemode", "leave")))
        leaving[0].start()

    disturbed_source(once(20 << 20, enter))
    files.write(root.at("/write-safe/a"), source_of(data))
    leaving[0].join()
    assert read(files, root.at("/write-safe/a")) == data
    assert left(client, "/write-safe") == ["a"]


@pytest.mark.slow
@pytest.mark.fault(28)
def test_a_safe_mode_that_outlasts_the_patience_is_one_sentence(
    hdfs, settings, root, client, source_of
):
    client.write("/safe-mode/a", data=b"before", overwrite=True)
    files = WebHdfs(root, settings, patience=1)
    location, source = root.at("/safe-mode/a"), source_of(b"after")
    hdfs.admin("-safemode", "enter")
    try:
        for call in (
            lambda: files.write(location, source),
            lambda: files.append(location, b"more", 6),
            lambda: files.rename(location, root.at("/safe-mode/b")),
            lambda: files.touch(location),
            lambda: files.remove(location),
            lambda: files.make_folder(root.at("/safe-mode/c")),
        ):
            error, message = refusal(call)
            assert isinstance(error, ConnectionError)
            assert message.startswith(f"{hdfs.uri}/safe-mode/")
            assert "HDFS failed for 1 s: " in message
            assert "safe mode" in message
    finally:
        hdfs.admin("-safemode", "leave")
        files.close()
    assert client.list("/safe-mode") == ["a"]


@pytest.mark.fault(30)
def test_a_denied_write_is_an_error_at_once(hdfs, root, client, source_of):
    client.write("/private/a", data=b"mine", overwrite=True)
    client.set_permission("/private", "700")
    other = WebHdfs(root, HadoopSettings(hdfs.settings(), "somebody"), patience=600)
    location = root.at("/private/a")
    for call in (
        lambda: other.write(location, source_of(b"theirs")),
        lambda: other.append(location, b"theirs", 4),
        lambda: other.rename(location, root.at("/private/b")),
        lambda: other.touch(location),
        lambda: other.remove(location),
        lambda: other.make_folder(root.at("/private/c")),
        lambda: check_writable(other, root.at("/private")),
    ):
        error, message = refusal(call)
        assert isinstance(error, PermissionError)
        for part in (f"{hdfs.uri}/private", "no permission, as user somebody"):
            assert part in message
    other.close()
    assert left(client, "/private") == ["a"]
    assert client.status("/private/a")["length"] == 4


@pytest.mark.fault(30)
def test_a_quota_of_bytes_is_one_sentence_at_once(hdfs, settings, root, client, source_of):
    client.makedirs("/few bytes", permission="700")
    hdfs.admin("-setSpaceQuota", "40m", "/few bytes")  # a block of 16 MB, twice, is taken at first
    files = WebHdfs(root, settings, patience=600)
    location, before = root.at("/few bytes/a"), random.Random(10).randbytes(1 << 20)
    files.write(location, source_of(before))
    for call in (
        lambda: files.write(location, source_of(bytes(24 << 20))),
        lambda: files.append(location, bytes(24 << 20), len(before)),
    ):
        error, message = refusal(call)
        assert not isinstance(error, ConnectionError)
        for part in (f"{hdfs.uri}/few bytes/a", f"as user {getpass.getuser()}", "quota"):
            assert part in message
    assert read(files, location).startswith(before)  # part of what was appended may be there
    assert left(client, "/few bytes") == ["a"]
    files.remove(location)
    files.write(location, source_of(before))
    assert read(files, location) == before
    files.close()


@pytest.mark.fault(30)
def test_a_quota_of_names_is_one_sentence_at_once(hdfs, settings, root, client, source_of):
    client.makedirs("/few names", permission="700")
    files = WebHdfs(root, settings, patience=600)
    files.write(root.at("/few names/a"), source_of(b"before"))
    hdfs.admin("-setQuota", "2", "/few names")
    for call in (
        lambda: files.write(root.at("/few names/b"), source_of(b"b")),
        lambda: files.make_folder(root.at("/few names/c")),
        lambda: check_writable(files, root.at("/few names")),
    ):
        error, message = refusal(call)
        assert not isinstance(error, ConnectionError)
        for part in (f"{hdfs.uri}/few names/", f"as user {getpass.getuser()}", "quota"):
            assert part in message
    files.append(root.at("/few names/a"), b" and after", 6)
    assert read(files, root.at("/few names/a")) == b"before and after"
    files.close()


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
def test_a_missing_server_is_one_sentence(where):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}" if where == "closed" else "nowhere.invalid"
        location = Location.parse(f"webhdfs://{address}/x")
        files = WebHdfs(location, HadoopSettings(), patience=1)
        _, message = refusal(lambda: files.status(location))
        files.close()
    assert "no WebHDFS at http://" in message
    assert "is the address right" in message


def test_the_user_is_warned_long_before_a_missing_hdfs_is_an_error(caplog, monkeypatch):
    monkeypatch.setattr(webhdfs, "_SAY", 0.1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        location = Location.parse(f"webhdfs://{address}/x")
        files = WebHdfs(location, HadoopSettings(), patience=1)
        for _ in range(2):  # said once, until it has answered again
            refusal(lambda: files.status(location))
        files.close()
    [record] = caplog.records
    assert (record.name, record.levelname) == ("experiment", "WARNING")
    assert record.getMessage() == (
        f"http://{address} does not answer (Connection refused); retrying for 1 s"
    )


def test_a_file_that_changed_meanwhile_is_an_error(files, root, client):
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


@pytest.mark.parametrize(
    "answers",
    [(200, b"{}"), (200, b"[]"), (200, b"<html>"), (404, b'{"message": "no"}'), (404, b"<html>")],
    ids=str,
)
def test_an_answer_of_another_protocol_is_an_error_at_once(answers, tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Impostor) as server:
        server.answers = answers
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            location = Location.parse(f"webhdfs://127.0.0.1:{server.server_port}/a")
            with contextlib.closing(WebHdfs(location, HadoopSettings(user="me"))) as files:
                for ask in (
                    lambda: files.status(location),
                    lambda: files.listdir(location),
                    lambda: files.write(location, tmp_path / "a"),
                ):
                    with pytest.raises(OSError) as caught:
                        ask()
                    assert str(location) in str(caught.value)
                    assert "\n" not in str(caught.value)
                    assert not isinstance(caught.value, ConnectionError)
        finally:
            server.shutdown()
            thread.join()


def test_a_name_that_the_package_would_expand_is_not_changed(files, root, client):
    client.write("/latest/newest", data=b"1", overwrite=True)
    files.remove(root.at("/latest/#LATEST"))
    assert client.list("/latest") == ["newest"]


@pytest.mark.parametrize("path", ["//plain//a", "/plain/./b/../a", "/plain/a/", "/../plain/a"])
def test_a_path_with_empty_and_dotted_parts_is_read(hdfs, files, client, path):
    client.write("/plain/a", data=b"1", overwrite=True)
    assert read(files, Location.parse(f"{hdfs.uri}{path}")) == b"1"


def test_patience_does_not_count_successful_transfers(hdfs, settings, root, client):
    data = random.Random(4).randbytes(4 << 20)
    client.write("/slow", data=data, overwrite=True, replication=2)
    with contextlib.closing(WebHdfs(root, settings, patience=0.0)) as files:
        broken, received = [], bytearray()

        def sink(piece):
            received.extend(piece)
            if len(received) > 1 << 20 and not broken:
                broken.append(True)
                raise ConnectionResetError("as a DataNode that is killed")

        files.read(files.status(root.at("/slow")), sink)
    assert received != data  # the sink had taken the piece that it broke off at
    assert len(received) > len(data)
