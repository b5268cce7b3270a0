from __future__ import annotations

import os
import resource
import tracemalloc
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.zygote import bounded_log
from spark_jobs.zygote.bounded_log import KEPT, BoundedLog, bound


def expected(data, kept):
    if len(data) <= 2 * kept:
        return data
    gap = f"\n... {len(data) - 2 * kept} bytes left out ...\n".encode()
    return data[:kept] + gap + data[-kept:]


def take(log, data):
    """Let a log read data from a descriptor."""
    with open(os.memfd_create("data"), "w+b", buffering=0) as file:
        file.write(data)
        file.seek(0)
        while log.read(file.fileno()):
            pass


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("logs") / "stdout.log"


@given(st.lists(st.binary(max_size=60), max_size=12), st.integers(1, 80))
def test_the_start_and_the_end_are_kept_for_any_pieces(path, pieces, kept):
    path.unlink(missing_ok=True)
    with mock.patch.object(bounded_log, "KEPT", kept):
        log = BoundedLog(path)
        for piece in pieces:
            take(log, piece)
        log.close()
    assert path.read_bytes() == expected(b"".join(pieces), kept)


@given(st.binary(max_size=400), st.integers(1, 80))
def test_cutting_a_file_keeps_the_same_bytes(path, data, kept):
    path.write_bytes(data)
    with mock.patch.object(bounded_log, "KEPT", kept):
        bound(path)
    assert path.read_bytes() == expected(data, kept)


@pytest.mark.parametrize("size", [0, 1, KEPT, 2 * KEPT, 2 * KEPT + 1, 5 * KEPT])
@pytest.mark.parametrize("piece", [1 << 16, 3 * KEPT])
def test_the_sizes_of_a_kept_log(tmp_path, size, piece):
    data = os.urandom(size)
    path = tmp_path / "stdout.log"
    log = BoundedLog(path)
    for start in range(0, size, piece):
        take(log, data[start : start + piece])
    log.close()
    assert path.read_bytes() == expected(data, KEPT)
    path.write_bytes(data)
    bound(path)
    assert path.read_bytes() == expected(data, KEPT)


def test_the_start_is_in_the_file_as_soon_as_it_comes(tmp_path):
    log = BoundedLog(tmp_path / "stdout.log")
    take(log, b"epoch 1\n")
    assert (tmp_path / "stdout.log").read_bytes() == b"epoch 1\n"
    log.close()


def test_little_is_kept_of_a_flood(tmp_path):
    log = BoundedLog(tmp_path / "stdout.log")
    tracemalloc.start()
    for _ in range(20):
        take(log, bytes(KEPT))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 3 * KEPT  # one of them is what is taken
    log.close()


def test_a_log_is_private(tmp_path):
    BoundedLog(tmp_path / "stdout.log").close()
    assert (tmp_path / "stdout.log").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_costs_no_exception(tmp_path, monkeypatch):
    opener = "spark_jobs.zygote.bounded_log.open_appending"
    monkeypatch.setattr(opener, lambda path: os.open("/dev/full", os.O_WRONLY))
    log = BoundedLog(tmp_path / "stdout.log")
    for _ in range(4):
        take(log, bytes(KEPT))
    log.close()


def test_a_disk_that_becomes_full_keeps_earlier_lines(tmp_path):
    path = tmp_path / "stdout.log"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
            log = BoundedLog(path)
            for _ in range(3 * KEPT >> 16):
                take(log, b"x" * (1 << 16))
            log.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert path.read_bytes() == b"x" * 1_000


def test_a_file_that_cannot_be_cut_costs_no_exception(tmp_path):
    bound(tmp_path / "missing")
    (tmp_path / "folder").mkdir()
    bound(tmp_path / "folder")
