"""Locks of the kernel, which end with their process."""

from __future__ import annotations

import gc
import os
import signal
import weakref

import pytest

from spark_jobs.storage.locks import Lock


@pytest.fixture
def make(tmp_path):
    """Return a lock on one and the same folder."""
    return lambda: Lock(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def test_one_process_at_a_time_holds_the_lock(make):
    first, second = make(), make()
    assert first.acquire()
    with pytest.raises(BlockingIOError):
        second.acquire()
    first.close()
    assert second.acquire()
    second.close()
    second.close()


def test_a_surviving_child_holds_no_lock(make):
    lock, another = make(), make()
    lock.acquire()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"1")
        signal.pause()
        os._exit(0)
    os.read(reading, 1)
    lock.close()
    try:
        assert another.acquire()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        another.close()
        os.close(reading)
        os.close(writing)


def test_a_closed_lock_leaves_nothing_in_its_process(make):
    lock = make()
    known = weakref.ref(lock)
    lock.close()
    del lock
    gc.collect()
    assert known() is None
