"""Entering a strategy, without its framework."""

import pytest

from search.errors import InvalidArgument
from spark_jobs.strategies.entering import entered
from spark_jobs.strategies.mirrored import mirrored
from spark_jobs.strategies.settings import Mirrored

PLACE = {"rank": 1, "members": ["127.0.0.1:20000", "127.0.0.1:20001"], "collectives": None}


def test_without_a_strategy_nothing_is_entered():
    with entered(None, **PLACE):
        pass


def test_a_strategy_without_its_framework_is_refused_with_the_worker(monkeypatch):
    monkeypatch.setattr(mirrored, "is_installed", lambda name: False)
    with pytest.raises(InvalidArgument) as raised, entered(Mirrored(), **PLACE):
        raise AssertionError("the train function is not called")
    assert str(raised.value) == (
        "strategy: expected TensorFlow, for 'mirrored', got none on the host of worker 1; install "
        "it, or use None"
    )
