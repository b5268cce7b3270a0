import os
import shutil
from pathlib import Path

import pytest

from experiment import data
from search.errors import InvalidArgument
from spark_jobs.storage.host_cache import CacheSettings, HostCache
from spark_jobs.trial.context import DataSettings, TrialContext, entered
from tests.experiment.waiting import wait_until
from tests.spark_jobs.data.files import contents, put, put_table, run

pytestmark = pytest.mark.usefixtures("inside")


def open_below(folder):
    links = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    return [link for link in links if link.startswith(f"{folder}/")]


def test_local_copy_of_a_file_returns_one_path(folder, store):
    store("a", b"1")
    store("b", b"2")
    assert contents(data.local_copy(f"{folder}/a")) == [b"1"]


def test_files_of_this_host_are_returned_as_they_are(tmp_path, copies):
    put(f"{tmp_path}/data/a", b"1")
    for path in (f"{tmp_path}/data", f"{tmp_path}/data/*", f"file://{tmp_path}/data/a"):
        assert data.local_copy(path) == [tmp_path / "data" / "a"]
    assert not copies.exists()


def test_remote_files_are_copied_once_and_again_when_they_have_changed(remote, copies):
    put(f"{remote}/a", b"1")
    (first,) = data.local_copy(f"{remote}/a")
    assert first.is_relative_to(copies)
    assert data.local_copy(remote) == data.local_copy(f"{remote}/*") == [first]
    put(f"{remote}/a", b"2")
    (second,) = data.local_copy(f"{remote}/a")
    assert contents([first, second]) == [b"1", b"2"]


def test_a_file_that_changes_while_it_is_copied_is_copied_anew(remote, copies, monkeypatch):
    fetch, versions = HostCache.fetch, iter([b"22", b"333"])

    def change_first(cache, files, status, user):
        if (version := next(versions, None)) is not None:
            put(f"{remote}/a", version)
        return fetch(cache, files, status, user)

    monkeypatch.setattr(HostCache, "fetch", change_first)
    put(f"{remote}/a", b"1")
    assert contents(data.local_copy(f"{remote}/a")) == [b"333"]


def test_copies_are_held_until_the_trial_ends(remote, trial, copies):
    for name in "abc":
        put(f"{remote}/{name}", b"1")
    with entered(TrialContext(params={}, folder=trial.folder, data=trial.data)):
        data.local_copy(remote)
        data.open(f"{remote}/a").close()
        assert len(open_below(copies)) == 3
    assert open_below(copies) == []


def test_a_copy_takes_one_descriptor_however_often_it_is_asked_for(remote, copies):
    put_table(f"{remote}/a", x=[1])
    put_table(f"{remote}/b", x=[2])
    for _ in range(3):
        data.local_copy(remote)
        data.parquet(f"{remote}/a")
        data.in_memory(remote)
    # Arrow's threads may close a file that they have read when `read_table` has returned.
    wait_until(lambda: len(open_below(copies)) == 3)
    assert len(set(open_below(copies))) == 3


def test_a_copy_is_held_anew_when_somebody_has_removed_the_folder_meanwhile(remote, copies):
    put(f"{remote}/a", b"1")
    data.local_copy(remote)
    shutil.rmtree(copies)
    (copy,) = data.local_copy(remote)
    assert f"{copy.parent}.lock" in open_below(copies)


def test_copies_of_a_trial_that_raises_are_released_too(remote, trial, copies):
    put(f"{remote}/a", b"1")
    with (
        pytest.raises(KeyError),
        entered(TrialContext(params={}, folder=trial.folder, data=trial.data)),
    ):
        data.local_copy(remote)
        raise KeyError
    assert open_below(copies) == []


def test_a_trial_never_removes_its_own_copies(remote, tmp_path, copies):
    for name in "abcd":
        put(f"{remote}/{name}", name.encode() * 60)
    small = DataSettings(cache=CacheSettings(str(copies), 100))
    with entered(TrialContext(params={}, folder=tmp_path, data=small)):
        found = data.local_copy(remote)
        assert contents(found) == [name.encode() * 60 for name in "abcd"]
    with entered(TrialContext(params={}, folder=tmp_path, data=small)):
        put(f"{remote}/e", b"e" * 60)
        data.local_copy(f"{remote}/e")
    assert [path.exists() for path in found] == [False] * 4


def test_a_file_is_opened_as_bytes_or_as_text(folder, store):
    store("a", "ü\n".encode())
    with data.open(f"{folder}/a") as file:
        assert file.read() == "ü\n".encode()
    with data.open(f"{folder}/a", "r") as file:
        assert file.read() == "ü\n"
    with data.open(f"{folder}/a", "rt", encoding="latin-1") as file:
        assert file.read() == "Ã¼\n"


def test_a_file_whose_name_is_a_pattern_can_be_opened(folder, store):
    store("a[1].txt", b"1")
    with data.open(f"{folder}/a[1].txt") as file:
        assert file.read() == b"1"


@pytest.mark.parametrize("mode", ["w", "wb", "a", "r+", "x", "", None])
def test_data_is_only_read(folder, mode):
    with pytest.raises(InvalidArgument, match=r"mode: expected 'r' or 'rb', got .*data is read"):
        data.open(f"{folder}/a", mode)


def test_a_folder_cannot_be_opened(folder, store):
    store("sub/a", b"")
    with pytest.raises(IsADirectoryError, match="sub is a folder; name a file in it"):
        data.open(f"{folder}/sub")


def test_a_missing_file_cannot_be_opened(folder):
    with pytest.raises(FileNotFoundError, match="data/a"):
        data.open(f"{folder}/a")


def test_outside_of_a_trial_copies_are_held_until_the_process_ends(tmp_path):
    program = """
import os, fsspec
from experiment import data
fsspec.filesystem("memory").pipe_file("/a", b"1")
for _ in range(3):
    (copy,) = data.local_copy("memory:///a")
held = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
assert held.count(str(copy.parent) + ".lock") == 1
print(copy)
"""
    ended = run(program, TMPDIR=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert Path(ended.stdout.strip()).is_relative_to(tmp_path)


def test_more_files_are_copied_than_a_process_may_usually_have_open(tmp_path):
    program = """
import io, resource
import fsspec, pyarrow
from pyarrow import parquet
from experiment import data

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
file = io.BytesIO()
parquet.write_table(pyarrow.table({"x": [1]}), file)
for number in range(200):
    fsspec.filesystem("memory").pipe_file(f"/data/{number}", file.getvalue())
assert data.in_memory("memory:///data").num_rows == 200
assert len(data.local_copy("memory:///data")) == 200
assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == hard
opened = [open("/dev/null") for _ in range(20)]  # as many as before
"""
    ended = run(program, TMPDIR=str(tmp_path))
    assert ended.returncode == 0, ended.stderr


def test_copies_above_the_hard_limit_are_an_error(tmp_path):
    program = """
import errno, resource
import fsspec
from experiment import data

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 80))
for number in range(200):
    fsspec.filesystem("memory").pipe_file(f"/data/{number}", b"1")
try:
    data.local_copy("memory:///data")
except OSError as error:
    assert error.errno == errno.EMFILE
else:
    raise AssertionError
"""
    ended = run(program, TMPDIR=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
