"""The configurations that a search has tried, so that none is tried twice."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from search.space.sampling import random_point
from search.space.spaces import Choice, Float, Integer, Space

_DRAWS = 20
"""Random draws for a new point, before the space is enumerated for one of the few left."""

_LOOKED_AT = 10_000
"""Maximum configurations enumerated for a new one, where some are not allowed."""

_MOST_STEPS = 10_000  # maximum steps of a float whose values are enumerated


class Tried:
    """The tried configurations of a space.

    Points of the unit cube that decode to the same values are the same configuration.

    Args:
        space: The search space.
        rng: Generator for `another`.
    """

    def __init__(self, space: Space, rng: random.Random) -> None:
        self._space = space
        self._rng = rng
        self._values = _values(space)
        self._snapped: set[tuple[float, ...]] = set()

    def __contains__(self, point: Sequence[float]) -> bool:
        return self.has_snapped(self._space.snap(point))

    def has_snapped(self, snapped: tuple[float, ...]) -> bool:
        """Return whether the configuration at a position of `Space.snap` was tried."""
        return snapped in self._snapped

    def add(self, point: Sequence[float]) -> None:
        """Add the configuration at a point."""
        self._snapped.add(self._space.snap(point))

    def another(self) -> list[float]:
        """Return a random point whose configuration is allowed and was not tried.

        Once all were tried, all are forgotten, so that each may be tried a second time, and so on.
        """
        for _ in range(_DRAWS):
            point = random_point(self._space, self._rng)
            if point not in self:
                return point
        return self._next_in_order() or self._begin_again(point)

    def _next_in_order(self) -> list[float] | None:
        """Return the first new point of a finite space, in order from a random one."""
        if self._values is None:
            return None
        configurations = _configurations(self._space, self._values, self._rng)
        most = len(self._snapped) + 1 if self._space.constraint is None else _LOOKED_AT
        for params in itertools.islice(configurations, most):
            point = self._space.encode(params)
            if point not in self and self._space.allows_params(params):
                return point
        return None

    def forget(self) -> None:
        """Forget all, so that each configuration may be tried once more."""
        self._snapped.clear()

    def _begin_again(self, point: list[float]) -> list[float]:
        self.forget()
        return point


def _values(space: Space) -> dict[str, Sequence[Any]] | None:
    """Return the values of every hyperparameter, each once; None if one has real numbers.

    Floats with more than a few thousand steps count as real numbers.
    """
    values: dict[str, Sequence[Any]] = {}
    for name, domain in space.items():
        match domain:
            case Choice():
                values[name] = domain.distinct
            case Integer():
                values[name] = range(domain.low, domain.high + 1, domain.step)
            case Float(size=int(size)) if size <= _MOST_STEPS:
                values[name] = [domain.decode((index + 0.5) / size) for index in range(size)]
            case _:
                return None
    return values


def _configurations(
    space: Space, values: Mapping[str, Sequence[Any]], rng: random.Random
) -> Iterator[dict[str, Any]]:
    """Yield the configurations of a space, each once, from a random one on.

    They are counted like a number with one digit per active hyperparameter.
    """
    starts = {name: rng.randrange(len(listed)) for name, listed in values.items()}
    digits: list[int] = []
    while True:
        bases: list[int] = []

        def value_of(name: str, bases: list[int] = bases) -> Any:
            if len(bases) == len(digits):
                digits.append(0)
            place = starts[name] + digits[len(bases)]
            bases.append(len(values[name]))
            return values[name][place % len(values[name])]

        yield space.assemble(value_of)
        while digits and digits[-1] + 1 == bases[len(digits) - 1]:
            digits.pop()
        if not digits:
            return
        digits[-1] += 1
