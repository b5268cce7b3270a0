"""Outcomes of trials, as their processes find them."""

import errno
import socket
from types import SimpleNamespace

import cloudpickle
import pytest

from search.trial import Trial
from spark_jobs.messages import Attempt
from spark_jobs.storage.files import StoreUnavailable
from spark_jobs.storage.host_cache import CacheUnavailable
from spark_jobs.storage.webhdfs import WebHdfs
from spark_jobs.trial.trial_process import Program, evaluate


@pytest.mark.parametrize("key", [None, "val_loss"])
@pytest.mark.parametrize(("number", "kind"), [(1, "invalid value"), (2, "lost executor")])
def test_no_epoch_left_after_a_lost_attempt_is_its_loss(tmp_path, key, number, kind):
    """Keras restores a checkpoint of the attempt before, which was lost after the last epoch."""

    def train():
        return SimpleNamespace(history={}, epoch=[])

    program = Program(function=cloudpickle.dumps(train), key=key, direction="min")
    outcome = evaluate(program, Attempt(Trial(0, {}), number), tmp_path)
    assert (outcome.status, outcome.error.kind) == ("failed", kind)
    assert outcome.error.message.startswith("got a History without epochs")


def outcome_of(train, folder):
    """Return the outcome of a trial that runs this function."""
    program = Program(function=cloudpickle.dumps(train), key=None, direction="min")
    return evaluate(program, Attempt(Trial(0, {})), folder)


@pytest.mark.parametrize("repeats", [1, 3])
def test_each_repeat_gets_the_hyperparameters_of_the_trial(tmp_path, repeats):
    """Also where the function takes the layers of its network out of the list one by one."""

    def train(layers):
        found = 0
        while layers:
            found += layers.pop()
        return found

    function = cloudpickle.dumps(train)
    program = Program(function=function, key=None, direction="min", repeats=repeats)
    trial = Trial(0, {"layers": [64, 32]})
    assert evaluate(program, Attempt(trial), tmp_path).value == 96
    assert trial.params == {"layers": [64, 32]}


FULL = "no room for the 9 bytes of hdfs://a/b"
OF_MACHINE = [
    StoreUnavailable("hdfs://a/b: HDFS failed for 60 s: SafeModeException"),
    CacheUnavailable(errno.ENOSPC, FULL, "/tmp/cache"),
]
OF_USER = [
    ConnectionError("the download failed"),
    FileNotFoundError(errno.ENOENT, "no such file or folder", "hdfs://a/b"),
    PermissionError(errno.EACCES, "no permission", "hdfs://a/b"),
    OSError(errno.ENOSPC, "No space left on device", "/data"),
]


@pytest.mark.parametrize("error", [*OF_MACHINE, *OF_USER], ids=repr)
def test_data_that_the_machine_does_not_give_is_its_failure(tmp_path, error):
    def train():
        raise error

    failure = outcome_of(train, tmp_path).error
    assert failure.kind == ("machine" if error in OF_MACHINE else "user error")
    assert failure.of_store == isinstance(error, StoreUnavailable)
    assert str(error) in failure.message


@pytest.mark.parametrize("error", [*OF_MACHINE, *OF_USER], ids=repr)
def test_an_error_in_a_generator_of_tensorflow_keeps_its_kind(tmp_path, error):
    tensorflow = pytest.importorskip("tensorflow")

    def train():
        def numbers():
            yield 1
            raise error

        spec = tensorflow.TensorSpec([], tensorflow.int32)
        return len(list(tensorflow.data.Dataset.from_generator(numbers, output_signature=spec)))

    failure = outcome_of(train, tmp_path).error
    assert failure.kind == ("machine" if error in OF_MACHINE else "user error")
    assert failure.of_store == isinstance(error, StoreUnavailable)
    assert failure.message == str(error) or error in OF_USER


class Unsaid(Exception):
    """An error that passes for one of TensorFlow, and has no text."""

    __module__ = "tensorflow.errors"

    def __str__(self):
        raise ValueError


class OfNoModule(Exception):
    """An error whose module has no name."""

    __module__ = 3


@pytest.mark.parametrize("kind", [Unsaid, OfNoModule])
def test_an_error_that_cannot_be_read_is_the_users(tmp_path, kind):
    def train():
        raise kind

    assert outcome_of(train, tmp_path).error.kind == "user error"


def test_a_store_that_does_not_answer_is_asked_as_long_as_outside_of_a_trial(tmp_path, monkeypatch):
    monkeypatch.setattr(WebHdfs.__init__, "__defaults__", (0.25,))

    def train():
        from experiment import data

        data.local_copy(f"webhdfs://127.0.0.1:{port}/digits")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        failure = outcome_of(train, tmp_path).error
    assert (failure.kind, failure.of_store) == ("machine", True)
    assert "within 0.25 s (Connection refused)" in failure.message
