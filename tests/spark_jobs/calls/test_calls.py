"""Calls and their results, through files of this host."""

import builtins
import contextlib
import pickle
import queue
import shutil

import numpy as np
import pytest

from search.trial import Trial
from spark_jobs.calls import calls
from spark_jobs.calls.calls import Pickled, read_raised, read_returned, run_call
from spark_jobs.calls.outbox import Outbox
from spark_jobs.calls.plain_values import NotPlain, encode
from spark_jobs.messages import Attempt
from spark_jobs.run_folder.paths import RETURNED
from spark_jobs.storage.files import LocalFiles, StoreUnavailable
from spark_jobs.storage.locations import Location
from spark_jobs.trial import context
from spark_jobs.trial.context import MachineError
from spark_jobs.trial.objective import UnusableReturn
from spark_jobs.trial.trial_process import evaluate
from tests.spark_jobs.slot.running import program


def pickled(value, *, apart=False):
    buffers = []
    take = buffers.append if apart else None
    data = pickle.dumps(value, protocol=5, buffer_callback=take)
    return Pickled(data, [buffer.raw() for buffer in buffers])


@pytest.fixture
def outbox(tmp_path):
    with contextlib.closing(Outbox(LocalFiles(), Location.parse(tmp_path / "calls"))) as outbox:
        yield outbox


def put(outbox, function, arguments):
    """Put a call; return its place once it has been written."""
    ends = queue.SimpleQueue()
    outbox.put(function, arguments, ends.put)
    return ends.get(timeout=60)


def run(folder, call):
    """Run a call as in a trial with this folder."""
    folder.mkdir(exist_ok=True)
    with context.entered(context.TrialContext(params={}, folder=folder)):
        return run_call("function", call.batch, call.index)


def returned(folder):
    return read_returned(LocalFiles(), Location.parse(folder))


def raised(folder):
    return read_raised(LocalFiles(), Location.parse(folder))


def double_in_place(array, *, by=2):
    array *= by
    return array


def test_a_call_returns_a_value(outbox, tmp_path):
    array = np.arange(5.0)
    call = put(outbox, pickled(double_in_place), pickled(((array,), {"by": 3}), apart=True))
    metrics = run(tmp_path / "trial", call)
    assert returned(tmp_path / "trial").tolist() == [0, 3, 6, 9, 12]
    assert metrics == {"returned bytes": (tmp_path / "trial" / RETURNED).stat().st_size}


def test_arrays_inside_a_batch_are_writable(outbox, tmp_path):
    array = np.arange(5.0)
    call = put(outbox, pickled(double_in_place), pickled(((array,), {}), apart=True))
    assert len(list((tmp_path / "calls").iterdir())) == 1
    run(tmp_path / "trial", call)
    assert returned(tmp_path / "trial").tolist() == [0, 2, 4, 6, 8]


def test_nothing_is_unpickled_that_the_driver_has_not_sent(outbox, tmp_path):
    array = np.arange(100_000)
    call = put(outbox, pickled(double_in_place), pickled(((array,), {}), apart=True))
    files = sorted((tmp_path / "calls").iterdir())
    assert len(files) == 2  # the array, and a batch
    for file in files:
        content = file.read_bytes()
        file.write_bytes(content + b"!")
        with pytest.raises(MachineError, match=f"{file.name}: its content is not the driver's"):
            run(tmp_path / "trial", call)
        assert raised(tmp_path / "trial") is None
        file.write_bytes(content)
    run(tmp_path / "trial", call)


def outcome_of(folder, call):
    """Return the outcome of a trial with this folder that runs a call."""
    folder.mkdir(exist_ok=True)
    params = {"function": "function", "batch": call.batch, "index": call.index}
    return evaluate(program(run_call), Attempt(Trial(0, params)), folder)


def test_a_call_that_cannot_be_read_is_the_machines_failure(outbox, tmp_path):
    call = put(outbox, pickled(int), pickled(((), {})))
    shutil.rmtree(tmp_path / "calls")
    failure = outcome_of(tmp_path / "trial", call).error
    assert failure.kind == "machine"
    assert failure.message.startswith("the call cannot be read: [Errno 2] No such file")


def test_a_call_whose_store_does_not_answer_counts_against_no_host(outbox, tmp_path, monkeypatch):
    def away(location, hadoop):
        raise StoreUnavailable(f"{location}: HDFS does not answer")

    call = put(outbox, pickled(int), pickled(((), {})))
    monkeypatch.setattr(calls, "files_at", away)
    failure = outcome_of(tmp_path / "trial", call).error
    assert (failure.kind, failure.of_store) == ("machine", True)
    assert failure.message == f"the call cannot be read: {call.batch}: HDFS does not answer"


def test_a_result_that_cannot_be_written_is_the_machines_failure(outbox, tmp_path):
    folder = tmp_path / "trial"
    call = put(outbox, pickled(replace_by_a_file), pickled(((folder,), {})))
    failure = outcome_of(folder, call).error
    assert failure.kind == "machine"
    assert failure.message.startswith("what the call returned cannot be written: [Errno 17]")


def replace_by_a_file(folder):
    shutil.rmtree(folder)
    folder.touch()


def fail_with(error):
    raise error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("two\nlines"),
        KeyError(("a", 1)),
        ZeroDivisionError(),
        FileNotFoundError(2, "no such file", "x"),
        UnicodeDecodeError("ascii", b"\xff", 0, 1, "ordinal not in range"),
    ],
)
def test_exceptions_of_python_survive_their_round_trip(outbox, tmp_path, error):
    call = put(outbox, pickled(fail_with), pickled(((error,), {})))
    with pytest.raises(type(error)):
        run(tmp_path / "trial", call)
    again = raised(tmp_path / "trial")
    assert type(again) is type(error)
    assert (again.args, str(again)) == (error.args, str(error))


def allocate_too_much():
    return np.zeros(10**15)


def lose_a_memory_error():
    """As CPython does where no room is left for a traceback."""
    raise SystemError("error return without exception set")


@pytest.mark.parametrize(
    ("function", "text"), [(allocate_too_much, "Unable to allocate"), (lose_a_memory_error, "")]
)
def test_an_error_of_lacking_memory_is_a_memory_error(outbox, tmp_path, function, text):
    call = put(outbox, pickled(function), pickled(((), {})))
    assert outcome_of(tmp_path / "trial", call).error.kind == "memory"
    again = raised(tmp_path / "trial")
    assert type(again) is MemoryError
    assert str(again).startswith(text)


@pytest.mark.parametrize("error", [NotPlain("mine"), ValueError(object()), ValueError({1, 2})])
def test_other_exceptions_are_not_encoded(outbox, tmp_path, error):
    call = put(outbox, pickled(fail_with), pickled(((error,), {})))
    with pytest.raises(type(error)):
        run(tmp_path / "trial", call)
    assert raised(tmp_path / "trial") is None


def remove_and_fail(folder):
    shutil.rmtree(folder)
    raise KeyError("a")


def replace_and_fail(folder):
    replace_by_a_file(folder)
    raise KeyError("a")


@pytest.mark.parametrize(
    ("function", "kept"), [(remove_and_fail, KeyError), (replace_and_fail, type(None))]
)
def test_a_call_that_removed_its_folder_fails_with_its_own_error(outbox, tmp_path, function, kept):
    call = put(outbox, pickled(function), pickled(((tmp_path / "trial",), {})))
    with pytest.raises(KeyError, match="a"):
        run(tmp_path / "trial", call)
    assert type(raised(tmp_path / "trial")) is kept


@pytest.mark.parametrize(
    "left",
    [
        ["eval", ("1 / 0",)],
        ["exec", ("raise KeyError",)],
        ["SystemExit", ()],
        ["KeyboardInterrupt", ()],
        ["object", ()],
        ["__import__", ("antigravity",)],
        ["NoSuchError", ()],
        ["UnicodeDecodeError", ("too few",)],
        ["UnicodeDecodeError", ("utf-8", b"", 2**64 - 1, 0, "too large")],
        ["ValueError"],
        ["ValueError", ["no tuple"]],
        "ValueError",
        None,
    ],
)
def test_no_file_makes_anything_but_an_exception(tmp_path, left, monkeypatch):
    monkeypatch.setattr(builtins, "eval", lambda _: pytest.fail("it was called"))
    (tmp_path / RETURNED).write_bytes(encode(left))
    assert raised(tmp_path) is None
    (tmp_path / RETURNED).write_bytes(b"\xc1")
    assert raised(tmp_path) is None


def test_a_value_that_cannot_be_returned_is_an_error(outbox, tmp_path, monkeypatch):
    call = put(outbox, pickled(object), pickled(((), {})))
    with pytest.raises(UnusableReturn, match="the returned value: expected None, .* of type obj"):
        run(tmp_path / "trial", call)
    monkeypatch.setattr("spark_jobs.calls.calls.LARGEST_RESULT", 1 << 20)
    call = put(outbox, pickled(bytes), pickled(((2 << 20,), {})))
    with pytest.raises(UnusableReturn, match="expected at most 1 MiB, got 2 MiB; write it to"):
        run(tmp_path / "trial", call)
    (tmp_path / RETURNED).write_bytes(bytes(2 << 20))
    with pytest.raises(NotPlain, match="2097152 bytes, more than 1048576"):
        returned(tmp_path)
