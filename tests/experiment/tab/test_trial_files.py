"""The output and the files of trials, on this host and in another store."""

import os

import pytest

from experiment.tab.trial_files import (
    TAIL,
    LocalTrialFiles,
    RemoteTrialFiles,
    regular_files,
)
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.locations import Location

TRIAL = "trials/000007"
OUTPUTS = ["stdout.log", "stderr.log"]


class Store(LocalFiles):
    """Counts the bytes that are read, and may be away."""

    read_bytes = 0
    away = False

    def listdir(self, location):
        if self.away:
            raise ConnectionError("away")
        return super().listdir(location)

    def read(self, status, sink, offset=0):
        self.read_bytes += status.length - offset
        super().read(status, sink, offset)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / TRIAL
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def remote(store, tmp_path):
    return RemoteTrialFiles(store, Location.parse(tmp_path))


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_files_and_the_ends_of_output_are_found_but_no_links(kind, folder, remote, tmp_path):
    files = remote if kind == "remote" else LocalTrialFiles(tmp_path)
    (folder / "model").mkdir()
    (folder / "model" / "weights").write_bytes(b"12345")
    (folder / "stdout.log").write_bytes(b"a" * TAIL + b"the end\n")
    (folder / "stderr.log").symlink_to("/etc/passwd")
    (folder / "etc").symlink_to("/etc")
    sizes, ends = files.look(TRIAL, [*OUTPUTS, "workers/1/stdout.log"])
    assert sizes == {"stdout.log": TAIL + 8, "model/weights": 5}
    assert ends == {"stdout.log": b"a" * (TAIL - 8) + b"the end\n"}


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_a_trial_without_a_folder_has_no_files(kind, remote, tmp_path):
    files = remote if kind == "remote" else LocalTrialFiles(tmp_path)
    assert files.look(TRIAL, OUTPUTS) == ({}, {})


def test_of_output_that_grows_only_the_new_part_is_read(folder, remote, store):
    log = folder / "stdout.log"
    for number in range(1, 5):
        with log.open("ab") as file:
            file.write(b"%d" % number * 1000)
        assert remote.look(TRIAL, OUTPUTS)[1] == {"stdout.log": log.read_bytes()}
        assert remote.look(TRIAL, OUTPUTS)[1] == {"stdout.log": log.read_bytes()}
        assert store.read_bytes == 1000 * number


def test_of_output_that_has_grown_much_only_the_end_is_read(folder, remote, store):
    log = folder / "stdout.log"
    log.write_bytes(b"1")
    remote.look(TRIAL, OUTPUTS)
    log.write_bytes(b"1" + b"2" * 10 * TAIL)
    assert remote.look(TRIAL, OUTPUTS)[1] == {"stdout.log": b"2" * TAIL}
    assert store.read_bytes == 1 + TAIL


def test_output_that_was_replaced_by_a_shorter_one_is_read_anew(folder, remote):
    log = folder / "stdout.log"
    log.write_bytes(b"long")
    remote.look(TRIAL, OUTPUTS)
    log.write_bytes(b"new")
    assert remote.look(TRIAL, OUTPUTS)[1] == {"stdout.log": b"new"}


def test_the_memory_for_output_is_bounded(tmp_path, remote):
    for trial in range(200):
        folder = tmp_path / f"trials/{trial:06d}"
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_bytes(b"1")
        remote.look(f"trials/{trial:06d}", OUTPUTS)
    assert len(remote._ends) <= 64


def test_many_files_hide_no_output(folder, remote):
    (folder / "model").mkdir()
    for number in range(600):
        (folder / "model" / str(number)).touch()
    (folder / "stdout.log").write_bytes(b"1")
    sizes, ends = remote.look(TRIAL, OUTPUTS)
    assert len(sizes) == 500
    assert ends == {"stdout.log": b"1"}


def test_a_store_that_is_away_is_an_error(folder, remote, store):
    store.away = True
    with pytest.raises(ConnectionError, match="away"):
        remote.look(TRIAL, OUTPUTS)


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_many_files_beside_it_hide_no_output(kind, folder, remote, tmp_path):
    files = remote if kind == "remote" else LocalTrialFiles(tmp_path)
    for number in range(600):
        (folder / f"checkpoint-{number:03d}").touch()
    (folder / "stdout.log").write_bytes(b"1")
    sizes, ends = files.look(TRIAL, OUTPUTS)
    assert len(sizes) == 500
    assert ends == {"stdout.log": b"1"}


@pytest.mark.parametrize(
    ("kind", "linked"),
    [
        ("local", "trials"),
        ("local", TRIAL),
        ("local", f"{TRIAL}/workers"),
        ("local", f"{TRIAL}/workers/1"),
        ("remote", f"{TRIAL}/workers"),
        ("remote", f"{TRIAL}/workers/1"),
    ],
)
def test_folders_that_are_links_are_not_followed(kind, linked, remote, tmp_path):
    files = remote if kind == "remote" else LocalTrialFiles(tmp_path)
    log = tmp_path / "elsewhere" / TRIAL / "workers" / "1" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"secret")
    (tmp_path / linked).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / linked).symlink_to(tmp_path / "elsewhere" / linked)
    assert files.look(TRIAL, ["workers/1/stdout.log"]) == ({}, {})


def test_many_folders_hide_no_output_of_another_worker(folder, remote):
    for name in [f"checkpoint-{number:03d}" for number in range(60)] + ["workers/1"]:
        (folder / name).mkdir(parents=True)
    (folder / "workers" / "1" / "stdout.log").write_bytes(b"1")
    assert remote.look(TRIAL, ["workers/1/stdout.log"])[1] == {"workers/1/stdout.log": b"1"}


def test_output_that_is_removed_after_it_was_listed_is_empty(folder, remote, store, monkeypatch):
    (folder / "stdout.log").write_bytes(b"1")

    def read(status, sink, offset=0):
        raise FileNotFoundError(status.location)

    with monkeypatch.context() as patched:
        patched.setattr(store, "read", read)
        assert remote.look(TRIAL, OUTPUTS) == ({"stdout.log": 1}, {"stdout.log": b""})
    assert remote.look(TRIAL, OUTPUTS)[1] == {"stdout.log": b"1"}


def test_files_that_are_removed_while_they_are_listed_are_left_out(folder):
    for name in "abc":
        (folder / name).write_bytes(b"1")
    found = regular_files(folder)
    assert next(found) == (folder / "a", 1)
    (folder / "b").unlink()
    assert list(found) == [(folder / "c", 1)]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_no_output(make, folder, tmp_path):
    make(folder / "stdout.log")
    (folder / "stderr.log").write_bytes(b"1")
    files = LocalTrialFiles(tmp_path)
    assert files.look(TRIAL, OUTPUTS) == ({"stderr.log": 1}, {"stderr.log": b"1"})
