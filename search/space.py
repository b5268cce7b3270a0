"""Search spaces: what each hyperparameter may be, and how a point of the unit cube becomes values.

Every algorithm works in the unit cube [0, 1]^n; `Space.decode` turns a point of it into
hyperparameters and `Space.encode` turns those back. All input of the user is read here, once:
`Space.of_bounds` for searches, `Space.of_grid` for grids.
"""

from __future__ import annotations

import math
import numbers
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from search.errors import InvalidArgument, shown
from search.values import from_json, plain_value, to_json

LARGEST_INTEGER = 2**53
"""Beyond it a float cannot tell neighbouring integers apart."""

LOG_RATIO = 1000.0
"""Positive float bounds this far apart are searched on a log scale."""


@dataclass(frozen=True, slots=True)
class Float:
    """A real number between two bounds, both included, given in either order.

    Args:
        low: One bound.
        high: The other bound; equal bounds make a constant.
        log: Search the logarithm, so that each power of ten gets as many points as the next.

    Raises:
        InvalidArgument: A bound is not finite, or `log` with a bound that is not above zero.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        low, high = (_finite("Float", bound) for bound in (self.low, self.high))
        object.__setattr__(self, "low", float(min(low, high)))
        object.__setattr__(self, "high", float(max(low, high)))
        _check_log("Float", self)

    def decode(self, unit: float) -> float:
        """Return the value at `unit`, a number of [0, 1]."""
        if self.log:
            span = math.log(self.high) - math.log(self.low)
            value = math.exp(min(math.log(self.low) + unit * span, math.log(self.high)))
        else:  # not low + unit * (high - low), which overflows between two huge bounds
            value = self.low * (1.0 - unit) + self.high * unit
        return min(max(value, self.low), self.high)

    def encode(self, value: float) -> float:
        """Return where in [0, 1] a value lies; the middle for a constant."""
        if self.low == self.high:
            return 0.5
        if self.log:  # not the logarithm of a quotient, which overflows
            span = math.log(self.high) - math.log(self.low)
            unit = (math.log(value) - math.log(self.low)) / span if span else 0.5
        elif math.isinf(self.high - self.low):
            unit = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        else:
            unit = (value - self.low) / (self.high - self.low)
        return min(max(unit, 0.0), 1.0)

    def to_json(self) -> dict[str, Any]:
        """Return the domain as JSON."""
        return {"type": "float", "low": self.low, "high": self.high, "log": self.log}


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number between two bounds, both included, given in either order.

    The unit interval is cut into bins, one per integer, so on the linear scale both ends are as
    likely as the middle.

    Args:
        low: One bound.
        high: The other bound; equal bounds make a constant.
        log: Search the logarithm. Between bounds beyond about 2^46 some integers are never drawn
            then, nor on the linear scale between bounds more than 2^52 apart.

    Raises:
        InvalidArgument: A bound is not an integer or beyond 2^53, or `log` with a bound below 1.
    """

    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        low, high = (_integer("Integer", bound) for bound in (self.low, self.high))
        object.__setattr__(self, "low", min(low, high))
        object.__setattr__(self, "high", max(low, high))
        _check_log("Integer", self)

    def decode(self, unit: float) -> int:
        """Return the integer whose bin holds `unit`, a number of [0, 1]."""
        if self.log:
            span = math.log(self.high + 1) - math.log(self.low)
            value = math.floor(math.exp(math.log(self.low) + unit * span))
        else:
            value = self.low + math.floor(unit * (self.high - self.low + 1))
        return min(max(value, self.low), self.high)

    def encode(self, value: int) -> float:
        """Return the middle of the integer's bin."""
        if self.low == self.high:
            return 0.5
        if self.log:
            span = math.log(self.high + 1) - math.log(self.low)
            return (math.log(value + 0.5) - math.log(self.low)) / span
        return (value - self.low + 0.5) / (self.high - self.low + 1)

    def to_json(self) -> dict[str, Any]:
        """Return the domain as JSON."""
        return {"type": "integer", "low": self.low, "high": self.high, "log": self.log}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values, without an order between them.

    Args:
        values: At least one: None, bools, numbers, strings, or lists, tuples and dicts of those.

    Raises:
        InvalidArgument: No value, or one that cannot travel as JSON.
    """

    values: Sequence[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _choices("Choice", self.values))

    def decode(self, unit: float) -> Any:
        """Return the value whose bin holds `unit`, a number of [0, 1]."""
        return self.values[min(math.floor(unit * len(self.values)), len(self.values) - 1)]

    def encode(self, value: Any) -> float:
        """Return the middle of the value's bin; ValueError where the value is none of them."""
        return (self.index(value) + 0.5) / len(self.values)

    def index(self, value: Any) -> int:
        """Return the position of a value; ValueError where the value is none of them."""
        if isinstance(self.values, range):  # which may have a billion values
            if type(value) is int and value in self.values:
                return self.values.index(value)
        else:
            for index, candidate in enumerate(self.values):
                same = candidate is value or candidate == value  # NaN is not equal to itself
                if type(candidate) is type(value) and same:
                    return index
        raise ValueError(f"{shown(value)} is none of {shown(self.values)}")

    def to_json(self) -> dict[str, Any]:
        """Return the domain as JSON; a range as its bounds, it may have a billion values."""
        if isinstance(self.values, range):
            start, stop, step = self.values.start, self.values.stop, self.values.step
            return {"type": "choice", "range": [start, stop, step]}
        return {"type": "choice", "values": [to_json(value) for value in self.values]}


Domain: TypeAlias = Float | Integer | Choice


class Space(Mapping[str, Domain]):
    """Ordered names of hyperparameters to their domains. Immutable.

    Args:
        domains: Name to `Float`, `Integer` or `Choice`.

    Raises:
        InvalidArgument: No name at all, or a name that cannot be used.
    """

    def __init__(self, domains: Mapping[str, Domain], name: str = "space") -> None:
        self._domains = dict(domains)
        if not self._domains:
            raise InvalidArgument(name, "at least one hyperparameter", shown(domains))
        _check_names(name, self._domains)

    @classmethod
    def of_bounds(cls, bounds: Mapping[str, Any]) -> Space:
        """Read the bounds of a search.

        Two ints are an `Integer`, two numbers with a float among them a `Float`, in either order.
        Two booleans, two strings or more than two values are a `Choice`. A `Float` is searched on a
        log scale where both ends are above zero and the bounds are written high first
        (`[0.005, 0.00005]`) or high / low >= 1,000. `Float`, `Integer` and `Choice` objects stay as
        they are.

        Raises:
            InvalidArgument: Naming the hyperparameter, what was expected and what came.
        """
        _check_mapping("bounds", bounds)
        return cls({name: _bound(f"bounds[{name!r}]", v) for name, v in bounds.items()}, "bounds")

    @classmethod
    def from_json(cls, data: Any) -> Space:
        """Return the space that `to_json` was called on.

        Raises:
            ValueError: Not a space; `InvalidArgument` where a domain contradicts itself.
        """
        if not isinstance(data, dict):
            raise ValueError(f"not a space: {shown(data)}")
        return cls({name: _domain_of_json(domain) for name, domain in data.items()})

    @classmethod
    def of_grid(cls, args_dict: Mapping[str, Any]) -> Space:
        """Read the lists of a grid: each list becomes a `Choice`.

        Raises:
            InvalidArgument: Naming the hyperparameter, what was expected and what came.
        """
        _check_mapping("args_dict", args_dict)
        return cls(
            {
                name: values
                if isinstance(values, Choice)
                else Choice(_choices(f"args_dict[{name!r}]", values))
                for name, values in args_dict.items()
            },
            "args_dict",
        )

    def __getitem__(self, name: str) -> Domain:
        return self._domains[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._domains)

    def __len__(self) -> int:
        return len(self._domains)

    def __repr__(self) -> str:
        return f"Space({self._domains})"

    def decode(self, point: Sequence[float]) -> dict[str, Any]:
        """Return the hyperparameters at a point of the unit cube, one coordinate per name."""
        pairs = zip(self._domains.items(), point, strict=True)
        return {name: domain.decode(unit) for (name, domain), unit in pairs}

    def encode(self, params: Mapping[str, Any]) -> list[float]:
        """Return the point of the unit cube at which hyperparameters lie."""
        return [domain.encode(params[name]) for name, domain in self._domains.items()]

    def snap(self, point: Sequence[float]) -> tuple[float, ...]:
        """Return where the values at a point of the unit cube lie: of a bin, its middle.

        So it is the same wherever the values are the same.
        """
        return tuple(self.encode(self.decode(point)))

    def to_json(self) -> dict[str, Any]:
        """Return the space as JSON, in its order."""
        return {name: domain.to_json() for name, domain in self._domains.items()}


def _domain_of_json(data: Any) -> Domain:
    match data:
        case {"type": "float", "low": low, "high": high, "log": bool(log)}:
            return Float(low, high, log)
        case {"type": "integer", "low": low, "high": high, "log": bool(log)}:
            return Integer(low, high, log)
        case {"type": "choice", "range": [int(start), int(stop), int(step)]} if step:
            return Choice(range(start, stop, step))
        case {"type": "choice", "values": list(values)}:
            return Choice([from_json(value) for value in values])
    raise ValueError(f"not a domain: {shown(data)}")


def read_points(points: Any) -> list[dict[str, Any]]:
    """Read a list of explicit points: dicts of hyperparameter name to value.

    Raises:
        InvalidArgument: Naming the point, what was expected and what came.
    """
    if isinstance(points, str | bytes) or not _iterable(points):
        raise InvalidArgument("args_dict", "a dict of lists, or a list of dicts", shown(points))
    rows = list(points)
    if not rows:
        raise InvalidArgument("args_dict", "at least one point", shown(points))
    return [_point(f"args_dict[{number}]", row) for number, row in enumerate(rows)]


def _point(name: str, row: Any) -> dict[str, Any]:
    _check_mapping(name, row)
    _check_names(name, row)
    return {key: plain_value(f"{name}[{key!r}]", value) for key, value in row.items()}


def _check_mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise InvalidArgument(
            name, "a dict of hyperparameter names", f"{shown(value)} of type {type(value).__name__}"
        )


def _check_names(where: str, names: Mapping[str, Any]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidArgument(where, "non-empty strings as names", shown(name))
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
            raise InvalidArgument(where, "names without control characters", shown(name))
        # Python reads identifiers in this form, so two such names are one argument of `train`.
        normal = unicodedata.normalize("NFKC", name)
        if normal in seen:
            raise InvalidArgument(where, "each name once", f"{seen[normal]!r} and {name!r}")
        seen[normal] = name


def _choices(name: str, values: Any) -> Sequence[Any]:
    """Read a list of values; ranges stay ranges, they may be long."""
    if isinstance(values, range):
        try:
            len(values)
        except OverflowError:
            raise InvalidArgument(name, "fewer than 2^63 values", shown(values)) from None
        sequence: Sequence[Any] = values
    elif isinstance(values, str | bytes | Mapping | set | frozenset) or not _iterable(values):
        raise InvalidArgument(
            name, "a list of values", shown(values), f"write [{shown(values, 40)}]"
        )
    else:
        sequence = tuple(plain_value(name, value) for value in values)
    if not sequence:
        raise InvalidArgument(name, "at least one value", shown(values))
    return sequence


def _iterable(value: Any) -> bool:
    try:
        iter(value)
    except TypeError:  # a lone number, and an array without dimensions
        return False
    return True


def _bound(name: str, value: Any) -> Domain:
    if isinstance(value, Float | Integer | Choice):
        return value
    if not isinstance(value, str | bytes | Mapping) and not _iterable(value):
        raise InvalidArgument(
            name, "two bounds or a list of choices", shown(value), "write [low, high]"
        )
    values = _choices(name, value)
    if len(values) == 1:
        raise InvalidArgument(
            name, "two bounds", shown(value), "write [low, high], or Choice([...]) for one value"
        )
    if len(values) > 2 or all(isinstance(v, bool) for v in values):
        return Choice(values)
    if all(isinstance(v, str) for v in values):
        return Choice(values)
    if not all(_number(v) for v in values):
        raise InvalidArgument(
            name, "two numbers or two strings", shown(value), "write Choice([...]) for a mixture"
        )
    first, second = values
    if all(isinstance(v, int) for v in values):
        return Integer(_integer(name, first), _integer(name, second))
    low, high = sorted((_finite(name, first), _finite(name, second)))
    # a quotient of a huge and a tiny bound overflows, so compare logarithms
    wide = low > 0 and math.log(high) - math.log(low) >= math.log(LOG_RATIO) - 1e-9
    return Float(low, high, log=low > 0 and low < high and (first > second or wide))


def _number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _finite(name: str, value: Any) -> float:
    if not _number(value):
        raise InvalidArgument(name, "a finite number as bound", shown(value))
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidArgument(name, "a finite number as bound", shown(value))
    return number


def _integer(name: str, value: Any) -> int:
    if not _number(value) or not isinstance(value, numbers.Integral):
        raise InvalidArgument(name, "an integer as bound", shown(value))
    if abs(int(value)) > LARGEST_INTEGER:
        raise InvalidArgument(name, "an integer between -2^53 and 2^53", shown(value))
    return int(value)


def _check_log(name: str, domain: Float | Integer) -> None:
    if domain.log and domain.low <= 0:
        raise InvalidArgument(name, "bounds above zero for a log scale", shown(domain.low))
