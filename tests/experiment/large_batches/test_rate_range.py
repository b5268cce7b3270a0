"""The range of learning rates with which a model learns."""

import functools

import numpy as np
import pytest
from sklearn.datasets import load_digits

import experiment
from experiment.large_batches.rate_range import RateCurve
from search.errors import InvalidArgument
from spark_jobs.trial.context import TrialContext, entered
from tests.spark_jobs.communicator.gangs import results


def digits():
    x, y = load_digits(return_X_y=True)
    return (x / 16).astype("float32"), y


def build(optimizer=None):
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.SGD(), loss)
    return model


def linear(optimizer, loss="mse"):
    """Return a model with a weight, whose loss is its distance from 1, squared, or another one."""
    import keras

    model = keras.Sequential(
        [keras.layers.Input((1,)), keras.layers.Dense(1, "linear", False, "zeros")]
    )
    model.compile(optimizer, loss)
    return model


ONE = (np.ones((8, 1), "float32"), np.ones(8, "float32"))


def test_a_model_learns_with_the_suggested_rate_and_diverges_above_the_range():
    import keras

    curve = experiment.learning_rate_range(build, digits(), low=1e-3, high=100.0, steps=60)
    assert 0.01 < curve.suggestion < 3
    assert len(curve.losses) < 60  # it has diverged
    model = build(keras.optimizers.SGD(curve.suggestion))
    losses = model.fit(*digits(), epochs=3, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]


def test_the_rates_grow_exponentially_and_each_loss_is_that_before_its_step():
    curve = experiment.learning_rate_range(
        lambda: linear("sgd"), ONE, low=0.001, high=0.1, steps=3, batch_size=8
    )
    assert curve.rates == pytest.approx([0.001, 0.01, 0.1])
    left = [1.0, 1 - 2 * 0.001, (1 - 2 * 0.001) * (1 - 2 * 0.01)]
    assert curve.losses == pytest.approx([distance**2 for distance in left])


def with_schedule():
    import keras

    return keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 9))


def with_accumulation():
    import keras

    return keras.optimizers.SGD(gradient_accumulation_steps=2)


def with_skipped_step():
    """Return an optimizer that skips the first step, whose gradient overflows."""
    import keras

    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=2.0**127)


@pytest.mark.parametrize("make", [with_schedule, with_accumulation, with_skipped_step])
def test_any_optimizers_rate_is_replaced(make):
    curve = experiment.learning_rate_range(
        lambda: linear(make()), ONE, low=0.001, high=0.1, steps=5
    )
    assert curve.rates == pytest.approx(np.geomspace(0.001, 0.1, 5))


@pytest.mark.parametrize("kind", ["dataset", "list"])
def test_batches_start_again_at_their_end(kind):
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(ONE).batch(4)
    data = dataset if kind == "dataset" else list(dataset)
    curve = experiment.learning_rate_range(lambda: linear("sgd"), data, high=0.1, steps=7)
    assert len(curve.losses) == 7


def test_batches_that_end_too_early_are_refused():
    with pytest.raises(InvalidArgument, match="^data: expected batches for all steps, got no more"):
        experiment.learning_rate_range(lambda: linear("sgd"), iter([ONE]), steps=3)


def test_it_ends_at_a_loss_that_is_not_finite():
    x = np.ones((4, 1), "float32")
    batches = [(x, x), (x, x), (x, x * np.nan)]
    curve = experiment.learning_rate_range(lambda: linear("sgd"), batches, steps=9)
    assert len(curve.losses) == 2
    with pytest.raises(InvalidArgument, match="^low: expected a rate whose loss is finite, got 1e"):
        experiment.learning_rate_range(lambda: linear("sgd"), batches[2:], steps=9)


def test_all_workers_get_the_mean_losses_and_end_at_the_same_step(tmp_path):
    """One that ended alone would not take part in the next step, for which the others wait."""
    x = np.ones((4, 1), "float32")

    def call(communicator):
        rank = communicator.rank
        trial = TrialContext(params={}, folder=tmp_path, rank=rank, communicator=communicator)
        batches = [(x, x), (x, x), (x, x * np.nan)] if rank else [(x, 2 * x)]
        with entered(trial):
            return experiment.learning_rate_range(lambda: linear("sgd"), batches, steps=9)

    first, second = results(2, call)
    assert first == second
    assert first.losses == pytest.approx([(4 + 1) / 2] * 2, abs=1e-4)


def test_a_training_with_a_negative_loss_diverges_where_that_rises():
    def shifted(y, predicted):
        import keras

        return keras.ops.mean((y - predicted) ** 2) - 5.0

    build_shifted = functools.partial(linear, "sgd", shifted)
    falling = experiment.learning_rate_range(build_shifted, ONE, low=0.001, high=0.1, steps=5)
    assert len(falling.losses) == 5
    assert max(falling.losses) < 0
    rising = experiment.learning_rate_range(build_shifted, ONE, low=1.1, high=3.0, steps=20)
    assert 1 < len(rising.losses) < 20


def test_the_suggestion_is_a_tenth_of_the_rate_with_the_least_smoothed_loss():
    rates = (0.01, 0.1, 1.0, 10.0)
    curve = RateCurve(rates=rates, losses=(9.0, 3.0, 1.0, 99.0))
    assert curve.smoothed[0] == pytest.approx(9.0)
    assert curve.suggestion == pytest.approx(0.1)
    assert RateCurve(rates=rates, losses=(1.0, 2.0, 3.0, 4.0)).suggestion == 0.01


def test_its_plot_has_the_curve_and_the_suggestion(monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    curve = RateCurve(rates=(0.01, 0.1, 1.0), losses=(3.0, 1.0, 2.0))
    axes = curve.plot()
    try:
        texts = [text.get_text() for text in axes.get_legend().get_texts()]
        assert texts == ["loss of a step", "smoothed", f"suggestion: {curve.suggestion:.2g}"]
        assert axes.get_xscale() == "log"
        assert curve.plot(ax=axes) is axes
    finally:
        pyplot.close(axes.figure)


def make_uncompiled():
    import keras

    return keras.Sequential()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"build": make_uncompiled}, "^build: expected a function that returns a comp"),
        ({"build": None}, "^build: "),
        ({"data": 3}, r"^data: expected a tuple \(x, y\)"),
        ({"data": list(ONE)}, r"^data: expected batches of at most 3 parts.*data=\(x, y\)$"),
        ({"low": 0.0}, "^low: expected a learning rate above 0, got"),
        ({"low": 1.0, "high": 0.1}, "^high: expected a learning rate above low=1.0, got 0.1"),
        ({"steps": 1}, "^steps: expected an integer of at least 2, got 1"),
        ({"batch_size": 0}, "^batch_size: "),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        experiment.learning_rate_range(**({"build": build, "data": ONE} | arguments))
