import errno
import os
import stat
from pathlib import Path

import pytest

from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.local_files import make_folder, open_appending, open_new, write_whole


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_files_are_private(tmp_path):
    folder = tmp_path / "a" / "b"
    make_folder(folder)
    make_folder(folder)
    write_whole(folder / "file", b"data")
    assert [mode(folder), mode(folder.parent), mode(folder / "file")] == [0o700, 0o700, 0o600]


def test_a_file_where_the_folder_belongs_is_an_error(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(OSError):
        make_folder(tmp_path / "a")
    with pytest.raises(OSError):
        make_folder(tmp_path / "a" / "b")


def test_writing_replaces_and_leaves_nothing_beside(tmp_path):
    write_whole(tmp_path / "file", b"first, and longer")
    write_whole(tmp_path / "file", b"second")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"second")]


def test_a_file_that_must_survive_a_loss_of_power_is_on_disk_before_it_gets_its_name(
    tmp_path, monkeypatch
):
    synced = []

    def fsync(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").read_bytes())
        assert not (tmp_path / "file").exists()

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(tmp_path / "other", b"data")
    write_whole(tmp_path / "file", b"data", sync=True)
    assert synced == [b"data"]


def test_a_failed_write_leaves_nothing_beside(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "folder", b"data")
    assert os.listdir(tmp_path) == ["folder"]


@pytest.fixture(params=["kept", None], ids=["a link to a file", "a link to nothing"])
def linked(request, tmp_path):
    """A file outside the folder `run`, to which someone who can write to the folder has linked."""
    (tmp_path / "run").mkdir()
    target = tmp_path / "mine"
    if request.param is not None:
        target.write_text(request.param)
    yield target
    assert (target.read_text() if target.exists() else None) == request.param


def test_writing_follows_no_link_of_another_process(tmp_path, linked):
    (tmp_path / "run" / f".file.{os.getpid()}").symlink_to(linked)
    (tmp_path / "run" / "file").symlink_to(linked)
    write_whole(tmp_path / "run" / "file", b"data")
    assert (tmp_path / "run" / "file").read_bytes() == b"data"
    assert not (tmp_path / "run" / "file").is_symlink()


def test_a_new_file_is_not_made_where_a_link_leads(tmp_path, linked):
    (tmp_path / "run" / "file").symlink_to(linked)
    with pytest.raises(FileExistsError):
        open_new(tmp_path / "run" / "file")


def test_nothing_is_appended_where_a_link_leads(tmp_path, linked):
    (tmp_path / "run" / "file").symlink_to(linked)
    with pytest.raises(OSError) as caught:
        open_appending(tmp_path / "run" / "file")
    assert caught.value.errno == errno.ELOOP


@pytest.mark.parametrize("has_reader", [False, True])
def test_nothing_is_appended_to_a_pipe_and_nobody_waits_for_its_reader(tmp_path, has_reader):
    os.mkfifo(tmp_path / "file")
    reader = os.open(tmp_path / "file", os.O_RDONLY | os.O_NONBLOCK) if has_reader else None
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError):
        open_appending(tmp_path / "file")
    assert os.listdir("/proc/self/fd") == before
    if reader is not None:
        os.close(reader)


def test_appending_to_a_new_file_refuses_an_old_one(tmp_path):
    os.close(open_appending(tmp_path / "file", new=True))
    with pytest.raises(FileExistsError):
        open_appending(tmp_path / "file", new=True)


def test_attempts_have_folders_of_their_own_that_sort_by_number():
    paths = RunPaths(Path("/run"))
    names = [
        paths.attempt(7).folder.name,
        paths.attempt(7, 2).folder.name,
        paths.attempt(12).folder.name,
    ]
    assert names == ["000007", "000007-2", "000012"]
    assert sorted(names) == names
