"""How calls are written behind those who make them."""

import contextlib
import pickle
import threading

import numpy as np
import pytest

from spark_jobs.calls.calls import Pickled, read_returned, run_call
from spark_jobs.calls.outbox import LARGEST_BACKLOG, LARGEST_BATCH, Outbox
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.locations import Location
from spark_jobs.trial import context
from tests.experiment.waiting import wait_until

LONG = 60  # seconds that only keep a failing test from hanging


class HeldFiles(LocalFiles):
    """Files of this host that are written once `gate` is open, or refused then."""

    def __init__(self):
        self.gate, self.written, self.refusal = threading.Event(), [], None

    def write(self, location, source, length=None):
        if not self.gate.wait(LONG):
            raise OSError("nobody has opened the gate")
        if self.refusal is not None:
            raise self.refusal
        self.written.append(len(source))
        super().write(location, source, length)


@pytest.fixture
def files():
    return HeldFiles()


@pytest.fixture
def folder(tmp_path):
    return Location.parse(tmp_path / "calls")


@pytest.fixture
def outbox(files, folder):
    with contextlib.closing(Outbox(files, folder)) as outbox:
        yield outbox
        files.gate.set()


def of(function, *arguments):
    """Return a call as it is pickled, large buffers apart."""
    buffers = []
    data = pickle.dumps((arguments, {}), protocol=5, buffer_callback=buffers.append)
    return Pickled(pickle.dumps(function)), Pickled(data, [buffer.raw() for buffer in buffers])


def value_of(sent, folder):
    """Return what a call returns, run as in a trial whose folder that is."""
    folder.mkdir(exist_ok=True)
    with context.entered(context.TrialContext(params={}, folder=folder)):
        run_call("function", sent.batch, sent.index)
    return read_returned(LocalFiles(), Location.parse(folder))


def test_calls_that_wait_share_a_file(outbox, files, tmp_path):
    told = []
    for number in range(500):  # nothing is written yet, and nobody waits for it
        outbox.put(*of(abs, -number), told.append)
    assert told == []
    files.gate.set()
    wait_until(lambda: len(told) == 500)
    assert len(files.written) <= 2  # what came before the thread looked, and the others
    assert [value_of(told[n], tmp_path / "trial") for n in (0, 1, 499)] == [0, 1, 499]


def test_a_batch_has_a_size(outbox, files):
    told, size = [], LARGEST_BATCH // 4
    for number in range(12):
        outbox.put(*of(len, bytes([number]) * (size - 1_000)), told.append)
    files.gate.set()
    wait_until(lambda: len(told) == 12)
    assert max(files.written) <= LARGEST_BATCH


def test_a_function_counts_once_in_a_batch(outbox, files):
    told, function = [], Pickled(b"f" * 50_000)
    for number in range(100):
        outbox.put(function, of(abs, -number)[1], told.append)
    files.gate.set()
    wait_until(lambda: len(told) == 100)
    assert len(files.written) <= 2  # what came before the thread looked, and the others


def test_a_large_content_is_sent_once(outbox, files, folder):
    told, array = [], np.arange(100_000)
    for number in range(3):
        outbox.put(*of(np.take, array, number), told.append)
    files.gate.set()
    wait_until(lambda: len(told) == 3)
    outbox.put(*of(np.take, array, 3), told.append)
    wait_until(lambda: len(told) == 4)
    assert sorted(files.written)[-1] == array.nbytes
    assert sum(sorted(files.written)[:-1]) < 5_000
    outbox.close()
    assert not files.names(folder.parent)


def test_what_a_call_gets_is_what_it_was_when_it_was_made(outbox, files, tmp_path):
    told, array = [], np.arange(100_000)
    for number in range(3):
        array[0] = number
        outbox.put(*of(np.take, array, 0), told.append)
    array[0] = -1
    files.gate.set()
    wait_until(lambda: len(told) == 3)
    assert [int(value_of(sent, tmp_path / "trial")) for sent in told] == [0, 1, 2]


def test_who_makes_calls_faster_than_they_are_written_waits(files, folder):
    told, size = [], 100_000
    with contextlib.closing(Outbox(files, folder, largest_backlog=2 * size + 1_000)) as outbox:
        made = []

        def make():
            for number in range(4):
                outbox.put(*of(len, np.full(size, number, np.uint8)), told.append)
                made.append(number)

        thread = threading.Thread(target=make)
        thread.start()
        wait_until(lambda: len(made) == 2)
        assert told == []
        files.gate.set()
        thread.join(LONG)
        wait_until(lambda: len(told) == 4)
    assert LARGEST_BACKLOG > LARGEST_BATCH


def test_calls_that_cannot_be_written_are_told_so(outbox, files, tmp_path):
    told, array = [], np.arange(100_000)
    files.refusal = PermissionError("not yours")
    files.gate.set()
    outbox.put(*of(np.take, array, 7), told.append)
    wait_until(lambda: told)
    assert told == [files.refusal]
    files.refusal = None
    outbox.put(*of(np.take, array, 7), told.append)
    wait_until(lambda: len(told) == 2)
    assert int(value_of(told[1], tmp_path / "trial")) == 7


def test_nobody_is_told_anything_after_the_end(files, folder):
    told = []
    outbox = Outbox(files, folder, largest_backlog=1)
    outbox.put(*of(abs, 1), told.append)
    closing = threading.Thread(target=outbox.close)
    closing.start()
    outbox.put(*of(abs, 2), told.append)  # the backlog is full: this returns once it is closing
    files.gate.set()
    closing.join(LONG)
    outbox.put(*of(abs, 1), told.append)
    assert told == []
    assert not files.names(folder.parent)
