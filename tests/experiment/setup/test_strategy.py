"""The strategy of a search: chosen by its train function if the user does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from experiment.setup import strategy
from experiment.setup.settings import Settings
from experiment.setup.strategy import strategy_of
from search.errors import InvalidArgument
from spark_jobs.strategies.settings import Downpour, Mirrored


def by_keras(x):
    import keras

    return keras, x


def by_tensorflow(x):
    import tensorflow as tf

    return tf, x


def by_neither(x):
    return x


def chosen(train, protection="", **settings):
    session = SimpleNamespace(protection=protection)
    return strategy_of(Settings(**{"workers_per_trial": 2} | settings), train, session)


@pytest.mark.parametrize("train", [by_keras, by_tensorflow])
def test_mirrored_is_the_default_of_functions_that_import_tensorflow_or_keras(train):
    assert chosen(train) == Mirrored()
    assert chosen(train, preload=()) == Mirrored()
    assert chosen(train, isolation="spawn") == Mirrored()


def test_other_functions_train_by_themselves():
    assert chosen(by_neither) is None
    assert chosen(by_keras, strategy=None) is None


def test_keras_runs_on_another_framework_where_tensorflow_is_missing(monkeypatch):
    monkeypatch.setattr(strategy, "is_installed", lambda name: name != "tensorflow")
    assert chosen(by_keras) is None


@pytest.mark.parametrize("given", ["mirrored", Mirrored(communication="ring"), Downpour()])
def test_the_users_choice_counts(given):
    expected = Mirrored() if given == "mirrored" else given
    assert chosen(by_neither, strategy=given) == expected
    assert chosen(by_neither, strategy=given, workers_per_trial=1) is None


def test_one_worker_needs_no_strategy():
    assert chosen(by_keras, workers_per_trial=1, protection="spark.authenticate") is None


@pytest.mark.parametrize("settings", [{}, {"strategy": "mirrored"}], ids=str)
def test_an_open_port_is_refused_on_a_protected_cluster(settings):
    with pytest.raises(InvalidArgument, match=r"^strategy: .* since spark.authenticate is on"):
        chosen(by_keras, "spark.authenticate", **settings)
    accepted = Mirrored(unprotected=True)
    assert chosen(by_keras, "spark.authenticate", strategy=accepted) == accepted
    assert chosen(by_keras, "spark.authenticate", strategy=None) is None
    assert chosen(by_keras, "spark.authenticate", strategy="downpour") == Downpour()
