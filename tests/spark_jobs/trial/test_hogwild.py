"""Threads of one trial that train the same variables."""

import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import experiment
from search.errors import InvalidArgument
from spark_jobs.trial import context
from spark_jobs.trial.context import TrialContext, TrialStopped, entered
from tests.properties import examples


@examples(30)
@given(batches=st.lists(st.integers(), max_size=30), threads=st.integers(1, 6))
def test_each_batch_is_used_once(batches, threads):
    used = []
    assert experiment.hogwild(used.append, iter(batches), threads=threads) is None
    assert sorted(used) == sorted(batches)


def test_the_threads_run_at_once():
    together = threading.Barrier(3, timeout=60)
    names = set()

    def step(batch):
        names.add(threading.current_thread().name)
        together.wait()  # ends only if all three are here

    experiment.hogwild(step, range(6), threads=3)
    assert len(names) == 3


def test_an_error_ends_all_threads_and_is_raised():
    failed = threading.Event()
    used = []

    def step(batch):
        if batch == 0:
            failed.set()
            raise ZeroDivisionError("in batch 0")
        failed.wait(60)
        used.append(batch)

    def endless():
        number = 0
        while True:
            yield number
            number += 1

    with pytest.raises(ZeroDivisionError, match="in batch 0"):
        experiment.hogwild(step, endless(), threads=4)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("hogwild")]


def test_an_error_of_the_data_is_raised():
    def data():
        yield 1
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        experiment.hogwild(lambda batch: None, data(), threads=2)


def test_the_threads_report_for_the_trial_and_stop_with_it(tmp_path):
    link = Link()
    trial = TrialContext(params={}, folder=tmp_path, link=link)
    with entered(trial), pytest.raises(TrialStopped, match="enough"):
        experiment.hogwild(
            lambda batch: experiment.report(step=batch, loss=1.0), range(1000), threads=2
        )
    assert link.steps


class Link:
    """A link whose trial is to stop at once."""

    def __init__(self):
        self.steps = []

    def send(self, report):
        self.steps.append(report.step)

    def stop(self):
        return "enough"


def test_the_threads_are_as_many_as_the_cores_of_the_slot(tmp_path):
    def used():
        names = set()
        together = threading.Barrier(expected, timeout=60)

        def step(batch):
            names.add(threading.current_thread().name)
            together.wait()

        experiment.hogwild(step, range(expected))
        return len(names)

    expected = 3
    with entered(TrialContext(params={}, folder=tmp_path, cores=3)):
        assert used() == 3
    expected = len(os.sched_getaffinity(0))
    assert context.current() is None
    assert used() == expected


def test_threads_train_one_model():
    import tensorflow as tf

    generator = np.random.default_rng(0)
    x = generator.normal(size=(4096, 4)).astype("float32")
    truth = np.array([1.0, -2.0, 3.0, 0.5], "float32")
    y = x @ truth
    weights = tf.Variable(tf.zeros(4))

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.linalg.matvec(x, weights) - y) ** 2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))

    batches = [(x[first : first + 16], y[first : first + 16]) for first in range(0, 4096, 16)]
    train(*batches[0])
    experiment.hogwild(lambda batch: train(*batch), batches, threads=4)
    assert weights.numpy() == pytest.approx(truth, abs=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, []), "^step: expected a function of a batch, got None"),
        ((print, 3), "^data: expected an iterable of batches, got 3"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        experiment.hogwild(*arguments)
    with pytest.raises(InvalidArgument, match="^threads: expected an integer of at least 1, got 0"):
        experiment.hogwild(print, [], threads=0)
