"""The time of a step is read off the ends of steps; the workers and their data off `fit`."""

from __future__ import annotations

import numpy as np
import pytest

import experiment
from experiment.planning.measured_steps import FirstSteps, step_seconds
from search.errors import InvalidArgument


def test_the_first_steps_and_the_pauses_between_epochs_do_not_count():
    # Tracing takes 5 s, an epoch has four steps of 1 s, and what is between epochs takes 9 s.
    ends = [(5.0, 0), (6.0, 1), (7.0, 2), (8.0, 3), (17.0, 0), (18.0, 1), (19.0, 2), (20.0, 3)]
    assert step_seconds(ends) == 1


def test_executions_of_several_steps_count_for_each_step():
    ends = [(4.0 + 2 * n, 4 * n + 3) for n in range(8)]
    assert step_seconds(ends) == 0.5


@pytest.mark.parametrize("ends", [[], [(1.0, 0)], [(float(n), 0) for n in range(20)]])
def test_too_few_steps_in_an_epoch_tell_nothing(ends):
    assert step_seconds(ends) is None


def test_the_signature_and_the_name_are_those_of_the_train_function():
    def train(units, rate=0.1):
        return units * rate

    measured = FirstSteps(train, 5)
    assert measured.__name__ == "train"
    assert list(measured.__signature__.parameters) == ["units", "rate"]


def test_a_function_without_fit_is_refused_with_a_reason():
    called = []

    def train(x):
        called.append(x)

    with pytest.raises(InvalidArgument, match=r"model\.fit has at least 5 batches"):
        FirstSteps(train, 5)(x=3)
    assert called == [3]


def keras_optimizers():
    import keras

    return keras.optimizers


def cosine_with_a_warm_up():
    schedules = keras_optimizers().schedules
    return schedules.CosineDecay(0.0, 20, warmup_target=0.25, warmup_steps=10)


def half_of_each_step():
    class Half(keras_optimizers().schedules.LearningRateSchedule):
        def __call__(self, step):
            return step / 2

    return Half()


@pytest.mark.parametrize(
    ("make", "rate", "adaptive"),
    [
        (lambda optimizers: optimizers.SGD(0.25, momentum=0.5), 0.25, 0),
        (lambda optimizers: optimizers.Adam(0.25), 0.25, 1),
        (lambda optimizers: optimizers.Lamb(0.25), 0.25, 1),
        (lambda optimizers: optimizers.LossScaleOptimizer(optimizers.SGD(0.25)), 0.25, 0),
        (lambda optimizers: optimizers.LossScaleOptimizer(optimizers.Adam(0.25)), 0.25, 1),
        (lambda optimizers: optimizers.SGD(experiment.warmed_up(0.25, 100)), 0.25, 0),
        (lambda optimizers: optimizers.Adam(experiment.warmed_up(0.25, 9, start=0.125)), 0.25, 1),
        (lambda optimizers: optimizers.SGD(cosine_with_a_warm_up()), 0.25, 0),
        (lambda optimizers: optimizers.SGD(half_of_each_step()), None, 0),  # 0 at first
    ],
    ids=[
        "SGD",
        "Adam",
        "Lamb",
        "SGD of a scaled loss",
        "Adam of a scaled loss",
        "warmed up",
        "warmed up from above 0",
        "warmed up by Keras",
        "warmed up by an own schedule",
    ],
)
def test_the_learning_rate_is_that_after_the_warm_up_and_scales_by_the_optimizer(
    make, rate, adaptive
):
    def train():
        import keras

        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile(make(keras.optimizers), "mse", run_eagerly=True)
        model.fit(np.ones((9, 1)), np.ones(9), batch_size=1, verbose=0)

    found = FirstSteps(train, 5)()
    assert found.get("learning_rate") == rate
    assert found["adaptive"] == adaptive


VALIDATION = np.ones((1, 1)), np.ones(1)


@pytest.mark.parametrize(
    ("arguments", "batch"),
    [
        ({}, 32),
        ({"steps_per_epoch": 9}, 23),
        ({"steps_per_epoch": 9, "validation_split": 0.25}, 17),
        ({"steps_per_epoch": 9, "validation_split": None}, 23),
        ({"steps_per_epoch": 9, "validation_split": 0.25, "validation_data": VALIDATION}, 23),
        ({"steps_per_epoch": 9, "batch_size": 7}, 7),
    ],
    ids=str,
)
def test_the_batch_of_arrays_is_the_one_that_keras_makes_of_them(arguments, batch):
    def train():
        import keras

        class Batches(keras.Sequential):
            def train_step(self, data):
                seen.append(int(data[0].shape[0]))
                return super().train_step(data)

        model = Batches([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=True)
        model.fit(np.ones((200, 1)), np.ones(200), verbose=0, **arguments)

    seen = []
    assert FirstSteps(train, 5)()["batch_size"] == seen[0] == batch


def batches_of_keras():
    import keras

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 9

        def __getitem__(self, index):
            return np.ones((3, 1)), np.ones(3)

    return Batches()


def batches_of_tensorflow(size):
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices((np.ones((27, 1)), np.ones(27)))
    return data.batch(size)


def batches_of_a_generator():
    while True:
        yield np.ones((3, 1)), np.ones(3)


@pytest.mark.parametrize(
    ("make", "batch"),
    [
        (batches_of_keras, 3),
        (lambda: batches_of_tensorflow(3), 3),
        (batches_of_a_generator, None),  # to read one would take it from the training
    ],
    ids=["PyDataset", "tf.data", "generator"],
)
def test_the_batch_of_data_that_makes_batches_is_that_of_the_first(make, batch):
    def train():
        import keras

        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=True)
        model.fit(make(), steps_per_epoch=9, shuffle=False, verbose=0)

    assert FirstSteps(train, 5)().get("batch_size") == batch


def test_a_fit_of_too_few_steps_trains_to_its_end_and_is_refused():
    ended = []

    def train():
        import keras

        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=True)
        model.fit(np.ones((2, 1)), np.ones(2), batch_size=1, verbose=0)
        ended.append(model)

    with pytest.raises(InvalidArgument, match=r"model\.fit has at least 5 batches"):
        FirstSteps(train, 5)()
    assert len(ended) == 1


def test_a_model_with_optimizers_of_its_own_tells_no_learning_rate():
    def train():
        import keras

        class Own(keras.Sequential):
            def train_step(self, data):
                return {"loss": 0.0}

        model = Own([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile(None, run_eagerly=True)
        model.fit(np.ones((9, 1)), np.ones(9), batch_size=1, verbose=0)

    found = FirstSteps(train, 5)()
    assert "learning_rate" not in found
    assert found["batch_size"] == 1
