"""Hyperparameters in the types of TensorBoard's table."""

import math

import pytest

from spark_jobs.slot.trial_events import hparam


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1, 1),
        (True, True),
        (0.5, 0.5),
        ("a", "a"),
        (None, "None"),
        ((1, 2), "(1, 2)"),
        ([], "[]"),
        (10**400, str(10**400)),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
    ],
    ids=repr,
)
def test_hyperparameters_become_types_of_the_table(value, shown):
    assert hparam(value) == shown


def test_a_column_of_mixed_values_is_text():
    assert [hparam(v, as_text=True) for v in (1, "a", None, 0.5)] == ["1", "a", "None", "0.5"]
