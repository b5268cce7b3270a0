"""The configurations that a search has tried, so that none is tried twice."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from search.space.domains import nearest
from search.space.sampling import random_point
from search.space.spaces import Choice, Float, Integer, Space

NONE_LEFT = "the space has no more configurations, and none is tried twice"
"""Why a search has fewer trials than it was asked for."""

_DRAWS = 20
"""Random draws for a new point, before the space is enumerated for one of the few left."""

_LOOKED_AT = 50_000
"""Maximum configurations enumerated for a new one, where some are not allowed.

Some tenths of a second, in which the driver answers no slot."""

_ROUNDED = 1e-9
"""Maximum distance of a value from a step that it stands for, in steps: 0.1 + 0.2 is 0.3."""

_COUNTED = 10_000
"""Maximum configurations enumerated before a search, to count those that it can try."""


class Tried:
    """The tried configurations of a space.

    Points of the unit cube that decode to the same values are the same configuration. A
    configuration with a value between two steps, which only the user's points and those of earlier
    runs have, never counts as tried.

    Args:
        space: The search space.
        rng: Generator for `another`.
        params: Configurations that count as tried from the start.
        repeats: Whether configurations may be tried once more when all were tried.
    """

    def __init__(
        self,
        space: Space,
        rng: random.Random,
        params: Iterable[Mapping[str, Any]] = (),
        *,
        repeats: bool = False,
    ) -> None:
        self._space = space
        self._rng = rng
        self._repeats = repeats
        self._values = _values(space)
        self._real = [name for name, domain in space.items() if domain.size is None]
        on_steps = (given for given in params if _on_steps(space, given))
        self._snapped = {space.snap(space.encode(given)) for given in on_steps}

    def __contains__(self, point: Sequence[float]) -> bool:
        return self.has_snapped(self._space.snap(point))

    def is_new(self, point: Sequence[float]) -> bool:
        """Return whether the configuration at a point was not tried and is allowed."""
        return point not in self and self._space.allows(point)

    def has_snapped(self, snapped: tuple[float, ...]) -> bool:
        """Return whether the configuration at a position of `Space.snap` was tried."""
        return snapped in self._snapped

    def add(self, point: Sequence[float]) -> None:
        """Add the configuration at a point."""
        self._snapped.add(self._space.snap(point))

    def left(self, most: int) -> int:
        """Return how many allowed configurations were not tried, at most `most`.

        `most` also if they may be tried once more, and where the space has too many to count: with
        real numbers, or, if there is a constraint or a condition, thousands of configurations.
        """
        if self._repeats:
            return most
        if self._space.constraint is None and not self._space.conditional:
            if self._real:
                return most
            sizes = math.prod(len(values) for values in self._values.values())
            return min(sizes - len(self._snapped), most)
        starts = dict.fromkeys(self._values, 0)
        found = 0
        for looked, params in enumerate(_configurations(self._space, self._values, starts)):
            if looked == _COUNTED or found == most or any(name in params for name in self._real):
                return most
            found += self._is_left(params)
        # A constraint that allows nothing is an error, of the draws that follow.
        return found if found or self._snapped else most

    def another(self) -> list[float] | None:
        """Return a random point whose configuration is allowed and was not tried.

        None if there is none, unless they may be tried once more. A space of many thousands of
        configurations of which nearly all were tried or are not allowed may still have one that was
        not found.
        """
        point = self._not_tried()
        if point is None and self._repeats:
            self.forget()
            point = self._not_tried()
        return point

    def this_or_another(self, point: list[float]) -> list[float] | None:
        """Return a point if it is new; else as `another`."""
        return point if self.is_new(point) else self.another()

    def _not_tried(self) -> list[float] | None:
        for _ in range(_DRAWS):
            point = random_point(self._space, self._rng)
            if point not in self:
                return point
        return self._next_in_order()

    def _next_in_order(self) -> list[float] | None:
        """Return the first new point, in order from a random one."""
        drawn = {name: [self._space[name].decode(self._rng.random())] for name in self._real}
        values = {**self._values, **drawn}
        starts = {name: self._rng.randrange(len(each)) for name, each in values.items()}
        configurations = _configurations(self._space, values, starts)
        most = len(self._snapped) + 1 if self._space.constraint is None else _LOOKED_AT
        for params in itertools.islice(configurations, most):
            if self._is_left(params):
                return self._space.encode(params)
        return None

    def _is_left(self, params: Mapping[str, Any]) -> bool:
        return self._space.encode(params) not in self and self._space.allows_params(params)

    def forget(self) -> None:
        """Forget all, so that each configuration may be tried once more."""
        self._snapped.clear()


def _on_steps(space: Space, params: Mapping[str, Any]) -> bool:
    """Return whether no value lies between two steps of its domain."""
    for name, value in params.items():
        domain = space[name]
        if isinstance(domain, Choice) or domain.step is None:
            continue
        if abs(nearest(domain, value) - value) > domain.step * _ROUNDED:
            return False
    return True


def _values(space: Space) -> dict[str, Sequence[Any]]:
    """Return the values of every hyperparameter, each once; of real numbers one."""
    values: dict[str, Sequence[Any]] = {}
    for name, domain in space.items():
        match domain:
            case Choice():
                values[name] = domain.distinct
            case Integer():
                values[name] = range(domain.low, domain.high + 1, domain.step)
            case Float(size=int(size)):
                values[name] = _Steps(domain, size)
            case _:  # a float without steps
                values[name] = [domain.decode(0.5)]
    return values


class _Steps(Sequence[float]):
    """The values of a float with steps, computed when they are read."""

    def __init__(self, domain: Float, size: int) -> None:
        self._domain = domain
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        return self._domain.decode((index + 0.5) / self._size)


def _configurations(
    space: Space, values: Mapping[str, Sequence[Any]], starts: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield the configurations of a space, each once.

    They are counted like a number with one digit per active hyperparameter.

    Args:
        space: The space.
        values: The values of each hyperparameter.
        starts: The position of the value of each hyperparameter in the first configuration.
    """
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
