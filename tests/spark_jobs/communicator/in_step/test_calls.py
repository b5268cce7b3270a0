"""How two members' calls differ, in words."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spark_jobs.communicator.arrays import ArrayType
from spark_jobs.communicator.in_step.calls import Call, difference

ONE = Call(
    number=3,
    name="all_reduce",
    arrays=(ArrayType("float32", (2, 3)), ArrayType("int64", ())),
    rank=0,
)


def test_the_same_call_of_another_rank_agrees():
    assert difference(ONE, replace(ONE, rank=1)) == ""


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            replace(ONE, name="barrier", rank=1),
            "worker 0 calls all_reduce, but worker 1 calls barrier",
        ),
        (
            replace(ONE, number=5, rank=1),
            "worker 0 has made 3 collective calls before this all_reduce, but worker 1 has made 5",
        ),
        (
            replace(ONE, arrays=(), rank=2),
            "all_reduce: worker 0 passes 2 arrays, but worker 2 passes 0",
        ),
        (
            replace(ONE, arrays=(ONE.arrays[0], ArrayType("int64", (1,))), rank=1),
            "all_reduce: array 1 is int64 of shape () in worker 0, but int64 of shape (1,) in "
            "worker 1",
        ),
    ],
)
def test_what_differs_is_named(other, sentence):
    assert difference(ONE, other) == sentence
