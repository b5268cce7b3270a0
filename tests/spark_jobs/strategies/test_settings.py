import msgspec
import numpy as np
import pytest

from search.errors import InvalidArgument
from spark_jobs.strategies.settings import (
    Codistillation,
    Downpour,
    Jax,
    Mirrored,
    Strategy,
    name_of,
    read_strategy,
)


def test_a_strategy_travels_as_json():
    settings = Mirrored(communication="ring", unprotected=np.True_)
    data = msgspec.json.encode(settings)
    assert msgspec.json.decode(data) == {
        "type": "mirrored",
        "communication": "ring",
        "unprotected": True,
    }
    assert msgspec.json.decode(data, type=Mirrored) == settings


@pytest.mark.parametrize(
    "settings",
    [
        Mirrored(),
        Jax(),
        Jax(layout={".*kernel": [None, "model"]}),
        Codistillation(),
        Downpour(),
        Downpour(rule="easgd", moving_rate=np.float64(0.3)),
    ],
)
def test_each_strategy_travels_as_json_and_has_a_name(settings):
    data = msgspec.json.encode(settings)
    assert msgspec.json.decode(data, type=Strategy) == settings
    assert read_strategy("strategy", settings) is settings
    assert read_strategy("strategy", name_of(settings)) == type(settings)()


def test_a_name_is_short_for_the_defaults():
    assert read_strategy("strategy", "mirrored") == Mirrored()
    assert name_of(Mirrored(unprotected=True)) == "mirrored"
    assert read_strategy("strategy", "auto") == "auto"
    assert read_strategy("strategy", None) is None
    assert read_strategy("strategy", Mirrored(communication="nccl")).communication == "nccl"


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("mirored", "did you mean 'mirrored'?"),
        (Mirrored, "call it: experiment.Mirrored()"),
        (Downpour, "call it: experiment.Downpour()"),
        ("downpur", "did you mean 'downpour'?"),
        ([], "experiment.Downpour(...), experiment.Codistillation(...) or None, got []"),
        (3, "got 3"),
    ],
)
def test_another_strategy_is_refused(value, advice):
    with pytest.raises(InvalidArgument, match="strategy: expected 'auto', 'mirrored'") as raised:
        read_strategy("strategy", value)
    assert advice in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"communication": "grpc"}, "communication: expected 'auto', 'ring' or 'nccl', got 'grpc'"),
        ({"communication": ["ring"]}, "communication: expected 'auto', 'ring' or 'nccl'"),
        ({"unprotected": "yes"}, "unprotected: expected True or False, got 'yes'"),
    ],
)
def test_invalid_settings_are_refused(arguments, message):
    with pytest.raises(InvalidArgument) as raised:
        Mirrored(**arguments)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fetch_every": 0}, "fetch_every: expected an integer of at least 1, got 0"),
        ({"push_every": 2.5}, "push_every: expected an integer of at least 1, got 2.5"),
        ({"rule": "elastic"}, "rule: expected 'downpour' or 'easgd', got 'elastic'"),
        (
            {"rule": "easgd", "fetch_every": 5},
            "push_every: expected 5, as fetch_every, for rule='easgd', got 10; a worker takes",
        ),
        (
            {"moving_rate": 0.5},
            "moving_rate: expected None for rule='downpour', got 0.5; pass rule='easgd'",
        ),
        (
            {"rule": "easgd", "moving_rate": 1},
            "moving_rate: expected a number between 0 and 1, got 1",
        ),
    ],
)
def test_invalid_settings_of_downpour_are_refused(arguments, message):
    with pytest.raises(InvalidArgument) as raised:
        Downpour(**arguments)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every": 0}, "every: expected an integer of at least 1, got 0"),
        ({"weight": 0}, "weight: expected a number above 0, got 0"),
        ({"weight": float("nan")}, "weight: expected a number above 0, got nan"),
        ({"burn_in": -1}, "burn_in: expected an integer of at least 0, got -1"),
    ],
)
def test_invalid_settings_of_codistillation_are_refused(arguments, message):
    with pytest.raises(InvalidArgument) as raised:
        Codistillation(**arguments)
    assert str(raised.value) == message


def test_settings_have_names():
    with pytest.raises(TypeError):
        Mirrored("ring")


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({}, "layout: expected a dict such as {'.*dense.*kernel': (None, 'model')}, or None"),
        ("kernel", "layout: expected a dict such as"),
        ({"(": ("model",)}, "layout: expected regular expressions as its keys, got '('"),
        ({"a": "model"}, "layout['a']: expected one 'model' and None for each other axis"),
        ({"a": (None,)}, "layout['a']: expected one 'model'"),
        ({"a": ("model", "model")}, "layout['a']: expected one 'model'"),
        ({"a": ("batch", "model")}, "layout['a']: expected one 'model'"),
        ({"a": (np.zeros(2), "model")}, "layout['a']: expected one 'model'"),
    ],
)
def test_an_invalid_layout_is_refused(layout, message):
    with pytest.raises(InvalidArgument) as raised:
        Jax(layout=layout)
    assert message in str(raised.value)
