import stat
from pathlib import Path

import pytest

from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.local_files import make_folder, open_appending, write_whole


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


def test_appending_to_a_new_file_refuses_an_old_one(tmp_path):
    import os

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
