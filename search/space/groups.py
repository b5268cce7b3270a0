"""The spaces of groups, such as one per region, and the space of all their trials."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from search.errors import InvalidArgument, did_you_mean, shown
from search.space.spaces import Choice, Constraint, Domain, Float, Integer, Space


def read_groups(bounds: Any, by: Any, constraint: Constraint | None = None) -> dict[str, Space]:
    """Read the bounds of each group.

    Args:
        bounds: Group to bounds, see `Space.of_bounds`; all groups have the same hyperparameters.
        by: The name of the hyperparameter that holds a trial's group.
        constraint: The constraint of every group, see `Space`; called with the group, too.

    Raises:
        InvalidArgument: No group, an invalid name, invalid bounds, a hyperparameter that some
            groups lack, or one with the name `by`.
    """
    if not isinstance(by, str) or not by:
        raise InvalidArgument("by", "the name of an argument of the train function", shown(by))
    if not isinstance(bounds, Mapping) or not bounds:
        raise InvalidArgument("bounds", "a dict of groups, each with its bounds", shown(bounds))
    spaces: dict[str, Space] = {}
    for group, own in bounds.items():
        if not isinstance(group, str) or not group:
            raise InvalidArgument("bounds", "non-empty strings as names of groups", shown(group))
        name = f"bounds[{group!r}]"
        space = Space.of_bounds(own, _of_group(constraint, by, group), name)
        if by in space:
            expected = f"no hyperparameter {by!r}, which holds a trial's group"
            raise InvalidArgument(name, expected, shown(own), "set another name with by=")
        first = next(iter(spaces.values()), space)
        if set(first) != set(space):
            expected = f"the hyperparameters of the first group, {list(first)}"
            raise InvalidArgument(name, expected, shown(list(space)), _typo(space, first))
        spaces[group] = space
    return spaces


def _typo(names: Mapping[str, Domain], known: Mapping[str, Domain]) -> str:
    missing = [name for name in known if name not in names]
    unknown = [name for name in names if name not in known]
    return next(filter(None, (did_you_mean(name, missing) for name in unknown)), "")


def _of_group(constraint: Constraint | None, by: str, group: str) -> Constraint | None:
    if not callable(constraint):
        return constraint  # None, or an error that `Space` raises
    return lambda params: constraint({by: group, **params})


def union(spaces: Mapping[str, Space], by: str, constraint: Constraint | None = None) -> Space:
    """Return the union of the groups' spaces, with the group as a hyperparameter.

    Raises:
        InvalidArgument: The groups have different kinds of domains for a hyperparameter, or
            different steps for one on which others depend.
    """
    groups, names = list(spaces), next(iter(spaces.values()))
    domains: dict[str, Domain] = {by: Choice(groups)}
    parents = {parent for domain in names.values() for parent in domain.when or ()}
    for name in names:
        domain = names[name]
        for group in groups[1:]:
            both = _either(domain, spaces[group][name])
            if both is None or (both.size is None and name in parents):
                where, hint = f"bounds[{group!r}][{name!r}]", f"as {groups[0]!r} has it"
                expected = f"something like {shown(domain)}"
                raise InvalidArgument(where, expected, shown(spaces[group][name]), hint)
            domain = both
        domains[name] = domain
    return Space(domains, "bounds", constraint)


def _either(one: Domain, other: Domain) -> Domain | None:
    """Return a domain with the values of both; None for domains of different kinds."""
    if one == other:
        return one
    if one.when != other.when:
        return None
    match one, other:
        case Choice(), Choice():
            return _either_choice(one, other)
        case Integer(), Integer():
            low, high = min(one.low, other.low), max(one.high, other.high)
            step = one.step if _have_same_steps(one, other) else 1
            return Integer(low, high, log=one.log and other.log, step=step, when=one.when)
        case Float(), Float():
            bounds = min(one.low, other.low), max(one.high, other.high)
            steps = one.step if _have_same_steps(one, other) else None
            return Float(*bounds, log=one.log and other.log, step=steps, when=one.when)
    return None


def _have_same_steps(one: Float | Integer, other: Float | Integer) -> bool:
    """Return whether both domains have a step, the same, and their values fall on each other's."""
    if one.step is None or one.step != other.step:
        return False
    # As exact decimals: 0.3 is three tenths.
    low, other_low, step = (Fraction(repr(number)) for number in (one.low, other.low, one.step))
    return (low - other_low) % step == 0


def _either_choice(one: Choice, other: Choice) -> Choice | None:
    if isinstance(one.values, range) or isinstance(other.values, range):  # it may be long
        return None
    values = [*one.values, *(value for value in other.values if value not in one)]
    return Choice(values, one.ordered and other.ordered, one.when)
