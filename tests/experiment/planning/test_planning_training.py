"""Arguments are checked before Spark is touched."""

from __future__ import annotations

import pytest

from experiment.planning.planning_training import plan_training
from search.errors import InvalidArgument, WrongCall


def train(units=3):
    return units


@pytest.mark.parametrize("workers", [2, "12", [], (0, 1), (1, 2.5), (True,), None])
def test_other_numbers_of_workers_are_refused(workers):
    with pytest.raises(InvalidArgument, match=r"workers: expected integers of at least 1"):
        plan_training(None, train, workers=workers)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("steps", 4, "an integer of at least 5"),
        ("strategy", "ring", r"experiment\.Mirrored"),
        ("params", {"unit": 3}, "a function that accepts 'unit'"),
        ("params", 5, "a dict of argument names to values"),
        ("train", 3, "a function"),
    ],
)
def test_other_invalid_arguments_are_refused(name, value, expected):
    with pytest.raises(InvalidArgument, match=f"expected {expected}"):
        plan_training(None, **{"train": train, name: value})


def test_the_strategy_may_be_a_name_as_in_other_calls():
    with pytest.raises(InvalidArgument, match="^params: "):  # which is checked after it
        plan_training(None, train, 5, strategy="mirrored")


@pytest.mark.parametrize("precision", ["mixed_float", "mixed_float16"])
def test_a_precision_is_refused_as_by_other_calls(precision):
    with pytest.raises(InvalidArgument, match=f"^precision: expected .*, got '{precision}'"):
        plan_training(None, train, workers=[1], precision=precision, gpus_per_trial=0)


def test_a_setting_of_searches_alone_is_refused():
    with pytest.raises(WrongCall, match="stopping"):
        plan_training(None, train, stopping=None)
