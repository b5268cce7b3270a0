"""The workers leave `fit` together, and hear of one that does not come to the end of an epoch."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from spark_jobs.communicator import meeting
from spark_jobs.communicator.membership import MembersDisagree
from spark_jobs.strategies.in_step.agreement import agreement
from tests.spark_jobs.communicator.gangs import LIMIT, Gang, results


def begun(communicator):
    """Return the callback of a worker whose `fit` has begun."""
    keras = SimpleNamespace(callbacks=SimpleNamespace(Callback=object))
    callback = agreement(keras, communicator)
    callback.model = SimpleNamespace(stop_training=False)
    callback.on_train_begin()
    return callback


@pytest.mark.parametrize("asks", [None, 0, 1])
def test_all_leave_at_the_end_of_an_epoch_in_which_one_has_asked(asks):
    def body(communicator):
        callback = begun(communicator)
        callback.on_train_batch_begin(0)
        callback.model.stop_training = communicator.rank == asks
        callback.on_train_batch_end(0)
        alone = callback.model.stop_training
        callback.on_epoch_end(0)
        return alone, callback.model.stop_training

    assert results(2, body) == [(False, asks is not None)] * 2


def test_a_worker_that_is_at_the_end_of_an_epoch_hears_of_one_in_a_further_step(monkeypatch):
    """On JAX, the other one waits in that step for ever."""
    monkeypatch.setattr(meeting, "_LOOK", 0.01)
    failed = threading.Event()

    def body(communicator):
        callback = begun(communicator)
        callback.on_train_batch_begin(0)
        if communicator.rank == 0:
            callback.on_train_batch_begin(1)
            assert failed.wait(LIMIT)
            return
        try:
            callback.on_epoch_end(0)
        finally:
            failed.set()

    with Gang(2) as gang:
        _, error = gang.together(body, patience=5)
    assert isinstance(error, MembersDisagree), error
    assert "but worker 0 has begun another one, in which it waits for worker 1" in str(error)
