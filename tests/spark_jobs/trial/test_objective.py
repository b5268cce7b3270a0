import fractions
from types import SimpleNamespace

import numpy as np
import pytest

from search.direction import Direction, Directions
from search.trial import Outcome
from spark_jobs.trial.objective import (
    AmbiguousObjective,
    EmptyHistory,
    Objective,
    Objectives,
    UnusableReturn,
    number,
    objective_of,
)

UNNAMED = Objective(None, Direction.MAX)
ACCURACY = Objective("accuracy", Direction.MAX)
BOTH = Objectives(Directions({"accuracy": Direction.MAX, "latency": Direction.MIN}))


@pytest.mark.fault(11)
@pytest.mark.parametrize(
    "value",
    [3, 3.0, np.float32(3), np.int8(3), np.uint64(3), np.array(3.0), fractions.Fraction(3)],
    ids=lambda value: type(value).__name__,
)
def test_numeric_scalars_are_accepted(value):
    assert UNNAMED.read(value) == ("metric", 3.0, {"metric": 3.0})


@pytest.mark.fault(11)
@pytest.mark.parametrize(
    "value",
    [
        None,
        "0.5",
        b"0.5",
        [0.5],
        (0.5,),
        True,
        np.bool_(True),
        1j,
        np.array([1.0]),
        object(),
        SimpleNamespace(_mask=None),
        "x" * 9,
    ],
    ids=lambda value: type(value).__name__,
)
def test_everything_else_is_refused_with_its_type(value):
    with pytest.raises(UnusableReturn, match=f"got {type(value).__name__}.*want float"):
        UNNAMED.read(value)


@pytest.mark.parametrize(
    "value", [np.ma.masked, np.ma.masked_invalid([np.nan]).mean(), np.ma.array(1.0, mask=True)]
)
def test_a_masked_value_is_no_number(value):
    with pytest.raises(UnusableReturn, match="got a masked value of numpy, want float"):
        UNNAMED.read(value)
    assert UNNAMED.read(np.ma.array(1.5, mask=False))[1] == 1.5


@pytest.mark.fault(11)
@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "got NoneType (None), want float; the train function returned None, is there a `re"),
        ("0.9", "got str ('0.9'), want float; return the number itself, as by float()"),
        ([0.3, 0.9], "got list ([0.3, 0.9]), want float; return one number of it, or of model.eva"),
        (
            {"accuracy": [0.3, 0.9]},
            "under the key 'accuracy': got list ([0.3, 0.9]), want float; return the History that "
            "fit() returned, not its .history, or one number of it",
        ),
        (
            {"acuracy": 0.3},
            "want the key 'accuracy', got the keys 'acuracy'; optimization_key= names none of "
            "them, did you mean 'acuracy'?",
        ),
        ({"f1": 1}, "want the key 'accuracy', got the keys 'f1'; optimization_key= names none of"),
    ],
)
def test_common_wrong_return_values_get_a_hint(returned, said):
    with pytest.raises(UnusableReturn) as caught:
        ACCURACY.read(returned)
    assert str(caught.value).startswith(said)


def test_none_gets_a_hint_with_several_objectives_too():
    with pytest.raises(UnusableReturn, match=r"returned None, is there a `return`\?"):
        BOTH.outcome(0, None)


def test_tensors_without_dimensions_are_numbers():
    tensorflow = pytest.importorskip("tensorflow")
    assert number(tensorflow.constant(2.5)) == 2.5
    assert number(tensorflow.constant(2.5, dtype=tensorflow.bfloat16)) == 2.5
    assert number(tensorflow.Variable(3)) == 3.0
    for refused in (
        tensorflow.constant([1.0]),
        tensorflow.constant("x"),
        tensorflow.constant(True),
    ):
        with pytest.raises(UnusableReturn):
            number(refused)


@pytest.mark.fault(10)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), np.float32("nan")])
def test_an_objective_that_is_not_finite_is_refused_with_its_text(value):
    with pytest.raises(UnusableReturn, match=str(float(value))):
        UNNAMED.read(value)


def test_an_integer_beyond_floats_is_refused():
    with pytest.raises(UnusableReturn, match="want float"):
        UNNAMED.read(10**400)


def test_a_lone_number_bears_the_users_name():
    assert ACCURACY.read(0.5)[0] == "accuracy"


def test_a_single_key_needs_no_name():
    assert UNNAMED.read({"loss": 0.5}) == ("loss", 0.5, {"loss": 0.5})


@pytest.mark.fault(12)
def test_extra_metrics_are_kept_even_when_not_finite():
    name, value, metrics = ACCURACY.read({"loss": float("inf"), "accuracy": np.float64(0.5)})
    assert (name, value, metrics) == ("accuracy", 0.5, {"loss": float("inf"), "accuracy": 0.5})


def test_several_keys_without_a_name_are_ambiguous():
    with pytest.raises(AmbiguousObjective, match="optimization_key='loss'"):
        UNNAMED.read({"loss": 1.0, "accuracy": 0.5})


@pytest.mark.fault(12)
def test_a_missing_key_is_an_error_with_expected_and_got():
    with pytest.raises(
        UnusableReturn, match=r"want the key 'accuracy', got the keys 'acc', 'loss'"
    ):
        ACCURACY.read({"acc": 1.0, "loss": 0.5})


@pytest.mark.fault(12)
@pytest.mark.parametrize(
    "returned", [{}, {"accuracy": {"value": 1}}, {1: 0.5}, {"a" * 201: 1.0}, {"\udcff": 1.0}]
)
def test_empty_nested_and_unnamed_dicts_are_refused(returned):
    with pytest.raises(UnusableReturn):
        UNNAMED.read(returned)


def test_a_value_that_is_no_number_names_its_key():
    with pytest.raises(UnusableReturn, match="'path'.*got str"):
        ACCURACY.read({"accuracy": 1.0, "path": "/tmp/model"})


def history(**logs):
    return SimpleNamespace(history=logs, epoch=list(range(3)))


def test_the_best_epoch_of_a_history_counts():
    curves = history(accuracy=[0.1, 0.9, float("nan")], loss=[3.0, 2.0, 1.0])
    assert ACCURACY.read(curves) == ("accuracy", 0.9, {"accuracy": 0.9, "loss": 2.0})
    assert Objective("loss", Direction.MIN).read(curves)[1] == 1.0


def test_a_history_with_one_curve_needs_no_name():
    assert Objective(None, Direction.MIN).read(history(loss=[3.0, 1.0, 2.0]))[1] == 1.0


def test_a_history_without_a_number_is_refused():
    with pytest.raises(UnusableReturn, match="no number"):
        Objective("loss", Direction.MIN).read(history(loss=[float("nan")], other=[1.0]))
    with pytest.raises(AmbiguousObjective):
        UNNAMED.read(history(loss=[1.0], accuracy=[1.0]))


@pytest.mark.parametrize("objective", [UNNAMED, ACCURACY])
def test_a_history_without_an_epoch_says_nothing_about_the_objectives_name(objective):
    with pytest.raises(EmptyHistory, match="^got a History without epochs"):
        objective.read(SimpleNamespace(history={}, epoch=[]))


def test_metrics_of_a_history_are_those_of_the_best_epoch_alone():
    """As of validation_freq=2: which epochs the shorter curves have is unknown."""
    curves = history(loss=[4.0, 3.0, 2.0, 1.0], val_loss=[5.0, 2.0], val_error=[0.5, 0.2])
    at_best = {"val_loss": 2.0, "val_error": 0.2}
    assert Objective("val_loss", Direction.MIN).read(curves) == ("val_loss", 2.0, at_best)
    assert Objective("loss", Direction.MIN).read(curves) == ("loss", 1.0, {"loss": 1.0})


def test_curves_of_a_history_that_have_no_numbers_are_left_out():
    curves = history(accuracy=[0.1, 0.9], f1_score=[np.ones(3), np.ones(3)])
    assert ACCURACY.read(curves) == ("accuracy", 0.9, {"accuracy": 0.9})


def test_a_keras_history_is_recognised():
    keras = pytest.importorskip("keras")
    real = keras.callbacks.History()
    real.history, real.epoch = {"loss": [0.5]}, [0]
    assert UNNAMED.read(real) == ("loss", 0.5, {"loss": 0.5})


# Several objectives


def test_one_objective_is_the_value_of_an_outcome():
    returned = {"accuracy": 0.5, "loss": np.float32(2)}
    metrics = {"accuracy": 0.5, "loss": 2.0}
    assert ACCURACY.outcome(3, returned) == Outcome(3, "finished", 0.5, "accuracy", metrics)


def test_several_objectives_are_the_values_and_all_numbers_metrics():
    returned = {"loss": float("nan"), "latency": np.float32(2), "accuracy": np.array(0.5)}
    outcome = BOTH.outcome(3, returned)
    assert (outcome.trial, outcome.status) == (3, "finished")
    assert (outcome.value, outcome.objective) == (None, None)
    assert dict(outcome.values) == {"accuracy": 0.5, "latency": 2.0}
    assert list(outcome.values) == ["accuracy", "latency"]
    assert list(outcome.metrics) == ["loss", "latency", "accuracy"]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            {"accuracy": 0.5},
            "^no 'latency' among the keys 'accuracy'; direction= names it as an objective$",
        ),
        (
            {"latency": 0.5, "acuracy": 1.0},
            "^no 'accuracy' among the keys 'latency', 'acuracy'; direction= names it as an "
            r"objective, did you mean 'acuracy'\?$",
        ),
        ({}, "^no 'accuracy' among the keys none; direction= names it as an objective$"),
        ({"accuracy": 0.5, "latency": float("nan")}, "the objective 'latency' is nan"),
        ({"accuracy": float("-inf"), "latency": 1}, "the objective 'accuracy' is -inf"),
        ({"accuracy": 0.5, "latency": "1 ms"}, "under the key 'latency': got str"),
        (0.5, r"got float \(0.5\), want a dict with the keys 'accuracy', 'latency'"),
        (None, r"got NoneType \(None\), want a dict with the keys"),
        (SimpleNamespace(history={"accuracy": [1]}, epoch=[0]), "got SimpleNamespace"),
    ],
)
def test_a_missing_objective_is_named(returned, message):
    with pytest.raises(UnusableReturn, match=message):
        BOTH.outcome(0, returned)


def test_with_several_objectives_no_report_is_the_objectives():
    assert BOTH.reported({"accuracy": 0.5}) is None
    assert BOTH.reported({"accuracy": 0.5, "latency": 1.0}) is None


def test_the_direction_decides_how_a_value_is_read():
    assert objective_of("loss", Direction.MIN) == Objective("loss", Direction.MIN)
    assert objective_of(None, BOTH.directions) == BOTH
