import msgspec
import numpy as np
import pytest

from search.errors import InvalidArgument
from spark_jobs.strategies.settings import Mirrored, name_of, read_strategy


def test_a_strategy_travels_as_json():
    settings = Mirrored(communication="ring", unprotected=np.True_)
    data = msgspec.json.encode(settings)
    assert msgspec.json.decode(data) == {
        "type": "mirrored",
        "communication": "ring",
        "unprotected": True,
    }
    assert msgspec.json.decode(data, type=Mirrored) == settings


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


def test_settings_have_names():
    with pytest.raises(TypeError):
        Mirrored("ring")
