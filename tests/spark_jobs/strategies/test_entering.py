"""Entering a strategy, without its framework: the contract of all of them."""

from __future__ import annotations

import pytest

from search.errors import InvalidArgument
from spark_jobs.communicator.communicator import Communicator
from spark_jobs.communicator.membership import Membership
from spark_jobs.communicator.requests import Home
from spark_jobs.strategies import frameworks
from spark_jobs.strategies.entering import entered
from spark_jobs.strategies.settings import Codistillation, Downpour, Jax, Mirrored, name_of

MEMBERS = ("127.0.0.1:20000", "127.0.0.1:20001")
PLACE = {
    "members": MEMBERS,
    "communicator": Communicator(
        Membership(rank=1, members=MEMBERS, key="", certificate=""), Home()
    ),
}
FRAMEWORKS = [
    (Mirrored(), "TensorFlow"),
    (Jax(), "JAX"),
    (Downpour(), "Keras"),
    (Codistillation(), "Keras"),
]


def test_without_a_strategy_nothing_is_entered():
    with entered(None, **PLACE):
        pass


@pytest.mark.parametrize(("strategy", "framework"), FRAMEWORKS)
def test_a_strategy_without_its_framework_is_refused_with_the_worker(
    monkeypatch, strategy, framework
):
    monkeypatch.setattr(frameworks, "is_installed", lambda name: name != framework.lower())
    with pytest.raises(InvalidArgument) as raised, entered(strategy, **PLACE):
        raise AssertionError("the train function is not called")
    assert str(raised.value) == (
        f"strategy: expected {framework}, for '{name_of(strategy)}', got none on the host of "
        "worker 1; install it, or use None"
    )


@pytest.mark.parametrize("strategy", [Downpour(), Codistillation()], ids=name_of)
def test_a_train_function_without_fit_is_warned_of(strategy):
    with pytest.warns(UserWarning, match="the workers have exchanged no weights") as told:
        with entered(strategy, **PLACE):
            pass
    assert f"strategy {name_of(strategy)!r}" in str(told[0].message)


@pytest.mark.parametrize("strategy", [Downpour(), Codistillation()], ids=name_of)
def test_one_worker_trains_by_itself(strategy):
    alone = Membership(rank=0, members=MEMBERS[:1], key="", certificate="")
    with entered(strategy, members=MEMBERS[:1], communicator=Communicator(alone, Home())):
        pass
