"""Entering a strategy, without its framework: the contract of all of them."""

from __future__ import annotations

import pytest

from search.errors import InvalidArgument
from spark_jobs.communicator.communicator import Communicator
from spark_jobs.communicator.membership import Membership
from spark_jobs.communicator.requests import Home
from spark_jobs.strategies.downpour import downpour
from spark_jobs.strategies.entering import entered
from spark_jobs.strategies.mirrored import mirrored
from spark_jobs.strategies.settings import Downpour, Mirrored, name_of

MEMBERS = ("127.0.0.1:20000", "127.0.0.1:20001")
PLACE = {
    "members": MEMBERS,
    "communicator": Communicator(
        Membership(rank=1, members=MEMBERS, key="", certificate=""), Home()
    ),
}
FRAMEWORKS = [(Mirrored(), mirrored, "TensorFlow"), (Downpour(), downpour, "Keras")]


def test_without_a_strategy_nothing_is_entered():
    with entered(None, **PLACE):
        pass


@pytest.mark.parametrize(("strategy", "module", "framework"), FRAMEWORKS)
def test_a_strategy_without_its_framework_is_refused_with_the_worker(
    monkeypatch, strategy, module, framework
):
    monkeypatch.setattr(module, "is_installed", lambda name: name != framework.lower())
    with pytest.raises(InvalidArgument) as raised, entered(strategy, **PLACE):
        raise AssertionError("the train function is not called")
    assert str(raised.value) == (
        f"strategy: expected {framework}, for '{name_of(strategy)}', got none on the host of "
        "worker 1; install it, or use None"
    )
