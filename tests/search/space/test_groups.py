"""The spaces of groups."""

import pytest

from search.errors import InvalidArgument
from search.space.groups import read_groups, union
from search.space.spaces import Choice, Float, Integer

LR = {"lr": [0.1, 0.001]}
BOUNDS = {"eu": {"lr": [0.1, 0.001], "n": [1, 4]}, "us": {"lr": [1.0, 0.01], "n": [2, 8]}}


def test_the_bounds_of_each_group_are_read():
    spaces = read_groups(BOUNDS, "group")
    assert {group: dict(space) for group, space in spaces.items()} == {
        "eu": {"lr": Float(0.001, 0.1, log=True), "n": Integer(1, 4)},
        "us": {"lr": Float(0.01, 1.0, log=True), "n": Integer(2, 8)},
    }
    assert dict(union(spaces, "group")) == {
        "group": Choice(["eu", "us"]),
        "lr": Float(0.001, 1.0, log=True),
        "n": Integer(1, 8),
    }


def test_a_union_of_choices_has_the_values_of_all_and_keeps_conditions():
    momentum = Float(0.0, 1.0, when={"kind": "sgd"})
    bounds = {
        "a": {"kind": Choice(["sgd", "adam"]), "momentum": momentum},
        "b": {"kind": Choice(["sgd", "lion"]), "momentum": momentum},
    }
    space = union(read_groups(bounds, "group"), "group")
    assert space["kind"] == Choice(["sgd", "adam", "lion"])
    assert space["momentum"] == momentum


def stepped(first, second):
    """Return groups with these domains, on which another hyperparameter depends."""
    child = Choice([1, 2], when={"p": 0.5})
    bounds = {"eu": {"p": first, "c": child}, "us": {"p": second, "c": child}}
    return read_groups(bounds, "group")


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Float(0, 1, step=0.5), Float(0, 2, step=0.5), Float(0, 2, step=0.5)),
        (Float(0.3, 0.5, step=0.1), Float(0.1, 0.9, step=0.1), Float(0.1, 0.9, step=0.1)),
    ],
)
def test_a_union_of_the_same_steps_has_them(one, other, both):
    assert union(stepped(one, other), "group")["p"] == both


def test_a_union_of_other_steps_has_all_numbers_between_the_bounds():
    bounds = {
        "eu": {"n": Integer(0, 9, step=3), "m": Integer(1, 7, step=2), "x": Float(0, 1, step=0.5)},
        "us": {"n": Integer(1, 9, step=3), "m": Integer(3, 9, step=2), "x": Float(0, 1, step=0.25)},
    }
    space = union(read_groups(bounds, "group"), "group")
    assert (space["n"], space["m"]) == (Integer(0, 9), Integer(1, 9, step=2))
    assert space["x"] == Float(0, 1)


def test_other_steps_of_a_hyperparameter_with_dependants_are_refused_by_the_group():
    spaces = stepped(Float(0, 1, step=0.5), Float(0, 1, step=0.25))
    with pytest.raises(InvalidArgument) as caught:
        union(spaces, "group")
    assert caught.value.name == "bounds['us']['p']"
    assert "step=0.5" in caught.value.expected


@pytest.mark.parametrize(
    ("bounds", "by", "name", "part"),
    [
        ({}, "group", "bounds", "a dict of groups"),
        ([LR], "group", "bounds", "a dict of groups"),
        ({1: LR}, "group", "bounds", "names of groups"),
        ({"": LR}, "group", "bounds", "names of groups"),
        ({"eu": [0.1, 0.2]}, "group", "bounds['eu']", "a dict of hyperparameter names"),
        ({"eu": {}}, "group", "bounds['eu']", "at least one hyperparameter"),
        ({"eu": {"lr": []}}, "group", "bounds['eu']['lr']", "at least one value"),
        ({"eu": {"group": [1, 2]}}, "group", "bounds['eu']", "no hyperparameter 'group'"),
        ({"eu": {"region": [1, 2]}}, "region", "bounds['eu']", "no hyperparameter 'region'"),
        ({"eu": LR, "us": {"rate": [0, 1]}}, "group", "bounds['us']", "of the first group"),
        ({"eu": LR}, "", "by", "the name of an argument"),
        ({"eu": LR}, None, "by", "the name of an argument"),
    ],
    ids=str,
)
def test_groups_that_cannot_be_searched_are_refused(bounds, by, name, part):
    with pytest.raises(InvalidArgument) as caught:
        read_groups(bounds, by)
    assert caught.value.name == name
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "other",
    [Choice([0.1, 0.2, 0.3]), Integer(1, 2), Float(0.0, 1.0, when={"n": 1})],
    ids=["choice", "integer", "condition"],
)
def test_a_hyperparameter_is_of_the_same_kind_in_all_groups(other):
    spaces = read_groups(
        {"eu": {"lr": [0.0, 1.0], "n": [1, 4]}, "us": {"lr": other, "n": [1, 4]}}, "group"
    )
    with pytest.raises(InvalidArgument) as caught:
        union(spaces, "group")
    assert caught.value.name == "bounds['us']['lr']"


def test_a_range_of_choices_is_the_same_in_all_groups():
    def united(*ranges):
        bounds = {group: {"n": Choice(n)} for group, n in zip(("eu", "us"), ranges, strict=True)}
        return union(read_groups(bounds, "group"), "group")

    assert united(range(9), range(9))["n"] == Choice(range(9))
    with pytest.raises(InvalidArgument) as caught:
        united(range(9), range(8))
    assert caught.value.name == "bounds['us']['n']"
