"""Search spaces: the hyperparameters of a search, and their positions in the unit cube.

Every algorithm works in the unit cube [0, 1]^n; `Space.decode` turns a point of it into
hyperparameters and `Space.encode` turns those back. The user's input is read here, once:
`Space.of_bounds` for searches, `Space.of_grid` for grids. The domains of single hyperparameters are
in `search.space.domains`; this module exports their names, too.
"""

from __future__ import annotations

import copy
import graphlib
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from search.errors import InvalidArgument, NothingAllowed, did_you_mean, shown
from search.space.bounds import domain_of_bound
from search.space.domains import Choice, Domain, Float, Integer, domain_of_json
from search.space.user_values import LARGEST_INTEGER, choices, iterable
from search.values import check_size, check_sizes, plain_value, size_of

__all__ = ["LARGEST_INTEGER", "Choice", "Constraint", "Domain", "Float", "Integer", "Space"]


_NUMBER = 25
"""Maximum bytes of JSON of a float, or of an integer of a domain."""

Constraint: TypeAlias = Callable[[dict[str, Any]], bool]
"""Returns whether hyperparameters may be tried; always the same for the same hyperparameters."""


class Space(Mapping[str, Domain]):
    """Ordered names of hyperparameters to their domains. Immutable.

    A hyperparameter with a condition (`when`) that does not hold is inactive: `decode` omits it,
    and its coordinate is ignored.

    Args:
        domains: Name to `Float`, `Integer` or `Choice`.
        name: The user's name for the domains, for errors.
        constraint: Called with decoded hyperparameters, without the inactive ones; returns whether
            they may be tried. None allows all.

    Attributes:
        constraint: The constraint, if any.

    Raises:
        InvalidArgument: No hyperparameter, an invalid name, a condition that can never hold,
            conditions that form a cycle, or a constraint that is not callable.
    """

    def __init__(
        self,
        domains: Mapping[str, Domain],
        name: str = "space",
        constraint: Constraint | None = None,
    ) -> None:
        if not domains:
            raise InvalidArgument(name, "at least one hyperparameter", shown(domains))
        _check_names(name, domains)
        # As plain strings, also of numpy's, which JSON cannot hold.
        self._domains = {str.__str__(key): domain for key, domain in domains.items()}
        _check_sizes(name, self._domains)
        self._conditions = {
            child: _conditions(name, child, self._domains)
            for child, domain in self._domains.items()
            if domain.when is not None
        }
        self._order = _parents_first(name, self._domains, self._conditions)
        check_is_constraint(constraint)
        self.constraint = constraint

    @classmethod
    def of_bounds(
        cls, bounds: Mapping[str, Any], constraint: Constraint | None = None, name: str = "bounds"
    ) -> Space:
        """Read the bounds of a search.

        A dict has the arguments of a domain: `{'low': 0.1, 'high': 0.9}`.
        Two ints are an `Integer`, two numbers with a float among them a `Float`, in either order.
        Two booleans, two strings or more than two values are a `Choice`. A `Float` is searched on a
        log scale where both ends are above zero and the bounds are written high first
        (`[0.005, 0.00005]`) or high / low >= 1,000. `Float`, `Integer` and `Choice` objects stay as
        they are. `Choice(['eu'])` and equal bounds are constants.

        Args:
            bounds: Name to bounds.
            constraint: The constraint, see `Space`.
            name: The user's name for the bounds, for errors.

        Raises:
            InvalidArgument: Bounds are invalid; the message names the hyperparameter.
        """
        _check_mapping(name, bounds)
        domains = {key: domain_of_bound(f"{name}[{key!r}]", value) for key, value in bounds.items()}
        return cls(domains, name, constraint)

    @classmethod
    def from_json(cls, data: Any) -> Space:
        """Return the space that `to_json` was called on, without its constraint.

        Raises:
            ValueError: Not a space; `InvalidArgument` if a domain contradicts itself.
        """
        if not isinstance(data, dict):
            raise ValueError(f"not a space: {shown(data)}")
        return cls({name: domain_of_json(domain) for name, domain in data.items()})

    @classmethod
    def of_grid(cls, args_dict: Mapping[str, Any], constraint: Constraint | None = None) -> Space:
        """Read the lists of a grid: each list becomes a `Choice`.

        Args:
            args_dict: Name to list.
            constraint: The constraint, see `Space`.

        Raises:
            InvalidArgument: A list is invalid; the message names the hyperparameter.
        """
        _check_mapping("args_dict", args_dict)
        domains = {
            name: _choice_of_grid(f"args_dict[{name!r}]", values)
            for name, values in args_dict.items()
        }
        return cls(domains, "args_dict", constraint)

    def __getitem__(self, name: str) -> Domain:
        return self._domains[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._domains)

    def __len__(self) -> int:
        return len(self._domains)

    def __repr__(self) -> str:
        return f"Space({self._domains})"

    @property
    def conditional(self) -> tuple[str, ...]:
        """The names of the hyperparameters with a condition."""
        return tuple(self._conditions)

    @property
    def parents_first(self) -> tuple[str, ...]:
        """The names in the order of `assemble`: each after those on which its condition depends."""
        return self._order

    def assemble(self, value_of: Callable[[str], Any]) -> dict[str, Any]:
        """Return hyperparameters from a function that returns the value of each.

        Args:
            value_of: Returns the value for a name. Called for active hyperparameters only, for each
                after those on which its condition depends.
        """
        if not self._conditions:
            return {name: value_of(name) for name in self._domains}
        values: dict[str, Any] = {}
        for name in self._order:
            conditions = self._conditions.get(name, {})
            if all(parent in values and values[parent] in c for parent, c in conditions.items()):
                values[name] = value_of(name)
        return {name: values[name] for name in self._domains if name in values}

    def decode(self, point: Sequence[float]) -> dict[str, Any]:
        """Return the hyperparameters at a point of the unit cube, one coordinate per name."""
        units = dict(zip(self._domains, point, strict=True))
        return self.assemble(lambda name: self._domains[name].decode(units[name]))

    def encode(self, params: Mapping[str, Any]) -> list[float]:
        """Return the point of the unit cube at which hyperparameters lie: 0.5 for inactive ones."""
        active = self.assemble(params.__getitem__)
        return [
            domain.encode(active[name]) if name in active else 0.5
            for name, domain in self._domains.items()
        ]

    def snap(self, point: Sequence[float]) -> tuple[float, ...]:
        """Return the position of the values at a point of the unit cube: the middles of bins.

        Points with the same values have the same position.
        """
        if self._conditions:
            return tuple(self.encode(self.decode(point)))
        # The same without dicts: searches snap twenty points before some trials.
        pairs = zip(self._domains.values(), point, strict=True)
        return tuple(domain.encode(domain.decode(unit)) for domain, unit in pairs)

    def allows(self, point: Sequence[float]) -> bool:
        """Return whether the constraint allows the hyperparameters at a point of the unit cube.

        Raises:
            InvalidArgument: The constraint raised, or returned no bool.
        """
        return self.constraint is None or self.allows_params(self.decode(point))

    def allows_params(self, params: Mapping[str, Any]) -> bool:
        """Return whether the constraint allows these hyperparameters.

        Raises:
            InvalidArgument: The constraint raised, or returned no bool.
        """
        return allows(self.constraint, params, self.conditional)

    def to_json(self) -> dict[str, Any]:
        """Return the space as JSON, in its order."""
        return {name: domain.to_json() for name, domain in self._domains.items()}


def _choice_of_grid(name: str, values: Any) -> Choice:
    if isinstance(values, Float | Integer):
        hint = "a grid takes lists; random_search and other searches take bounds"
        raise InvalidArgument(name, "a list of values", shown(values), hint)
    return values if isinstance(values, Choice) else Choice(choices(name, values))


def allows(
    constraint: Constraint | None, params: Mapping[str, Any], conditional: Collection[str] = ()
) -> bool:
    """Return whether a constraint allows these hyperparameters; None allows all.

    Args:
        constraint: The constraint, see `Space`.
        params: Name to value.
        conditional: Names of the hyperparameters with a condition.

    Raises:
        InvalidArgument: The constraint raised, or returned no bool.
    """
    if constraint is None:
        return True
    try:
        # A copy of what it may change: a list or a dict belongs to the space.
        allowed: object = constraint(
            {
                name: copy.deepcopy(value) if isinstance(value, list | tuple | dict) else value
                for name, value in params.items()
            }
        )
    except Exception as error:
        got = f"{type(error).__name__}: {error}, for {shown(dict(params), 300)}"
        hint = ""
        key = next(iter(error.args), None) if isinstance(error, KeyError) else None
        if key in conditional:
            hint = f"it is not in every trial: use .get({key!r})"
        raise InvalidArgument("constraint", "True or False", got, hint) from error
    if not isinstance(allowed, bool | np.bool_):
        got = f"{shown(allowed)}, for {shown(dict(params), 300)}"
        raise InvalidArgument("constraint", "True or False", got)
    return bool(allowed)


def check_is_constraint(constraint: object) -> None:
    """Raise `InvalidArgument` unless this is a constraint, or None."""
    if constraint is not None and not callable(constraint):
        expected = "a function of a dict of hyperparameters, or None"
        raise InvalidArgument("constraint", expected, shown(constraint))


def _conditions(where: str, child: str, domains: Mapping[str, Domain]) -> dict[str, Choice]:
    """Return the hyperparameters on which one depends, with the values that each must have."""
    conditions = {}
    for parent, values in (domains[child].when or {}).items():
        name = f"{where}[{child!r}].when"
        if parent == child:
            raise InvalidArgument(name, "other hyperparameters", f"{child!r} itself")
        if parent not in domains:
            others = " or ".join(repr(other) for other in domains if other != child)
            hint = did_you_mean(parent, domains)
            raise InvalidArgument(name, others or "another hyperparameter", shown(parent), hint)
        domain, name = domains[parent], f"{name}[{parent!r}]"
        if domain.size is None:
            hint = "a condition needs a choice, an integer, or steps"
            raise InvalidArgument(name, "a domain of countable values", repr(domain), hint)
        for value in values:
            if value not in domain:
                known = domain.values if isinstance(domain, Choice) else ()
                few = known if not isinstance(known, range) else ()
                tuples = isinstance(value, tuple)
                hint = "several values are a list" if tuples else did_you_mean(value, few)
                raise InvalidArgument(name, f"a value of {shown(domain)}", shown(value), hint)
        conditions[parent] = Choice(
            [float(v) for v in values] if isinstance(domain, Float) else values
        )
    return conditions


def _parents_first(
    where: str, names: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return the names in an order in which each comes after those on which it depends."""
    if not conditions:
        return tuple(names)
    sorter = graphlib.TopologicalSorter({name: conditions.get(name, ()) for name in names})
    try:
        return tuple(sorter.static_order())
    except graphlib.CycleError as error:
        cycle = " needs ".join(map(repr, reversed(error.args[1])))
        raise InvalidArgument(where, "conditions without a cycle", cycle) from None


def read_points(points: Any, constraint: Constraint | None = None) -> list[dict[str, Any]]:
    """Read a list of points: dicts of hyperparameter name to value.

    Args:
        points: The user's list.
        constraint: The constraint, see `Space`; points that it does not allow are left out.

    Raises:
        InvalidArgument: A point is invalid; the message names it.
        NothingAllowed: The constraint allows no point.
    """
    check_is_constraint(constraint)
    if isinstance(points, str | bytes) or not iterable(points):
        raise InvalidArgument("args_dict", "a dict of lists, or a list of dicts", shown(points))
    rows = list(points)
    if not rows:
        raise InvalidArgument("args_dict", "at least one point", shown(points))
    checked: set[tuple[Any, ...]] = set()  # tuples of names; most points have the same
    read = [_point(f"args_dict[{number}]", row, checked) for number, row in enumerate(rows)]
    allowed = [point for point in read if allows(constraint, point)]
    if not allowed:
        raise nothing_allowed(len(read), "points", read[-1])
    return allowed


def nothing_allowed(number: int, what: str, last: Mapping[str, Any]) -> NothingAllowed:
    """Return the error for a constraint that allows none of some configurations.

    Args:
        number: The number of checked configurations.
        what: Their description, such as "points of the grid".
        last: One of them.
    """
    expected = "a constraint that allows some configurations"
    got = f"none among {number:,} {what}, such as {shown(dict(last), 300)}"
    return NothingAllowed("constraint", expected, got)


def _point(name: str, row: Any, checked: set[tuple[Any, ...]]) -> dict[str, Any]:
    _check_mapping(name, row)
    names = tuple(row)
    if names not in checked:
        _check_names(name, row)
        checked.add(names)
    point = {key: plain_value(f"{name}[{key!r}]", value) for key, value in row.items()}
    check_size(name, point)
    return point


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
        # Python normalises identifiers so, and two such names are one argument of `train`.
        normal = unicodedata.normalize("NFKC", name)
        if normal in seen:
            raise InvalidArgument(where, "each name once", f"{seen[normal]!r} and {name!r}")
        seen[normal] = name


def _check_sizes(where: str, domains: Mapping[str, Domain]) -> None:
    """Refuse domains whose trials may be too large for a message, naming the largest."""
    sizes = {name: size_of(name) + _largest(domain) for name, domain in domains.items()}
    for name, size in sizes.items():
        check_sizes(where, {name: size})
    check_sizes(where, {name: size for name, size in sizes.items() if domains[name].when is None})


def _largest(domain: Domain) -> int:
    """Return how many bytes of JSON the largest value of a domain takes."""
    if not isinstance(domain, Choice) or isinstance(domain.values, range):
        return _NUMBER
    return max(
        _NUMBER if isinstance(value, float | bool) else size_of(value) for value in domain.values
    )
