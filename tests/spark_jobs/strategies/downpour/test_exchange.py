"""The callbacks that begin and end the exchange."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from search.errors import InvalidArgument
from spark_jobs.communicator import meeting
from spark_jobs.strategies.downpour.exchange import callbacks_of
from spark_jobs.strategies.settings import Downpour
from tests.spark_jobs.communicator.gangs import LIMIT, Gang


@pytest.fixture(autouse=True)
def _looking_often(monkeypatch):
    monkeypatch.setattr(meeting, "_LOOK", 0.01)


def test_a_worker_whose_other_callbacks_end_later_than_the_patience_is_waited_for():
    """As where rank 0 alone exports the model in `on_train_end`."""
    import keras

    waits = threading.Event()

    def body(communicator):
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.set_weights([np.full((1, 1), communicator.rank), np.zeros(1)])
        _, last = callbacks_of(keras, Downpour(), communicator)
        last.set_model(model)
        communicator._meeting._patience = LIMIT  # from the meeting on: a busy machine is slow
        if communicator.rank == 0:
            assert waits.wait(LIMIT)
            for _ in range(3):  # the other one has waited longer than its patience
                threading.Event().wait(0.2)
        else:
            waits.set()
        last.on_train_end()
        return model.get_weights()[0].item()

    with Gang(2) as gang:
        assert gang.together(body, patience=0.2) == [0, 0]


def test_vocabularies_that_differ_between_the_workers_are_refused_in_all_of_them():
    """Or all would change the same rows of an embedding for different words."""
    import keras

    def body(communicator):
        given = keras.layers.Input((1,), dtype="string")
        words = ["a", "b"] if communicator.rank == 1 else ["b", "a"]
        numbers = keras.layers.StringLookup(vocabulary=words)(given)
        model = keras.Model(given, keras.layers.Embedding(3, 1)(numbers))
        first, last = callbacks_of(keras, Downpour(), communicator)
        first.set_model(model)
        last.on_train_begin()

    with Gang(3) as gang:
        found = gang.together(body)
    assert [(type(error), str(error)) for error in found] == [
        (
            InvalidArgument,
            "model: expected the same vocabularies in all workers, for 'downpour', got different "
            "ones; give each layer the same list of words in all workers, by vocabulary=",
        )
    ] * 3
