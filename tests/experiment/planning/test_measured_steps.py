"""The time of a step is read off the ends of steps; the workers and their data off `fit`."""

from __future__ import annotations

import pytest

from experiment.planning.measured_steps import FirstSteps, step_seconds
from search.errors import InvalidArgument


def test_the_first_steps_and_the_pauses_between_epochs_do_not_count():
    # Tracing takes 5 s, an epoch has four steps of 1 s, and what is between epochs takes 9 s.
    ends = [(5.0, 0), (6.0, 1), (7.0, 2), (8.0, 3), (17.0, 0), (18.0, 1), (19.0, 2), (20.0, 3)]
    assert step_seconds(ends) == 1


def test_executions_of_several_steps_count_for_each_step():
    ends = [(4.0 + 2 * n, 4 * n + 3) for n in range(8)]
    assert step_seconds(ends) == 0.5


@pytest.mark.parametrize("ends", [[], [(1.0, 0)], [(float(n), 0) for n in range(20)]])
def test_too_few_steps_in_an_epoch_tell_nothing(ends):
    assert step_seconds(ends) is None


def test_the_signature_and_the_name_are_those_of_the_train_function():
    def train(units, rate=0.1):
        return units * rate

    measured = FirstSteps(train, 5)
    assert measured.__name__ == "train"
    assert list(measured.__signature__.parameters) == ["units", "rate"]


def test_a_function_without_fit_is_refused_with_a_reason():
    called = []

    def train(x):
        called.append(x)

    with pytest.raises(InvalidArgument, match=r"model\.fit has at least 5 batches"):
        FirstSteps(train, 5)(x=3)
    assert called == [3]
