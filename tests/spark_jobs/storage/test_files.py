import errno
import hashlib
import importlib.util
import io
import os
import socket
import stat
import tempfile
import traceback
from pathlib import Path
from typing import ClassVar

import fsspec
import pytest
import requests
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from spark_jobs.storage.files import CHUNK, FileStatus, LocalFiles, StoreUnavailable, pieces
from spark_jobs.storage.fsspec_files import FsspecFiles
from spark_jobs.storage.host_cache import CacheSettings, HostCache
from spark_jobs.storage.locations import Location
from tests.spark_jobs.storage.files_contract import FilesContract, WritableFilesContract


class TestLocalFiles(WritableFilesContract):
    @pytest.fixture
    def files(self):
        return LocalFiles()

    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "folder").mkdir()
        return Location.parse(tmp_path / "folder")

    @pytest.fixture
    def put(self):
        def write(location, data):
            Path(location.path).parent.mkdir(parents=True, exist_ok=True)
            Path(location.path).write_bytes(data)

        return write

    @pytest.fixture
    def mode(self):
        return lambda location: stat.S_IMODE(os.stat(location.path).st_mode)

    def test_a_link_to_a_folder_is_removed_without_the_folder(self, files, below, put):
        put(below("sub/a"), b"1")
        os.symlink("sub", below("link").path)
        files.remove(below("link"))
        assert [status.location for status in files.listdir(below(""))] == [below("sub")]
        assert [status.location for status in files.listdir(below("sub"))] == [below("sub/a")]

    def test_a_link_to_nowhere_does_not_hide_the_other_files(self, files, folder, below, put):
        put(below("b"), b"1")
        os.symlink("nowhere", below("a").path)
        assert [status.location for status in files.listdir(folder)] == [below("b")]


def test_a_link_into_a_folder_of_another_user_hides_no_other_file():
    files = LocalFiles()
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        top.chmod(0o755)
        (top / "private").mkdir(mode=0o000)
        (top / "a").symlink_to("private/a")
        (top / "b").touch()
        user = os.geteuid()
        if user == 0:  # root may follow any link
            os.seteuid(65_534)
        try:
            link, *others = files.listdir(Location.parse(folder))
            with pytest.raises(PermissionError):
                files.read(link, bytearray().extend)
        finally:
            os.seteuid(user)
            (top / "private").chmod(0o700)
    assert [status.location.name for status in others] == ["b", "private"]
    assert not link.is_folder


@pytest.mark.parametrize("read", [1, 2])
def test_a_source_that_is_rewritten_in_place_while_it_is_read_is_no_content(tmp_path, read):
    source = tmp_path / "source"
    source.write_bytes(bytes(3 * CHUNK))
    data = pieces(source)
    for _ in range(read):
        next(data)
    with source.open("r+b") as file:
        file.write(b"1" * 3 * CHUNK)
    os.utime(source, ns=(10**9, 10**9))
    with pytest.raises(OSError, match=r"source: it was changed meanwhile"):
        list(data)


def test_of_a_source_that_grows_its_start_is_read(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(bytes(2 * CHUNK))
    data = pieces(source, 2 * CHUNK)
    assert next(data) == bytes(CHUNK)
    with source.open("ab") as file:
        file.write(b"1")
    assert list(data) == [bytes(CHUNK)]


@pytest.fixture
def memory():
    """fsspec's file system in memory, of which each process has one."""
    system = fsspec.filesystem("memory")
    system.rm("/", recursive=True)
    yield system
    system.rm("/", recursive=True)


class TestFsspecFiles(FilesContract):
    @pytest.fixture
    def files(self, memory):
        return FsspecFiles(Location.parse("memory://"))

    @pytest.fixture(params=["memory://", "memory:///some folder", "memory://bucket/data"])
    def folder(self, memory, request):
        memory.makedirs(request.param, exist_ok=True)
        return Location.parse(request.param)

    @pytest.fixture
    def put(self, memory):
        return lambda location, data: memory.pipe_file(str(location), data)


class ObjectFileSystem(AbstractFileSystem):
    """Objects by name, as in S3: a folder is the start of names, or an object named "folder/".

    As in s3fs, a listing is kept, and has fewer details of a file than a request for the file.
    """

    protocol = "objects"
    objects: ClassVar[dict[str, bytes]] = {}

    def ls(self, path, detail=True, **options):
        path = self._strip_protocol(path)
        if path not in self.dircache:
            self.dircache[path] = self._listed(f"{path}/")
        return self.dircache[path]

    def _listed(self, folder):
        below = [name.removeprefix(folder) for name in self.objects if name.startswith(folder)]
        if not below:
            raise FileNotFoundError(folder)
        folders = sorted({name.partition("/")[0] for name in below if "/" in name})
        return [self._file(folder + name) for name in below if "/" not in name] + [
            {"name": folder + name, "size": 0, "type": "directory"} for name in folders
        ]

    def info(self, path, **options):
        name = self._strip_protocol(path)
        listed = self._ls_from_cache(name)
        if listed is None and name in self.objects:
            return self._file(name) | {"ContentType": "binary/octet-stream"}
        for entry in listed or self.ls(name):
            if entry["name"] == name:
                return entry
        return {"name": name, "size": 0, "type": "directory"}

    def invalidate_cache(self, path=None):
        self.dircache.clear()

    def _file(self, name):
        data = self.objects[name]
        tag = hashlib.sha256(data).hexdigest()
        return {"name": name, "size": len(data), "type": "file", "ETag": tag}

    def _open(self, path, mode="rb", **options):
        if path not in self.objects:
            raise FileNotFoundError(path)
        return io.BytesIO(self.objects[path])


@pytest.fixture
def objects():
    """The objects of `ObjectFileSystem`, by name."""
    fsspec.register_implementation("objects", ObjectFileSystem, clobber=True)
    ObjectFileSystem.objects.clear()
    return ObjectFileSystem.objects


class TestFsspecFilesOfAnObjectStore(FilesContract):
    @pytest.fixture
    def files(self, objects):
        return FsspecFiles(Location.parse("objects://bucket"))

    @pytest.fixture
    def folder(self, objects):
        objects["bucket/some folder/"] = b""  # as the AWS console makes a folder
        return Location.parse("objects://bucket/some folder")

    @pytest.fixture
    def put(self, objects):
        def write(location, data):
            objects[f"{location.authority}{location.path}"] = data

        return write


class Opened(ObjectFileSystem):
    """Notes how files are opened."""

    protocol = ("opened", "https")
    options: ClassVar[list[dict[str, object]]] = []

    def _open(self, path, mode="rb", block_size=None, cache_type=None, **options):
        self.options.append({"block_size": block_size, "cache_type": cache_type})
        return io.BytesIO(self.objects[path])


class WithoutRanges(Opened):
    """A server of the web that returns all of a file."""

    def _open(self, path, mode="rb", block_size=None, **options):
        found = super()._open(path, mode, block_size, **options)
        if block_size == 0:
            return found
        read = found.read

        def read_first(size):  # fsspec's own file: a range from the first byte on is no trouble
            if found.tell():
                raise ValueError("The HTTP server doesn't appear to support range requests.")
            return read(size)

        found.read = read_first
        return found


@pytest.mark.parametrize(
    ("scheme", "length", "offset", "options"),
    [
        ("opened", 40 << 20, 0, {"block_size": None, "cache_type": None}),
        ("opened", 40 << 20, 32 << 20, {"block_size": None, "cache_type": "none"}),
        ("opened", 8 << 20, 0, {"block_size": None, "cache_type": "none"}),
        ("https", 8 << 20, 4 << 20, {"block_size": None, "cache_type": "none"}),
    ],
)
def test_a_piece_is_read_without_more(objects, monkeypatch, scheme, length, offset, options):
    """s3fs reads 50 MB ahead."""
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: (Opened(),))
    monkeypatch.setattr(Opened, "options", [])
    location = Location.parse(f"{scheme}://bucket/a")
    objects["bucket/a"] = bytes(length)
    status = FileStatus(location=location, length=length, version="1", is_folder=False)
    read = bytearray()
    FsspecFiles(location).read(status, read.extend, offset)
    assert len(read) == length - offset
    assert Opened.options == [options]


@pytest.mark.parametrize("length", [8 << 20, 40 << 20])
def test_a_server_of_the_web_may_know_no_ranges(objects, monkeypatch, length):
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: (WithoutRanges(),))
    location = Location.parse("https://bucket/a")
    objects["bucket/a"] = bytes(range(256)) * (length // 256)
    status = FileStatus(location=location, length=length, version="1", is_folder=False)
    read = bytearray()
    FsspecFiles(location).read(status, read.extend)
    assert read == objects["bucket/a"]
    with pytest.raises(OSError, match="range requests"):
        FsspecFiles(location).read(status, read.extend, 5)


class BrokenFileSystem(MemoryFileSystem):
    protocol = "broken"

    def info(self, path, **options):
        raise RuntimeError("no credentials")


def test_an_error_of_a_store_is_an_oserror_that_names_the_location():
    fsspec.register_implementation("broken", BrokenFileSystem, clobber=True)
    location = Location.parse("broken://bucket/a")
    with pytest.raises(OSError, match="^broken://bucket/a: .*no credentials"):
        FsspecFiles(location).status(location)


class AwayFileSystem(MemoryFileSystem):
    protocol = "away"
    error = None

    def info(self, path, **options):
        raise self.error

    def open(self, path, mode, **options):
        raise self.error


class ClientConnectionError(Exception):
    """As of aiohttp, which is not installed here."""


@pytest.mark.parametrize(
    "error", [ConnectionResetError(), requests.ConnectTimeout(), ClientConnectionError()], ids=repr
)
def test_a_store_that_does_not_answer_is_told_from_others(monkeypatch, error):
    monkeypatch.setattr(AwayFileSystem, "error", error)
    fsspec.register_implementation("away", AwayFileSystem, clobber=True)
    location = Location.parse("away://bucket/a")
    with pytest.raises(StoreUnavailable, match="^away://bucket/a: "):
        FsspecFiles(location).status(location)


def test_an_error_that_has_a_signed_url_with_a_space_is_no_cause(monkeypatch):
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: (AwayFileSystem(),))
    location = Location.parse("https://host/my file?sig=s3cret")
    monkeypatch.setattr(AwayFileSystem, "error", ValueError(f"no answer from {location.url}"))
    with pytest.raises(OSError, match="https://host/my file") as caught:
        FsspecFiles(location).status(location)
    assert "s3c" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "kind", [OSError, ConnectionResetError, FileNotFoundError, PermissionError, ValueError]
)
def test_errors_of_a_store_do_not_show_the_password_of_a_url(monkeypatch, kind):
    """As those of aiohttp have the whole URL."""
    location = Location.parse("away://me:s3cret@bucket/a b")
    monkeypatch.setattr(AwayFileSystem, "error", kind(f"{'4' * 90}, url='{location.url}'"))
    fsspec.register_implementation("away", AwayFileSystem, clobber=True)
    expected = kind if kind in (FileNotFoundError, PermissionError) else OSError
    with pytest.raises(expected, match="away://me:...@bucket/a b") as caught:
        FsspecFiles(location).status(location)
    assert "s3c" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_an_error_of_a_store_passes_for_none_of_this_hosts_disk(monkeypatch, number, tmp_path):
    """As s3fs gives an EIO for any answer that it does not know."""
    monkeypatch.setattr(AwayFileSystem, "error", OSError(number, "We encountered an error"))
    fsspec.register_implementation("away", AwayFileSystem, clobber=True)
    location = Location.parse("away://bucket/a")
    cache = HostCache(CacheSettings(str(tmp_path)))
    status = FileStatus(location=location, length=1, version="1", is_folder=False)
    with pytest.raises(OSError, match="^away://bucket/a: .*We encountered an error") as caught:
        cache.fetch(FsspecFiles(location), status)
    assert type(caught.value) is OSError


@pytest.mark.parametrize("reason", [socket.EAI_NONAME, socket.EAI_AGAIN])
def test_a_host_name_that_does_not_exist_is_no_outage(monkeypatch, reason):
    error = ClientConnectionError("no connection to s3.typo")
    error.__context__ = socket.gaierror(reason, "as for getaddrinfo")
    monkeypatch.setattr(AwayFileSystem, "error", error)
    fsspec.register_implementation("away", AwayFileSystem, clobber=True)
    location = Location.parse("away://bucket/a")
    with pytest.raises(OSError, match=r"^away://bucket/a: .*s3\.typo") as caught:
        FsspecFiles(location).status(location)
    assert isinstance(caught.value, StoreUnavailable) == (reason == socket.EAI_AGAIN)


class ClientResponseError(Exception):
    """As of aiohttp, which is not installed here."""

    def __init__(self, status):
        super().__init__(f"{status}, message='as the server says'")
        self.status = status


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (None, FileNotFoundError),
        (FileNotFoundError(), FileNotFoundError),
        (ClientResponseError(404), FileNotFoundError),
        (ClientResponseError(410), FileNotFoundError),
        (ClientResponseError(400), OSError),
        (ClientResponseError(403), PermissionError),
        (ClientResponseError(429), StoreUnavailable),
        (ClientResponseError(503), StoreUnavailable),
        (ClientConnectionError(), StoreUnavailable),
    ],
    ids=repr,
)
def test_a_file_is_missing_only_if_its_server_says_so(monkeypatch, cause, expected):
    """Fsspec's HTTP store gives a FileNotFoundError for any error."""
    error = FileNotFoundError("away://bucket/a")
    error.__cause__ = cause
    monkeypatch.setattr(AwayFileSystem, "error", error)
    fsspec.register_implementation("away", AwayFileSystem, clobber=True)
    location = Location.parse("away://bucket/a")
    with pytest.raises(expected) as caught:
        FsspecFiles(location).status(location)
    assert type(caught.value) is expected
    assert "away://bucket/a" in str(caught.value)


class WebFileSystem(MemoryFileSystem):
    """Files whose names are whole URLs, of a server that the URL names."""

    protocol = "web"
    size = 5
    details: ClassVar[dict[str, str]] = {}

    def __init__(self, server, **options):
        super().__init__(**options)
        self.server = server

    @staticmethod
    def _get_kwargs_from_urls(url):
        return {"server": Location.parse(url).authority}

    def info(self, path, **options):
        named = {
            "name": path,
            "size": self.size,
            "type": "file",
            "ETag": f"{path} of {self.server}",
        }
        return named | self.details

    def ukey(self, path):
        # Of the HTTP store it is always the same, of SFTP it changes with the time of access.
        return self.details.get("time", path)


@pytest.fixture
def web():
    fsspec.register_implementation("web", WebFileSystem, clobber=True)
    return Location.parse("web://server/a::b")


def test_a_store_gets_the_whole_url_of_a_file(web):
    found = FsspecFiles(web).status(web)
    assert found.version == "web://server/a::b of server"


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ({"ETag": '"0x8D"'}, {"ETag": "0x8D"}, True),  # adlfs, of the file and in a listing
        ({"ETag": "", "Last-Modified": "10:00"}, {"ETag": "", "Last-Modified": "10:01"}, False),
        ({"ETag": "", "mtime": 1, "time": 1}, {"ETag": "", "mtime": 1, "time": 2}, True),  # SFTP
        ({"ETag": "", "mtime": 1}, {"ETag": "", "mtime": 2}, False),
    ],
)
def test_the_version_of_a_file_changes_with_its_content(web, monkeypatch, before, after, same):
    files = FsspecFiles(web)
    monkeypatch.setattr(WebFileSystem, "details", before)
    first = files.status(web)
    monkeypatch.setattr(WebFileSystem, "details", after)
    assert (files.status(web) == first) == same


def test_a_file_of_unknown_length_is_an_oserror(web, monkeypatch):
    monkeypatch.setattr(WebFileSystem, "size", None)
    with pytest.raises(OSError, match="^web://server/a::b: its server does not say how long it is"):
        FsspecFiles(web).status(web)


@pytest.mark.parametrize(
    ("url", "reason"), [("dbfs:///mnt/x", "'instance'"), ("ftp://127.0.0.1:1/x", "refused")]
)
def test_a_store_that_cannot_be_opened_is_an_oserror_that_names_the_location(url, reason):
    with pytest.raises(OSError, match=f"^{url}: .*{reason}"):
        FsspecFiles(Location.parse(url))


def test_an_unknown_store_is_an_oserror_of_one_sentence():
    with pytest.raises(OSError, match="^nosuch://x/y: .*nosuch") as caught:
        FsspecFiles(Location.parse("nosuch://x/y"))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(importlib.util.find_spec("s3fs") is not None, reason="s3fs is installed")
def test_a_store_whose_package_is_missing_is_an_oserror_that_names_the_package():
    with pytest.raises(OSError, match="^s3://bucket/a: .*s3fs"):
        FsspecFiles(Location.parse("s3://bucket/a"))
