"""The batch size that a model trains fastest with."""

import contextlib
import functools
import itertools
import os
import re
import resource
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import experiment
from experiment.large_batches import batch_size
from experiment.large_batches.batch_size import BatchSize
from experiment.large_batches.measuring import Problem, Speed, doubled, speeds
from search.errors import InvalidArgument
from spark_jobs.trial.context import TrialContext, entered
from spark_jobs.trial.memory.gpu_share import GpuShare
from tests.properties import examples
from tests.spark_jobs.communicator.gangs import results

DATA = (np.ones((64, 8), "float32"), np.zeros(64, "float32"))


def build():
    import keras

    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def build_huge():
    """Return a model that takes tensors of 256 MiB for 16 samples and of 2 GiB for 32.

    The process may take 3 GiB of address space beside what it has.
    """
    import keras

    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (3 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    class Cube(keras.layers.Layer):
        def call(self, x):
            s = keras.ops.sum(x, axis=-1)
            rows = s[:, None, None, None] * s[:, None, None] * s[:, None]
            return keras.ops.mean(keras.ops.tanh(rows * keras.ops.ones((1 << 14,))), axis=(1, 2, 3))

    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(8), Cube()])
    model.compile("sgd", "mse")
    return model


def build_precise():
    import keras

    assert keras.config.dtype_policy().name == "mixed_bfloat16"
    raise ValueError("no layers")


class Unpickled:
    """A function whose unpickling calls another one, before the process imports Keras."""

    def __init__(self, function):
        self._function = function

    def __call__(self):
        raise AssertionError("not reached")

    def __reduce__(self):
        return self._function, ()


def exhaust():
    raise MemoryError("no room")


def name_limits():
    import torch

    raise ValueError(f"the limits {torch.limits}")


def measured(of):
    """Return the batches whose speeds are taken from a list per batch, until the end."""
    left = {batch: list(found) for batch, found in of.items()}
    return dict(speeds(tuple(of), lambda batch: left[batch].pop(0)))


@examples(100)
@given(least=st.integers(1, 10**6), times=st.floats(1, 10**4))
def test_batches_are_doubled_up_to_the_greatest(least, times):
    most = int(least * times)
    batches = doubled(least, most)
    assert batches[0] == least
    assert all(after == 2 * before for before, after in itertools.pairwise(batches))
    assert batches[-1] <= most < 2 * batches[-1]


def test_doubling_ends_where_it_gains_less_than_a_tenth_twice_in_a_row():
    of = {1: [100.0], 2: [190.0], 4: [208.0, 200.0], 8: [200.0, 207.0], 16: [0.0]}
    assert measured(of) == {1: 100.0, 2: 190.0, 4: 208.0, 8: 207.0}


def test_doubling_goes_on_after_one_batch_that_is_slow():
    of = {1: [100.0], 2: [95.0, 90.0], 4: [300.0], 8: [310.0, 0.0], 16: [600.0]}
    assert measured(of) == {1: 100.0, 2: 95.0, 4: 300.0, 8: 310.0, 16: 600.0}


def test_a_batch_that_seems_slow_is_measured_again():
    found = measured({1: [100.0], 2: [90.0, 180.0], 4: [170.0, 175.0], 8: [0.0, 1.0]})
    assert found == {1: 100.0, 2: 180.0, 4: 175.0, 8: 1.0}


def test_the_fastest_batch_may_be_smaller_than_the_largest():
    found = BatchSize(samples_per_second={16: 100.0, 32: 190.0, 64: 180.0}, limit="speed")
    assert (found.largest, found.fastest, found.advice) == (64, 32, "")
    assert str(found).splitlines() == [
        "   batch   samples/s",
        "      16         100",
        "      32         190  fastest",
        "      64         180  largest",
    ]


def test_beyond_memory_the_gradients_can_be_accumulated():
    found = BatchSize(samples_per_second={16: 100.0, 32: 190.0}, limit="gpu memory")
    assert found.advice == (
        "batches of 64 do not fit into the gpu memory: for a step of k * 32 samples, train with "
        "batch_size=32 and give the optimizer gradient_accumulation_steps=k"
    )
    assert str(found).endswith(found.advice)


def test_all_workers_get_the_least_speeds_of_the_batches_that_each_has_measured(
    tmp_path, monkeypatch
):
    found = [
        [(8, 100.0), (16, 190.0), (32, 180.0), (64, 170.0)],
        [(8, 90.0), (16, 195.0)],
    ]

    def call(communicator):
        rank = communicator.rank
        trial = TrialContext(params={}, folder=tmp_path, rank=rank, communicator=communicator)
        with entered(trial):
            return experiment.auto_batch_size(build, DATA, least=8)

    @contextlib.contextmanager
    def measuring(work, share):
        rank = experiment.rank()
        messages = [Speed(batch=size, samples_per_second=speed) for size, speed in found[rank]]
        yield iter([*messages, Problem(memory="memory", error="no room")] if rank else messages)

    monkeypatch.setattr(batch_size, "_measuring", measuring)
    expected = BatchSize(samples_per_second={8: 90.0, 16: 190.0}, limit="memory")
    assert results(2, call) == [expected] * 2


def test_numbers_of_numpy_become_those_of_python(monkeypatch):
    """The process that measures writes them as JSON."""

    @contextlib.contextmanager
    def measuring(work, share):
        yield iter([Speed(batch=size, samples_per_second=1.0) for size in work.batches])

    monkeypatch.setattr(batch_size, "_measuring", measuring)
    found = experiment.auto_batch_size(build, DATA, least=np.int64(8), most=np.int64(32))
    assert [type(size) for size in found.samples_per_second] == [int, int, int]


@pytest.mark.slow
@pytest.mark.contract
def test_a_model_is_trained_with_each_batch():
    found = experiment.auto_batch_size(build, DATA, least=8, most=31, seconds=0.01)
    assert list(found.samples_per_second) == [8, 16] or found.limit == "speed"
    assert all(speed > 0 for speed in found.samples_per_second.values())
    assert found.limit in ("most", "speed")


@pytest.mark.slow
@pytest.mark.contract
def test_memory_ends_the_process_and_not_this_one():
    found = experiment.auto_batch_size(build_huge, DATA, least=16, seconds=0.01)
    assert (list(found.samples_per_second), found.limit) == ([16], "memory")


@pytest.mark.slow
def test_an_error_in_the_process_is_named_and_its_precision_is_that_of_this_one():
    import keras

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        expected = "^build: expected a function whose model trains with batches of 4, got ValueErr"
        with pytest.raises(InvalidArgument, match=f"{expected}or: no layers"):
            experiment.auto_batch_size(build_precise, DATA, least=4)
    finally:
        keras.config.set_dtype_policy(before)


@pytest.mark.parametrize(("number", "name"), [(6, "SIGABRT"), (40, "unknown")])
def test_a_process_that_crashes_is_named_with_its_signal(number, name):
    def end():
        os.kill(os.getpid(), number)

    with pytest.raises(InvalidArgument, match=rf"its process ended by signal {number} \({name}\)"):
        experiment.auto_batch_size(Unpickled(end), DATA)


@pytest.mark.parametrize(("share", "limits"), [(GpuShare(0.45), [0.45]), (None, [])])
def test_the_process_has_the_share_of_a_gpu_of_the_trial(tmp_path, monkeypatch, share, limits):
    (tmp_path / "torch.py").write_text(
        "from types import SimpleNamespace\n"
        "limits = []\n"
        "cuda = SimpleNamespace(is_available=lambda: True,\n"
        "    set_per_process_memory_fraction=limits.append)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def measure():
        expected = re.escape(f"ValueError: the limits {limits}")
        with pytest.raises(InvalidArgument, match=expected):
            experiment.auto_batch_size(Unpickled(name_limits), DATA)

    if share is None:
        measure()  # outside of a trial
    with entered(TrialContext(params={}, folder=tmp_path, gpu_share=share)):
        measure()


@pytest.mark.parametrize("end", [sys.exit, functools.partial(os._exit, 0)])
def test_a_process_that_ends_by_itself_has_measured_nothing(end):
    with pytest.raises(InvalidArgument, match="^build: .* its process ended by exit code 0"):
        experiment.auto_batch_size(Unpickled(end), DATA)


def build_once():
    """Return a model in the first call, and end the process in the second."""
    if "BUILT_ONCE" in os.environ:
        sys.exit()
    os.environ["BUILT_ONCE"] = "yes"
    return build()


@pytest.mark.slow
def test_a_process_that_ends_by_itself_after_a_batch_has_found_no_limit():
    with pytest.raises(InvalidArgument, match="trains with batches of 16, got its process ended"):
        experiment.auto_batch_size(build_once, DATA, least=8, seconds=0.01)


def test_a_model_for_which_there_is_no_memory_at_all_is_refused():
    with pytest.raises(InvalidArgument, match="^least: expected a batch that fits into the memory"):
        experiment.auto_batch_size(Unpickled(exhaust), DATA)


def test_what_cannot_be_sent_to_the_process_is_refused():
    lock = threading.Lock()

    def build():
        return lock

    expected = "^build: expected a function that can be pickled, for another process, got TypeError"
    with pytest.raises(InvalidArgument, match=expected):
        experiment.auto_batch_size(build, DATA)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"build": None}, "^build: expected a function that returns a compiled model, got None"),
        ({"data": DATA[0]}, "^data: "),
        ({"least": 0}, "^least: expected an integer of at least 1"),
        ({"least": 8, "most": 4}, "^most: expected an integer of at least 8, got 4"),
        ({"most": 65}, "^most: expected at most 64, the samples, got 65"),
        ({"least": 65}, "^least: expected at most 64, the samples, got 65"),
        ({"seconds": 0}, "^seconds: expected seconds above zero"),
    ],
)
def test_bad_arguments_are_refused_before_a_process_starts(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        experiment.auto_batch_size(**({"build": build, "data": DATA} | arguments))
