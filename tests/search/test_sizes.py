"""How large the hyperparameters of a trial may be."""

from __future__ import annotations

import re

import pytest

from search.errors import InvalidArgument
from search.space.groups import read_groups, union
from search.space.spaces import Choice, Space, read_points

_LONG = "a" * 2_000_000


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (lambda: Space.of_grid({"y": [1], "x": ["b", _LONG]}), "args_dict['x']"),
        (lambda: read_points([{"x": 1}, {"x": _LONG}]), "args_dict[1]['x']"),
        (lambda: Space.of_bounds({"y": [1, 2], "x": ["b", _LONG]}), "bounds['x']"),
        (lambda: Space.of_bounds({"y": [1, 2], "x": Choice([[_LONG], 1])}), "bounds['x']"),
        (
            lambda: Space.of_bounds({"y": ["a", "b"], "x": Choice([_LONG], when={"y": "a"})}),
            "bounds['x']",
        ),
        (lambda: read_groups({"eu": {"x": ["b", _LONG]}}, "group"), "bounds['eu']['x']"),
        (lambda: union(read_groups({_LONG: {"x": [1, 2]}}, "group"), "group"), "bounds['group']"),
    ],
)
def test_values_that_are_too_large_for_a_trial_are_refused_by_name(read, name):
    with pytest.raises(InvalidArgument) as caught:
        read()
    assert caught.value.name == name
    assert re.fullmatch(r"2,000,\d{3} bytes", caught.value.got)
    assert "at most 1,000,000 bytes" in str(caught.value)
    assert "pass the path of a file" in caught.value.hint


def test_values_that_are_too_large_together_are_refused():
    fits, half = "a" * 999_900, "a" * 600_000
    Space.of_grid({"x": [fits, "b"]})
    Space.of_grid({"x": [half], "y": range(10**9)})
    with pytest.raises(InvalidArgument, match=r"args_dict\['y'\].* 600,006 bytes of 1,200,011 for"):
        Space.of_grid({"x": [half], "y": [half, "b", half + "b"]})
