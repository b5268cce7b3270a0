"""The number of slots that run each trial together."""

from __future__ import annotations

from typing import NamedTuple, Self

from search.checks import check_integer, plain
from search.errors import InvalidArgument, shown


class Workers(NamedTuple):
    """The least and the greatest number of slots that run a trial together.

    A trial gets as many as are free, but does not start with fewer than the least number.
    """

    least: int
    most: int

    @classmethod
    def read(cls, name: str, given: object) -> Self:
        """Return the numbers that a user gives: one, or the least and the greatest as a tuple.

        Raises:
            InvalidArgument: It is neither; the message has the argument's `name`.
        """
        if not isinstance(given, tuple | list):
            check_integer(name, given, 1)
            return cls(plain(given), plain(given))
        try:
            least, most = map(plain, given)
            check_integer(name, least, 1)
            check_integer(name, most, least + 1)
        except (ValueError, InvalidArgument):
            expected = "an integer, or a least and a greater number, such as (2, 4)"
            raise InvalidArgument(name, expected, shown(given)) from None
        return cls(least, most)

    @property
    def are_several(self) -> bool:
        """Whether a trial may run on several slots."""
        return self.most > 1

    def to_json(self) -> int | tuple[int, int]:
        """Return the numbers as a user gives them."""
        return self.most if self.least == self.most else (self.least, self.most)

    def of_use(self, slots: int) -> int:
        """Return how many of these slots whole trials can use: others would only hold cores."""
        return min(slots, slots // self.least * self.most)

    def at_once(self, slots: int) -> int:
        """Return how many trials these slots run at once if all of them are free together."""
        trials, left = divmod(slots, self.most)
        return trials + (left >= self.least)

    def __str__(self) -> str:
        return str(self.most) if self.least == self.most else f"{self.least} to {self.most}"


ALONE = Workers(1, 1)
"""A trial on one slot."""
