"""Learning rates of large batches."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import experiment
from search.errors import InvalidArgument
from tests.properties import examples

SCHEDULES = {
    "constant": lambda: 0.1,
    "cosine": lambda: schedules().CosineDecay(0.1, 100),
    "pieces": lambda: schedules().PiecewiseConstantDecay([3, 9], [0.1, 0.01, 0.001]),
    "exponential": lambda: schedules().ExponentialDecay(0.1, 10, 0.5, staircase=True),
}


def schedules():
    import keras

    return keras.optimizers.schedules


def rates(schedule, steps):
    import keras

    return [float(schedule(keras.ops.convert_to_tensor(step, "int64"))) for step in range(steps)]


def test_the_rate_grows_with_the_batch_or_with_its_square_root():
    assert experiment.linear_scaling(0.1, 256, 8192) == pytest.approx(3.2)  # Goyal et al.
    assert experiment.linear_scaling(0.1, 256, 64) == pytest.approx(0.025)
    assert experiment.linear_scaling(0.001, 32, 512, rule="sqrt") == pytest.approx(0.004)
    assert type(experiment.linear_scaling(np.float64(0.1), np.int64(1), 2)) is float


@examples(50)
@given(
    rate=st.floats(1e-6, 10),
    batches=st.lists(st.integers(1, 10**6), min_size=3, max_size=3),
    rule=st.sampled_from(["linear", "sqrt"]),
)
def test_scaling_in_two_steps_is_scaling_in_one(rate, batches, rule):
    first, second, third = batches
    halfway = experiment.linear_scaling(rate, first, second, rule)
    there = experiment.linear_scaling(halfway, second, third, rule)
    assert there == pytest.approx(experiment.linear_scaling(rate, first, third, rule))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1, 1), r"^base_rate: expected a learning rate above 0, got 0\.0"),
        ((math.nan, 1, 1), "^base_rate: "),
        ((0.1, 0, 1), "^base_batch: expected an integer of at least 1, got 0"),
        ((0.1, 1, 2.5), "^batch: "),
        ((0.1, 1, 1, "square"), r"^rule: expected 'linear' or 'sqrt', got 'square'"),
    ],
)
def test_scaling_refuses_what_is_no_rate_or_batch(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        experiment.linear_scaling(*arguments)


def test_the_rate_rises_to_the_schedule_in_equal_steps():
    schedule = experiment.warmed_up(0.5, 4, start=0.1)
    assert rates(schedule, 7) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5])


@pytest.mark.parametrize("name", SCHEDULES)
def test_any_schedule_begins_after_the_warm_up(name):
    schedule = SCHEDULES[name]()
    found = rates(experiment.warmed_up(schedule, 5), 30)
    plain = [schedule] * 25 if isinstance(schedule, float) else rates(schedule, 25)
    assert found[:5] == pytest.approx([plain[0] * step / 5 for step in range(5)])
    assert found[5:] == pytest.approx(plain)


def test_it_warms_up_as_keras_own_schedule_with_a_warm_up():
    import keras

    keras_own = keras.optimizers.schedules.CosineDecay(0.0, 20, warmup_target=0.3, warmup_steps=6)
    ours = experiment.warmed_up(keras.optimizers.schedules.CosineDecay(0.3, 20), 6)
    assert rates(ours, 30) == pytest.approx(rates(keras_own, 30), abs=1e-6)


def test_an_optimizer_trains_by_it():
    import keras

    optimizer = keras.optimizers.SGD(experiment.warmed_up(1.0, 4))
    weight = keras.Variable(0.0)
    for _ in range(5):  # steps of 0, 1/4, 2/4, 3/4, 1
        optimizer.apply([keras.ops.ones(())], [weight])
    assert float(weight) == pytest.approx(-2.5)


@pytest.mark.parametrize("name", SCHEDULES)
def test_its_configuration_makes_an_equal_schedule(name):
    import keras

    schedule = experiment.warmed_up(SCHEDULES[name](), 5, start=0.01)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert rates(again, 20) == rates(schedule, 20)


LOAD = """
import {first}
import {second}
rate = keras.models.load_model({path!r}).optimizer.learning_rate  # that of step 3 of 4
print(f"{{float(rate):.3f}}")
"""


@pytest.mark.parametrize("order", [("experiment", "keras"), ("keras", "experiment")], ids=str)
@pytest.mark.slow
def test_a_saved_model_loads_in_a_process_that_imports_experiment(tmp_path, order):
    import keras

    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    after = keras.optimizers.schedules.CosineDecay(0.4, 100)
    model.compile(keras.optimizers.SGD(experiment.warmed_up(after, 4)), "mse")
    model.fit(np.ones((3, 2)), np.ones(3), batch_size=1, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    first, second = order
    code = LOAD.format(first=first, second=second, path=str(path))
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert loaded.stdout == "0.300\n", loaded.stderr


def test_the_names_of_rates_load_no_keras():
    code = (
        "import sys, experiment; experiment.linear_scaling(0.1, 1, 8); experiment.warmed_up; "
        "print({'keras', 'tensorflow'} & set(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert loaded.stdout == "set()\n", loaded.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.1, 0), "^steps: expected an integer of at least 1, got 0"),
        ((-0.1, 3), "^schedule_or_rate: expected a learning rate above 0, or a LearningRateSched"),
        (("cosine", 3), "^schedule_or_rate: "),
        ((0.1, 3, -1.0), r"^start: expected a learning rate from 0, got -1\.0"),
    ],
)
def test_warming_up_refuses_what_is_no_rate(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        experiment.warmed_up(*arguments)
