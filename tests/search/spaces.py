"""Spaces with conditions and constraints, shared by the tests of this folder."""

import zlib
from functools import partial

from hypothesis import strategies as st

from search.space.spaces import Choice, Float, Integer, Space
from search.values import to_json

domains_by_size = st.sampled_from(
    [
        partial(Choice, ["sgd", "adam", (1, 2), None]),
        partial(Choice, [True, False]),
        partial(Choice, range(5)),
        partial(Integer, 1, 4),
        partial(Integer, 0, 30, step=10),
        partial(Float, 0.0, 1.0, step=0.25),
        partial(Float, 0.0, 1.0),
        partial(Float, 1e-4, 1e-1, log=True),
        partial(Choice, ["eu"]),
    ]
)


@st.composite
def conditional_spaces(draw, constraint=None):
    """Spaces in which names depend on others, some of which come after them."""
    domains = {}
    for name in "abcdef"[: draw(st.integers(1, 6))]:
        domain_of = draw(domains_by_size)
        parents = [n for n, domain in domains.items() if domain.size is not None]
        when = {}
        for parent in draw(st.lists(st.sampled_from(parents), max_size=2)) if parents else ():
            units = draw(st.lists(st.floats(0, 1), min_size=1, max_size=3))
            when[parent] = [domains[parent].decode(unit) for unit in units]
        domains[name] = domain_of(when=when or None)
    names = draw(st.permutations(list(domains)))
    return Space({name: domains[name] for name in names}, constraint=constraint)


def points_of(space):
    return st.lists(st.floats(0, 1), min_size=len(space), max_size=len(space))


def is_active(space, name, params):
    """The definition: its condition holds, and the hyperparameters it needs are active."""
    return all(
        is_active(space, parent, params)
        and any(params.get(parent) == v and type(params.get(parent)) is type(v) for v in values)
        for parent, values in (space[name].when or {}).items()
    )


def some_refused(params):
    """Allow two thirds of all configurations of any space."""
    return zlib.crc32(repr(sorted((n, to_json(v)) for n, v in params.items())).encode()) % 3 != 0


TRAINING = Space(
    {
        "momentum": Float(0.0, 0.9, step=0.1, when={"optimizer": ["sgd", "rmsprop"]}),
        "nesterov": Choice([True, False], when={"optimizer": "sgd", "momentum": [0.5, 0.9]}),
        "optimizer": Choice(["adam", "sgd", "rmsprop"]),
        "units": Integer(16, 256, step=16),
        "batch": Choice([16, 32, 64, 128], ordered=True),
        "lr": Float(1e-4, 1e-1, log=True),
        "region": Choice(["eu"]),
    },
    constraint=lambda p: p["batch"] * p["units"] <= 4096,
)
"""Conditions of two levels, steps, an order, a constant, and two thirds that are not allowed."""
