"""Calls are written in the background."""

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
    """Return a pickled call, with large buffers out of band."""
    buffers = []
    data = pickle.dumps((arguments, {}), protocol=5, buffer_callback=buffers.append)
    return Pickled(pickle.dumps(function)), Pickled(data, [buffer.raw() for buffer in buffers])


def value_of(sent, folder):
    """Run a call as in a trial with this folder; return its value."""
    folder.mkdir(exist_ok=True)
    with context.entered(context.TrialContext(params={}, folder=folder)):
        run_call("function", sent.batch, sent.index)
    return read_returned(LocalFiles(), Location.parse(folder))


def test_calls_that_wait_share_a_file(outbox, files, tmp_path):
    ends = []
    for number in range(500):  # nothing is written yet, and nobody waits for it
        outbox.put(*of(abs, -number), ends.append)
    assert ends == []
    files.gate.set()
    wait_until(lambda: len(ends) == 500)
    assert len(files.written) <= 2  # what came before the thread looked, and the others
    assert [value_of(ends[n], tmp_path / "trial") for n in (0, 1, 499)] == [0, 1, 499]


def test_a_batch_has_a_size(outbox, files):
    ends, size = [], LARGEST_BATCH // 4
    for number in range(12):
        outbox.put(*of(len, bytes([number]) * (size - 1_000)), ends.append)
    files.gate.set()
    wait_until(lambda: len(ends) == 12)
    assert max(files.written) <= LARGEST_BATCH


def test_a_function_counts_once_in_a_batch(outbox, files):
    ends, function = [], Pickled(b"f" * 50_000)
    for number in range(100):
        outbox.put(function, of(abs, -number)[1], ends.append)
    files.gate.set()
    wait_until(lambda: len(ends) == 100)
    assert len(files.written) <= 2  # what came before the thread looked, and the others


def test_a_large_content_is_sent_once(outbox, files, folder):
    ends, array = [], np.arange(100_000)
    for number in range(3):
        outbox.put(*of(np.take, array, number), ends.append)
    files.gate.set()
    wait_until(lambda: len(ends) == 3)
    outbox.put(*of(np.take, array, 3), ends.append)
    wait_until(lambda: len(ends) == 4)
    assert sorted(files.written)[-1] == array.nbytes
    assert sum(sorted(files.written)[:-1]) < 5_000
    outbox.close()
    assert not files.names(folder.parent)


def test_a_call_gets_its_arguments_as_of_the_call(outbox, files, tmp_path):
    ends, array = [], np.arange(100_000)
    for number in range(3):
        array[0] = number
        outbox.put(*of(np.take, array, 0), ends.append)
    array[0] = -1
    files.gate.set()
    wait_until(lambda: len(ends) == 3)
    assert [int(value_of(sent, tmp_path / "trial")) for sent in ends] == [0, 1, 2]


def test_callers_faster_than_the_writer_wait(files, folder):
    ends, size = [], 100_000
    with contextlib.closing(Outbox(files, folder, largest_backlog=2 * size + 1_000)) as outbox:
        made = []

        def make():
            for number in range(4):
                outbox.put(*of(len, np.full(size, number, np.uint8)), ends.append)
                made.append(number)

        thread = threading.Thread(target=make)
        thread.start()
        wait_until(lambda: len(made) == 2)
        assert ends == []
        files.gate.set()
        thread.join(LONG)
        wait_until(lambda: len(ends) == 4)
    assert LARGEST_BACKLOG > LARGEST_BATCH


def test_calls_that_cannot_be_written_get_the_error(outbox, files, tmp_path):
    ends, array = [], np.arange(100_000)
    files.refusal = PermissionError("not yours")
    files.gate.set()
    outbox.put(*of(np.take, array, 7), ends.append)
    wait_until(lambda: ends)
    assert ends == [files.refusal]
    files.refusal = None
    outbox.put(*of(np.take, array, 7), ends.append)
    wait_until(lambda: len(ends) == 2)
    assert int(value_of(ends[1], tmp_path / "trial")) == 7


def test_a_call_that_cannot_be_written_may_be_put_again(files, folder):
    ends = []
    files.refusal = PermissionError("not yours")

    def try_again(error):
        ends.append(error)
        outbox.put(*of(abs, 2), ends.append)

    with contextlib.closing(Outbox(files, folder, largest_backlog=1)) as outbox:
        outbox.put(*of(abs, 1), try_again)
        files.gate.set()
        wait_until(lambda: len(ends) == 2)


def test_nothing_is_called_after_the_end(files, folder):
    ends = []
    outbox = Outbox(files, folder, largest_backlog=1)
    outbox.put(*of(abs, 1), ends.append)
    closing = threading.Thread(target=outbox.close)
    closing.start()
    outbox.put(*of(abs, 2), ends.append)  # the backlog is full: this returns once it is closing
    files.gate.set()
    closing.join(LONG)
    outbox.put(*of(abs, 1), ends.append)
    assert ends == []
    assert not files.names(folder.parent)
