"""The description of a call that all members make in step, to find members that disagree."""

from __future__ import annotations

from itertools import zip_longest

import msgspec

from spark_jobs.communicator.arrays import ArrayType
from spark_jobs.messages import prepare


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A collective call.

    Attributes:
        number: How many collective calls the member has made before.
        name: The call with its options: "all_reduce, op='mean'".
        arrays: The types and shapes of its arrays.
        rank: The rank of the member.
    """

    number: int
    name: str
    arrays: tuple[ArrayType, ...] = ()
    rank: int


prepare(Call)


def difference(one: Call, other: Call) -> str:
    """Return how two members' calls differ, in one sentence; '' if they agree."""
    first, second = f"worker {one.rank}", f"worker {other.rank}"
    if one.name != other.name:
        return f"{first} calls {one.name}, but {second} calls {other.name}"
    if one.number != other.number:
        return (
            f"{first} has made {one.number} collective calls before this {one.name}, "
            f"but {second} has made {other.number}"
        )
    if len(one.arrays) != len(other.arrays):
        return (
            f"{one.name}: {first} passes {len(one.arrays)} arrays, "
            f"but {second} passes {len(other.arrays)}"
        )
    for index, (mine, others) in enumerate(zip_longest(one.arrays, other.arrays)):
        if mine != others:
            return f"{one.name}: array {index} is {mine} in {first}, but {others} in {second}"
    return ""
