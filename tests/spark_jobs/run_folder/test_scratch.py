"""Scratch folders, also those of killed processes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile

import pytest

from spark_jobs.run_folder.scratch import folder_of_left, move_left, remove_left, scratch_folder

HOLD = """
import os, sys
from spark_jobs.run_folder.scratch import scratch_folder
with scratch_folder() as path:
    (path / "journal.jsonl").write_text("{}")
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, b"1")  # after the fork, so it has let the lock go
        os.close(1)
        os.read(0, 1)
        os._exit(0)
    os.read(reading, 1)
    print(path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_folders_of_killed_processes_are_removed_and_those_in_use_stay(scratch):
    """Although a forked child survives."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch)},
    )
    path = holder.stdout.readline().strip()
    with scratch_folder() as ours:
        remove_left()
        assert sorted(map(str, scratch.iterdir())) == sorted([str(ours), path])
        holder.kill()
        holder.wait()
        remove_left()
        assert list(scratch.iterdir()) == [ours]
    holder.stdin.close()
    holder.stdout.close()
    remove_left()
    assert list(scratch.iterdir()) == []


def test_other_folders_stay(scratch):
    target = scratch / "folder of a user"
    target.mkdir()
    (scratch / "experiment-run-link").symlink_to(target)
    (scratch / "experiment-run-file").touch()
    (scratch / "experiment-left-1").mkdir()
    remove_left()
    assert len(list(scratch.iterdir())) == 4


@pytest.mark.parametrize("full", [False, True])
def test_what_is_left_stays_also_where_no_folder_can_be_made(scratch, monkeypatch, full):
    def fail(**arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with scratch_folder() as path:
        (path / "journal.jsonl").write_text("{}")
        if full:
            monkeypatch.setattr(tempfile, "mkdtemp", fail)
        left = folder_of_left(path)
        move_left(path, left)
    remove_left()
    assert list(scratch.iterdir()) == [left]
    assert (left / "journal.jsonl").read_text() == "{}"
