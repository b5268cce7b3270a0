"""Domains: the values of a single hyperparameter, and their positions in [0, 1]."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from fractions import Fraction
from typing import Any, TypeAlias, TypeGuard

from search.checks import check_flag, plain
from search.errors import InvalidArgument, shown
from search.space.conditions import When, condition_of_json, read_condition
from search.space.user_values import choices, finite, integer, is_number
from search.values import from_json, identity, to_json

_NARROW = 1e-3  # bounds closer than this, as a share, make both scales the same
_FINEST = 2.0**-50
"""The smallest step of a `Float`, as a share of its larger bound, at which its values differ."""


class _Domain:
    """The base of all domains."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Whether it is the same domain; 1, True and 1.0 are different values, NaN equals NaN."""
        if not isinstance(other, _Domain):
            return NotImplemented
        return bool(self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> Any:
        return type(self), identity(_fields(self))

    def __repr__(self) -> str:
        shown_fields = ", ".join(f"{name}={value!r}" for name, value in _fields(self).items())
        return f"{type(self).__name__}({shown_fields})"


@dataclass(frozen=True, repr=False, eq=False)
class Float(_Domain):
    """A real number between two bounds, both included, given in either order.

    Args:
        low: One bound.
        high: The other bound; equal bounds make a constant.
        log: Search the logarithm, so that each power of ten gets as many points as the next.
        step: Only low, low + step, low + 2 * step, ... are values, each equally likely. `high` is
            lowered to the last of them. None for every number.
        when: Condition under which trials get this hyperparameter: names of other hyperparameters
            to the value, or list of values, that each must have: `when={'optimizer': 'sgd'}`. If
            one of them has another value, or is itself missing, the train function gets no argument
            of this name.

    Raises:
        InvalidArgument: A bound is not finite, `log` with a bound that is not above zero or with a
            step, a step that is not above zero or too small for floats, or an invalid condition.
    """

    low: float
    high: float
    _: KW_ONLY
    log: bool = False
    step: float | None = None
    when: When = None

    def __post_init__(self) -> None:
        low, high = (finite("Float", bound) for bound in (self.low, self.high))
        object.__setattr__(self, "low", float(min(low, high)))
        object.__setattr__(self, "high", float(max(low, high)))
        _check_log("Float", self)
        object.__setattr__(self, "when", read_condition(self.when))
        if self.step is not None:
            object.__setattr__(self, "step", _float_step(self))
            first, step, parts = self._grid
            last = Fraction(first + self._steps * step, parts)
            if last + self._rounding < self.high:
                object.__setattr__(self, "high", float(last))

    @property
    def size(self) -> int | None:
        """The number of values; None for all real numbers between two bounds."""
        if self.low == self.high:
            return 1
        return None if self.step is None else self._steps + 1

    @functools.cached_property
    def _grid(self) -> tuple[int, int, int]:
        """Low bound and step as multiples of one exact fraction; 0.1 is a tenth."""
        first, step = Fraction(repr(self.low)), Fraction(repr(self.step))
        parts = math.lcm(first.denominator, step.denominator)
        return int(first * parts), int(step * parts), parts

    @functools.cached_property
    def _steps(self) -> int:
        """How many steps fit between the bounds, with `high` taken as rounded."""
        first, step, parts = self._grid
        return int(((Fraction(self.high) + self._rounding) * parts - first) // step)

    @functools.cached_property
    def _rounding(self) -> Fraction:
        """How far `high` may lie from the last step: a step such as 1 / 3 is rounded as well."""
        _, step, parts = self._grid
        ulp = Fraction(math.ulp(max(abs(self.low), abs(self.high))))
        return min(2 * ulp, Fraction(step, 8 * parts))

    def _number(self, index: int) -> float:
        if index == self._steps:
            return self.high
        first, step, parts = self._grid
        return (first + index * step) / parts

    def decode(self, unit: float) -> float:
        """Return the value at `unit`, a number of [0, 1]."""
        if self.step is not None:
            return self._number(_bin(unit, self._steps + 1))
        if self.log:
            span = math.log(self.high) - math.log(self.low)
            value = math.exp(min(math.log(self.low) + unit * span, math.log(self.high)))
        else:  # not low + unit * (high - low), which overflows for huge bounds
            value = self.low * (1.0 - unit) + self.high * unit
        return min(max(value, self.low), self.high)

    def encode(self, value: float) -> float:
        """Return the position of a value in [0, 1]; the middle for a constant.

        With a step, the middle of the nearest value's bin.
        """
        if self.low == self.high:
            return 0.5
        if self.step is not None:  # halves: the distance of two huge numbers overflows
            index = round((value / 2 - self.low / 2) / (self.step / 2))
            return (min(max(index, 0), self._steps) + 0.5) / (self._steps + 1)
        # Not the logarithm of a quotient, which overflows; 0 between neighbouring numbers.
        if self.log and (span := math.log(self.high) - math.log(self.low)):
            unit = (math.log(value) - math.log(self.low)) / span
        elif math.isinf(self.high - self.low):
            unit = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        else:
            unit = (value - self.low) / (self.high - self.low)
        return min(max(unit, 0.0), 1.0)

    def __contains__(self, value: object) -> bool:
        """Whether it is a number between the bounds, with a step one of the values."""
        value = plain(value)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        inside = self.low <= value <= self.high
        return inside and (self.step is None or self.decode(self.encode(value)) == value)

    def to_json(self) -> dict[str, Any]:
        """Return the domain as JSON."""
        return {"type": "float", **_fields_as_json(self)}


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Integer(_Domain):
    """A whole number between two bounds, both included, given in either order.

    The unit interval is cut into bins, one per integer, so on the linear scale both ends are as
    likely as the middle.

    Args:
        low: One bound.
        high: The other bound; equal bounds make a constant.
        log: Search the logarithm. Then some integers beyond about 2^46 are never drawn; on the
            linear scale, some of bounds more than 2^52 apart.
        step: Only low, low + step, low + 2 * step, ... are values, each equally likely. `high` is
            lowered to the last of them.
        when: Condition, as for `Float`.

    Raises:
        InvalidArgument: A bound is not an integer or beyond 2^53, `log` with a bound below 1 or
            with a step, a step below 1, or an invalid condition.
    """

    low: int
    high: int
    _: KW_ONLY
    log: bool = False
    step: int = 1
    when: When = None

    def __post_init__(self) -> None:
        low, high = (integer("Integer", bound) for bound in (self.low, self.high))
        object.__setattr__(self, "low", min(low, high))
        object.__setattr__(self, "high", max(low, high))
        _check_log("Integer", self)
        step = integer("step", self.step, "an integer of at least 1")
        if step < 1:
            raise InvalidArgument("step", "an integer of at least 1", shown(self.step))
        if step > 1:
            _check_no_log(self)
        object.__setattr__(self, "step", step)
        object.__setattr__(self, "high", self.high - (self.high - self.low) % step)
        object.__setattr__(self, "when", read_condition(self.when))

    @property
    def size(self) -> int:
        """The number of values."""
        return (self.high - self.low) // self.step + 1

    @property
    def is_logarithmic(self) -> bool:
        """Whether the values lie on a logarithmic scale.

        Between bounds so close that both scales are about the same, they lie on the linear one,
        whose bins are exact.
        """
        return self.log and self.high - self.low >= _NARROW * self.low

    def decode(self, unit: float) -> int:
        """Return the integer whose bin holds `unit`, a number of [0, 1]."""
        if self.is_logarithmic:
            span = math.log(self.high + 1) - math.log(self.low)
            value = math.floor(math.exp(math.log(self.low) + unit * span))
            return min(max(value, self.low), self.high)
        return self.low + _bin(unit, self.size) * self.step

    def encode(self, value: float) -> float:
        """Return the middle of the integer's bin; with a step, of the nearest value's bin."""
        if self.low == self.high:
            return 0.5
        if self.is_logarithmic:
            span = math.log(self.high + 1) - math.log(self.low)
            return (math.log(value + 0.5) - math.log(self.low)) / span
        index = value - self.low
        if self.step > 1:
            index = (2 * index + self.step) // (2 * self.step)  # the value may be no integer
        return (index + 0.5) / self.size

    def __contains__(self, value: object) -> bool:
        """Whether it is an integer, and no bool, among the values."""
        value = plain(value)
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return self.low <= value <= self.high and (value - self.low) % self.step == 0

    def to_json(self) -> dict[str, Any]:
        """Return the domain as JSON."""
        return {"type": "integer", **_fields_as_json(self)}


@dataclass(frozen=True, repr=False, eq=False)
class Choice(_Domain):
    """One of several values.

    Args:
        values: At least one: None, bools, numbers, strings, or lists, tuples and dicts of those.
        ordered: Whether the values lie on an axis, in their order, as in ['small', 'medium',
            'large']. Then neighbours are near each other; otherwise any two values are equally far
            apart.
        when: Condition, as for `Float`.

    Raises:
        InvalidArgument: No value, one that has no form in JSON, or an invalid condition.
    """

    values: Sequence[Any]
    ordered: bool = False
    when: When = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", choices("Choice", self.values))
        check_flag("ordered", self.ordered)
        object.__setattr__(self, "when", read_condition(self.when))

    @property
    def size(self) -> int:
        """The number of values, equal ones counted as often as they were given."""
        return len(self.values)

    @property
    def distinct(self) -> Sequence[Any]:
        """The values, equal ones once."""
        if isinstance(self.values, range):
            return self.values
        return [self.values[position] for position in self._positions.values()]

    def decode(self, unit: float) -> Any:
        """Return the value whose bin holds `unit`, a number of [0, 1]."""
        return self.values[_bin(unit, len(self.values))]

    def encode(self, value: Any) -> float:
        """Return the middle of the value's bin; ValueError if it is not one of the values."""
        return (self.index(value) + 0.5) / len(self.values)

    def index(self, value: Any) -> int:
        """Return the index of a value, the first of equals; ValueError if it is not one of them."""
        if isinstance(self.values, range):  # it may have a billion values
            if type(value) is int and value in self.values:
                return self.values.index(value)
        else:
            try:
                return self._positions[identity(value)]
            except (KeyError, TypeError):  # no such value, or an unhashable one
                pass
        raise ValueError(f"{shown(value)} is none of {shown(self.values)}")

    @functools.cached_property
    def _positions(self) -> dict[Any, int]:
        positions: dict[Any, int] = {}
        for position, value in enumerate(self.values):
            positions.setdefault(identity(value), position)
        return positions

    def __contains__(self, value: object) -> bool:
        """Whether it is one of the values; 1, True and 1.0 are different ones."""
        try:
            self.index(value)
        except ValueError:
            return False
        return True

    def to_json(self) -> dict[str, Any]:
        """Return the domain as JSON; a range by its bounds, as it may have a billion values."""
        written = _fields_as_json(self)
        del written["values"]
        if isinstance(self.values, range):
            start, stop, step = self.values.start, self.values.stop, self.values.step
            return {"type": "choice", "range": [start, stop, step], **written}
        return {"type": "choice", "values": [to_json(value) for value in self.values], **written}


Domain: TypeAlias = Float | Integer | Choice


def is_unordered(domain: Domain) -> TypeGuard[Choice]:
    """Return whether any two values of a domain are equally far apart."""
    return isinstance(domain, Choice) and not domain.ordered


def count_varying(domains: Iterable[Domain]) -> int:
    """Return how many domains are not constant; 1 if all are, since it is divided by."""
    return max(sum(domain.size != 1 for domain in domains), 1)


def nearest(domain: Float | Integer, value: float) -> float:
    """Return the value of a domain that is nearest to a number."""
    if domain.step is None:
        return min(max(float(value), domain.low), domain.high)
    if domain.step == 1 and isinstance(domain, Integer):  # exact for bounds that are far apart
        return min(max(round(value), domain.low), domain.high)
    return domain.decode(domain.encode(min(max(value, domain.low), domain.high)))


def domain_of_json(data: Any) -> Domain:
    """Return the domain that `to_json` was called on.

    Raises:
        ValueError: Not a domain; `InvalidArgument` if its arguments contradict each other.
    """
    match data:
        case {"type": "float", "low": low, "high": high, "log": bool(log)}:
            return Float(low, high, log=log, step=data.get("step"), when=condition_of_json(data))
        case {"type": "integer", "low": low, "high": high, "log": bool(log)}:
            return Integer(
                low,
                high,
                log=log,
                step=data.get("step", 1),
                when=condition_of_json(data),
            )
        case {"type": "choice", "range": [int(start), int(stop), int(step)]} if step:
            values: Sequence[Any] = range(start, stop, step)
        case {"type": "choice", "values": list(items)}:
            values = [from_json(item) for item in items]
        case _:
            raise ValueError(f"not a domain: {shown(data)}")
    return Choice(values, data.get("ordered", False), condition_of_json(data))


def _bin(unit: float, count: int) -> int:
    """Return the index of the part, of `count` equal parts of [0, 1], that holds a number."""
    return min(math.floor(unit * count), count - 1)


def _fields(domain: Any) -> dict[str, Any]:
    """Return the fields of a domain without those at their default, except the scale."""
    values = {f: plain(getattr(domain, f.name)) for f in fields(domain)}
    return {f.name: value for f, value in values.items() if f.name == "log" or value != f.default}


def _fields_as_json(domain: Any) -> dict[str, Any]:
    written = _fields(domain)
    if "when" in written:
        written["when"] = {name: to_json(values) for name, values in written["when"].items()}
    return written


def _check_log(name: str, domain: Float | Integer) -> None:
    check_flag("log", domain.log)
    if domain.log and domain.low <= 0:
        raise InvalidArgument(name, "bounds above zero for a log scale", shown(domain.low))


def _check_no_log(domain: Float | Integer) -> None:
    if domain.log:
        hint = "a log scale has no equal steps"
        raise InvalidArgument("step", "no step with log=True", shown(domain.step), hint)


def _float_step(domain: Float) -> float:
    _check_no_log(domain)
    if not is_number(domain.step) or not 0 < domain.step < math.inf:  # type: ignore[operator]
        raise InvalidArgument("step", "a finite number above zero, or None", shown(domain.step))
    step = float(domain.step)  # type: ignore[arg-type]  # a number by now
    least = max(max(abs(domain.low), abs(domain.high)) * _FINEST, sys.float_info.min)
    if step < least:
        expected = f"at least {least:g} between these bounds, or None"
        raise InvalidArgument("step", expected, shown(domain.step))
    return step
