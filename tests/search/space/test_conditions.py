import json
import random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from search.errors import InvalidArgument, NothingAllowed
from search.space.sampling import DRAWS, allowed, check_constraint, random_point
from search.space.spaces import Choice, Float, Integer, Space
from tests.properties import examples
from tests.search.spaces import TRAINING, conditional_spaces, is_active, points_of

OPTIMIZER = Choice(["adam", "sgd"])


def refusal(call, *args, **kwargs):
    with pytest.raises(InvalidArgument) as caught:
        call(*args, **kwargs)
    return caught.value


def refused_space(**domains):
    return refusal(Space.of_bounds, domains)


@given(space=conditional_spaces(), data=st.data())
@examples(200)
def test_only_active_hyperparameters_are_decoded_in_the_order_of_the_space(space, data):
    params = space.decode(data.draw(points_of(space)))
    assert list(params) == [name for name in space if is_active(space, name, params)]
    assert all(value in space[name] for name, value in params.items())


@given(space=conditional_spaces(), data=st.data())
@examples(200)
def test_inactive_coordinates_do_not_change_the_position(space, data):
    point = data.draw(points_of(space))
    params = space.decode(point)
    other = [
        unit if name in params else data.draw(st.floats(0, 1))
        for name, unit in zip(space, point, strict=True)
    ]
    assert space.decode(other) == params
    assert space.snap(other) == space.snap(point)
    for name, unit in zip(space, space.encode(params), strict=True):
        assert 0 <= unit <= 1
        assert name in params or unit == 0.5
    again = space.decode(space.encode(params))
    assert list(again) == list(params)
    assert all(
        again[name] == (pytest.approx(value) if isinstance(value, float) else value)
        for name, value in params.items()
    )


@given(space=conditional_spaces())
@examples(100)
def test_conditions_survive_their_round_trip(space):
    again = Space.from_json(json.loads(json.dumps(space.to_json(), allow_nan=False)))
    assert repr(again) == repr(space)
    assert again == space
    assert again.conditional == space.conditional


def test_conditions_have_a_form_in_json():
    momentum = Float(0, 0.9, step=0.1, when={"opt": "sgd", "layers": [(8,), (8, 4)]})
    assert momentum.to_json() == {
        "type": "float",
        "low": 0.0,
        "high": 0.9,
        "log": False,
        "step": 0.1,
        "when": {"opt": ["sgd"], "layers": [{"tuple": [8]}, {"tuple": [8, 4]}]},
    }
    assert Choice(["s", "m"], ordered=True).to_json() == {
        "type": "choice",
        "values": ["s", "m"],
        "ordered": True,
    }


def test_values_that_are_inactive_are_not_looked_at():
    space = Space({"opt": OPTIMIZER, "momentum": Float(0, 1, when={"opt": "sgd"})})
    assert space.encode({"opt": "adam", "momentum": 0.9}) == [0.25, 0.5]
    assert space.encode({"opt": "adam"}) == [0.25, 0.5]
    assert space.encode({"opt": "sgd", "momentum": 0.9}) == [0.75, 0.9]
    with pytest.raises(KeyError):
        space.encode({"opt": "sgd"})


def test_a_hyperparameter_whose_parent_is_inactive_is_inactive():
    space = Space(
        {
            "c": Integer(1, 2, when={"b": True}),
            "b": Choice([True, False], when={"a": "x"}),
            "a": Choice(["x", "y"]),
        }
    )
    assert space.decode([0, 0, 0]) == {"c": 1, "b": True, "a": "x"}
    assert space.decode([0, 1, 0]) == {"b": False, "a": "x"}
    assert space.decode([0, 0, 1]) == {"a": "y"}


def test_all_of_several_conditions_must_hold():
    when = {"a": 1, "b": [1, 2]}
    space = Space({"a": Integer(1, 3), "b": Integer(1, 3), "c": Integer(1, 3, when=when)})
    active = {
        (a, b)
        for a in (1, 2, 3)
        for b in (1, 2, 3)
        if "c" in space.decode(space.encode({"a": a, "b": b, "c": 1}))
    }
    assert active == {(1, 1), (1, 2)}


def test_conditions_tell_true_from_one():
    space = Space({"a": Choice([1, True, 1.0]), "b": Integer(1, 2, when={"a": True})})
    assert ["b" in space.decode([unit, 0]) for unit in (0.0, 0.5, 1.0)] == [False, True, False]


def test_the_values_of_a_condition_on_steps_may_be_ints():
    space = Space({"a": Float(0, 2, step=1), "b": Integer(1, 2, when={"a": [1, 2.0]})})
    assert ["b" in space.decode([unit, 0]) for unit in (0.0, 0.5, 1.0)] == [False, True, True]


def test_parents_are_asked_for_first():
    asked = []
    TRAINING.assemble(lambda name: asked.append(name) or TRAINING[name].decode(0.5))
    assert asked.index("optimizer") < asked.index("momentum")
    assert TRAINING.conditional == ("momentum", "nesterov")


def test_a_condition_on_an_unknown_name_is_refused():
    error = refused_space(opt=["adam", "sgd"], m=Float(0, 1, when={"optimizer": "sgd"}))
    assert str(error) == "bounds['m'].when: expected 'opt', got 'optimizer'"


def test_a_condition_on_itself_is_refused():
    error = refused_space(m=Integer(0, 1, when={"m": 1}))
    assert str(error) == "bounds['m'].when: expected other hyperparameters, got 'm' itself"


def test_a_cycle_of_conditions_is_named_in_order():
    error = refused_space(
        z=[1, 2],
        a=Integer(0, 1, when={"b": 1}),
        b=Integer(0, 1, when={"c": 1}),
        c=Integer(0, 1, when={"a": 1, "z": 1}),
    )
    assert (error.name, error.expected) == ("bounds", "conditions without a cycle")
    names = error.got.split(" needs ")
    assert names[0] == names[-1]
    needs = {"'a'": "'b'", "'b'": "'c'", "'c'": "'a'"}
    assert [needs[name] for name in names[:-1]] == names[1:]
    assert len(names) == 4


@pytest.mark.parametrize(
    ("parent", "value", "shown"),
    [
        (["adam", "sgd"], "SGD", "'SGD'"),
        (["adam", "sgd"], ["sgd", "rms"], "'rms'"),
        ([True, False], 1, "1"),
        ([1, 9], 10, "10"),
        ([1, 9], 1.0, "1.0"),
        (Integer(0, 8, step=4), 2, "2"),
        (Float(0, 1, step=0.25), 0.3, "0.3"),
        (Choice(["eu"]), "us", "'us'"),
    ],
)
def test_a_value_that_the_parent_never_takes_is_refused(parent, value, shown):
    error = refused_space(a=parent, b=Float(0, 1, when={"a": value}))
    assert (error.name, error.got) == ("bounds['b'].when['a']", shown)
    assert error.expected.startswith("a value of ")


def test_a_tuple_is_one_value_and_the_error_says_so():
    error = refused_space(a=["x", "y", "z"], b=Float(0, 1, when={"a": ("x", "y")}))
    assert error.hint == "several values are a list"
    layers = Choice([(8,), (8, 4)])
    assert Space.of_bounds({"a": layers, "b": Float(0, 1, when={"a": (8, 4)})}).conditional


def test_a_condition_on_a_real_number_is_refused():
    error = refused_space(a=[0.0, 1.0], b=Integer(1, 2, when={"a": 0.5}))
    assert error.name == "bounds['b'].when['a']"
    assert "steps" in error.hint


def test_json_is_checked_too():
    data = {"b": {"type": "choice", "values": [1], "when": {"a": ["x"]}}}
    with pytest.raises(ValueError, match="another hyperparameter"):
        Space.from_json(data)


@pytest.mark.parametrize("constraint", [5, "p['a'] < 3", {}], ids=repr)
def test_a_constraint_can_be_called(constraint):
    assert refusal(Space.of_bounds, {"a": [1, 2]}, constraint).name == "constraint"


def test_a_constraint_sees_what_the_train_function_gets():
    seen = []
    space = Space(
        {"a": Choice([1, 2]), "b": Integer(5, 9, when={"a": 2})},
        constraint=lambda p: bool(seen.append(p)) or p.get("b", 0) < 7,
    )
    assert [space.allows(point) for point in ([0, 1], [1, 0], [1, 1])] == [True, True, False]
    assert seen == [{"a": 1}, {"a": 2, "b": 5}, {"a": 2, "b": 9}]
    assert space.allows_params({"a": 2, "b": 6})


def test_a_space_without_a_constraint_allows_everything():
    assert Space.of_bounds({"a": [1, 2]}).allows([0.5])


def test_a_constraint_may_return_numpys_bool():
    space = Space.of_bounds({"a": [1, 4]}, lambda p: np.prod([p["a"], 2]) < 4)
    assert [space.allows([unit]) for unit in (0.0, 1.0)] == [True, False]
    assert type(space.allows([0.0])) is bool


@pytest.mark.parametrize("answer", [None, 1, 0, "yes", [], 0.5], ids=repr)
def test_a_constraint_that_returns_no_bool_is_refused(answer):
    space = Space.of_bounds({"a": [3, 3]}, lambda p: answer)
    error = refusal(space.allows, [0.5])
    assert error.name == "constraint"
    assert error.got == f"{answer!r}, for {{'a': 3}}"


def test_a_constraint_that_raises_is_refused_with_the_hyperparameters():
    space = Space.of_bounds({"a": [3, 3]}, lambda p: 1 / (p["a"] - 3) > 0)
    error = refusal(space.allows, [0.5])
    assert str(error) == (
        "constraint: expected True or False, got ZeroDivisionError: division by zero, for {'a': 3}"
    )
    assert type(error.__cause__) is ZeroDivisionError


def test_a_constraint_that_reads_an_inactive_hyperparameter_gets_a_hint():
    space = Space(
        {"a": Choice([1, 2]), "b": Integer(5, 9, when={"a": 2})}, constraint=lambda p: p["b"] < 7
    )
    assert refusal(space.allows, [0, 0]).hint == "it is not in every trial: use .get('b')"
    unknown = Space.of_bounds({"a": [1, 2]}, lambda p: p["c"] < 7)
    assert refusal(unknown.allows, [0]).hint == ""


@pytest.mark.parametrize("error", [KeyError(), KeyError(["b"])], ids=repr)
def test_a_constraint_may_raise_any_key_error(error):
    def constraint(params):
        raise error

    refused = refusal(Space.of_bounds({"a": [1, 2]}, constraint).allows, [0])
    assert (refused.name, refused.hint) == ("constraint", "")


def test_a_constraint_cannot_change_what_is_tried():
    space = Space.of_bounds({"a": [1, 4]}, lambda p: p.clear() is None)
    params = {"a": 2}
    assert space.allows_params(params)
    assert params == {"a": 2}


@given(space=conditional_spaces(constraint=lambda p: len(p) % 2 == 1), seed=st.integers(0, 99))
@examples(50)
def test_random_points_are_allowed(space, seed):
    try:
        point = random_point(space, random.Random(seed))
    except NothingAllowed:
        assume(False)
    assert len(space.decode(point)) % 2 == 1


def test_random_points_of_a_space_without_a_constraint_are_even_draws():
    space = Space.of_bounds({"a": [0.0, 1.0], "b": [0.0, 1.0]})
    rng = random.Random(3)
    assert random_point(space, random.Random(3)) == [rng.random(), rng.random()]


def test_a_constraint_that_allows_nothing_is_an_error_after_some_draws():
    asked = []
    space = Space.of_bounds({"a": [1, 1], "opt": Choice(["sgd"])}, lambda p: bool(asked.append(p)))
    error = refusal(check_constraint, space, random.Random(0))
    assert type(error) is NothingAllowed
    assert str(error) == (
        "constraint: expected a constraint that allows some configurations, got none among 10,000 "
        "drawn at random, such as {'a': 1, 'opt': 'sgd'}"
    )
    assert len(asked) == DRAWS == 10_000


def test_a_point_that_is_rarely_allowed_is_found_once_the_search_has_started():
    asked = []
    space = Space.of_bounds({"a": [1, 3000]}, lambda p: asked.append(p) or p["a"] == 7)
    check_constraint(space, random.Random(0))
    asked.clear()
    point = random_point(space, random.Random(22))
    assert space.decode(point) == {"a": 7}
    assert len(asked) > DRAWS


def test_a_constraint_is_called_a_few_times_before_a_search():
    check_constraint(Space.of_bounds({"a": [1, 2]}), random.Random(0))
    check_constraint(TRAINING, random.Random(0))
    with pytest.raises(NothingAllowed):
        check_constraint(Space.of_bounds({"a": [1, 2]}, lambda p: False), random.Random(0))
    stumbles = Space.of_bounds({"a": [1, 3]}, lambda p: {1: True, 2: False}[p["a"]])
    with pytest.raises(InvalidArgument, match="KeyError: 3, for {'a': 3}"):
        check_constraint(stumbles, random.Random(0))


def test_points_that_are_not_allowed_are_replaced():
    space = Space.of_bounds({"a": [0.0, 1.0]}, lambda p: p["a"] < 0.5)
    replaced = allowed(space, [[0.25], [0.75]], random.Random(0))
    assert replaced[0] == [0.25]
    assert replaced[1][0] < 0.5
