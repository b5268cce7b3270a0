"""Trials that end after a number of steps, and those that go on from their checkpoints."""

from __future__ import annotations

import functools
import shutil

import cloudpickle
import pytest

import experiment
from search.trial import Trial
from spark_jobs.messages import Attempt
from spark_jobs.trial.trial_process import Program, evaluate
from tests.spark_jobs.trial.events.reading import scalars


def run(function, folder, max_steps, key=None, *, number=1, rate=0.5):
    program = Program(function=cloudpickle.dumps(function), key=key, direction="min")
    trial = Trial(0, {"rate": rate}, max_steps=max_steps)
    return evaluate(program, Attempt(trial, number), folder)


def loop(rate):
    for epoch in range(20):
        experiment.report(step=epoch, loss=rate / (epoch + 1))
    return {"loss": 0.0}


def test_a_loop_ends_at_the_last_step_with_the_value_that_it_reported(tmp_path):
    outcome = run(loop, tmp_path, 5)
    assert (outcome.status, outcome.value, outcome.step) == ("finished", 0.1, 4)
    assert outcome.objective == "loss"


@pytest.mark.parametrize(("key", "value"), [("accuracy", 4.0), ("loss", 0.1), ("none", None)])
def test_a_step_may_be_reported_in_several_calls(tmp_path, key, value):
    def loop(rate):
        for epoch in range(20):
            experiment.report(step=epoch, loss=rate / (epoch + 1))
            experiment.report(step=epoch, accuracy=epoch)

    outcome = run(loop, tmp_path, 5, key)
    assert outcome.value == value
    assert max(scalars(tmp_path)["loss"])[0] == (4 if value is not None else 5)


@pytest.mark.parametrize("begun", [False, True])
def test_a_loop_that_goes_on_from_a_checkpoint_says_which_epoch_it_reports(tmp_path, begun):
    def loop(rate):
        for _ in range(20):
            experiment.report(loss=rate)

    if begun:
        (tmp_path / "checkpoint").mkdir()
    outcome = run(loop, tmp_path, 5)
    if begun:
        assert outcome.error.kind == "user error"
        assert "report(): expected step=, the epoch from 0, since" in outcome.error.message
    else:
        assert (outcome.status, outcome.step) == ("finished", 4)
    assert run(loop, tmp_path, None).error.kind == "invalid value"  # as it returns None


@pytest.mark.parametrize(("number", "kind"), [(1, "invalid value"), (2, "lost executor")])
def test_an_attempt_that_was_lost_after_its_last_checkpoint_is_no_error_of_the_user(
    tmp_path, number, kind
):
    (tmp_path / "checkpoint").mkdir()
    outcome = run(lambda rate: None, tmp_path, 5, number=number)
    assert (outcome.status, outcome.error.kind) == ("failed", kind)
    assert "the checkpoint that the trial began with has the last epoch" in outcome.error.message


def test_without_a_limit_a_loop_returns(tmp_path):
    outcome = run(loop, tmp_path, None)
    assert (outcome.status, outcome.value, outcome.step) == ("finished", 0.0, 19)


def test_a_function_that_asks_returns(tmp_path):
    outcome = run(lambda rate: {"loss": float(experiment.max_steps())}, tmp_path, 5)
    assert (outcome.status, outcome.value, outcome.step) == ("finished", 5.0, 4)


def test_a_function_that_ignores_the_limit_has_no_step(tmp_path):
    outcome = run(lambda rate: rate, tmp_path, 5)
    assert (outcome.status, outcome.value, outcome.step) == ("finished", 0.5, None)


@pytest.mark.parametrize(
    ("reported", "kind"),
    [({"loss": float("nan")}, "invalid value"), ({"a": 1.0, "b": 2.0}, "ambiguous objective")],
)
def test_a_last_report_that_is_no_value_is_a_failure(tmp_path, reported, kind):
    outcome = run(lambda rate: experiment.report(step=9, **reported), tmp_path, 5)
    assert (outcome.status, outcome.error.kind) == ("failed", kind)


def fit(rate, lost_before=None):
    import keras
    import numpy

    x, y = numpy.random.default_rng(0).random((32, 4)), numpy.arange(32) % 2
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse")
    kept = keras.callbacks.BackupAndRestore(experiment.checkpoint_dir(), delete_checkpoint=False)

    def lose(epoch, logs):
        if epoch == lost_before:
            raise ConnectionError("lost")

    lost = keras.callbacks.LambdaCallback(on_epoch_begin=lose)
    callbacks = [*experiment.keras_callbacks(), kept, lost]
    return model.fit(x, y, epochs=9, callbacks=callbacks, verbose=0, shuffle=False)


def test_an_unchanged_fit_of_keras_goes_on_from_its_checkpoint(tmp_path):
    pytest.importorskip("tensorflow")
    short, long, scratch = (tmp_path / name for name in ("short", "long", "scratch"))
    first = run(fit, short, 3, "loss")
    shutil.copytree(short / "checkpoint", long / "checkpoint")
    second = run(fit, long, 9, "loss")
    whole = run(fit, scratch, 9, "loss")
    assert [o.status for o in (first, second, whole)] == ["finished"] * 3
    assert (first.step, second.step, whole.step) == (2, 8, 8)
    curves = [dict(scalars(folder)["loss"]) for folder in (long, scratch)]
    assert list(curves[0]) == [3, 4, 5, 6, 7, 8]
    assert curves[0] == pytest.approx({step: curves[1][step] for step in curves[0]})


def hand_on(lost, to):
    """Copy what the attempt after a lost one gets of it."""
    to.mkdir()
    shutil.copytree(lost / "checkpoint", to / "checkpoint")
    shutil.copy(lost / "keras-epochs.jsonl", to)


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("losses", [[3], [3, 5], [None]], ids=str)
def test_a_retried_fit_returns_the_best_epoch_of_all_attempts(tmp_path, losses):
    """The rate is so large that the first epochs are the best."""
    pytest.importorskip("tensorflow")
    outcomes = []
    for number, epoch in enumerate([*losses, None], 1):
        train, folder = functools.partial(fit, lost_before=epoch), tmp_path / str(number)
        outcomes.append(run(train, folder, None, "loss", number=number, rate=1.0))
        hand_on(folder, tmp_path / str(number + 1))
    whole, retried = run(fit, tmp_path / "whole", None, "loss", rate=1.0), outcomes.pop()
    assert [outcome.status == "failed" for outcome in outcomes] == [bool(e) for e in losses]
    assert retried.value == pytest.approx(whole.value)
    assert dict(retried.metrics) == pytest.approx(dict(whole.metrics))


def test_a_retried_fit_trains_no_epoch_after_the_last_one(tmp_path):
    """It was lost once it had trained and saved all epochs that it was to train."""
    pytest.importorskip("tensorflow")

    def train(rate):
        history = fit(rate)
        return {
            "loss": min(history.history["loss"]),
            "steps": int(history.model.optimizer.iterations),
        }

    lost = run(train, tmp_path / "lost", 3, "loss", rate=1.0)
    hand_on(tmp_path / "lost", tmp_path / "retried")
    retried = run(train, tmp_path / "retried", 3, "loss", number=2, rate=1.0)
    assert (retried.status, retried.value, retried.step) == ("finished", lost.value, 2)
    assert retried.metrics["steps"] == lost.metrics["steps"] == 3.0


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize(("limit", "lost_before"), [(9, 7), (9, None), (6, None)])
def test_a_retried_fit_that_resumes_from_another_trial_has_all_of_its_epochs(
    tmp_path, limit, lost_before
):
    """It was lost in an epoch, or once it had trained and saved all of them."""
    pytest.importorskip("tensorflow")
    short, whole, lost, retried = (tmp_path / name for name in ("short", "whole", "lost", "again"))
    run(fit, short, 3, "loss", rate=1.0)
    for folder in (whole, lost):
        shutil.copytree(short / "checkpoint", folder / "checkpoint")
    expected = run(fit, whole, limit, "loss", rate=1.0)
    run(functools.partial(fit, lost_before=lost_before), lost, limit, "loss", rate=1.0)
    hand_on(lost, retried)
    outcome = run(fit, retried, limit, "loss", number=2, rate=1.0)
    assert (outcome.status, outcome.step) == ("finished", limit - 1)
    assert outcome.value == pytest.approx(expected.value)


def test_a_retried_fit_without_its_earlier_epochs_trains_one_more(tmp_path):
    """As of a run of the version before: a History without epochs would have no value."""
    pytest.importorskip("tensorflow")
    run(fit, tmp_path / "lost", 3, "loss", rate=1.0)
    hand_on(tmp_path / "lost", tmp_path / "retried")
    (tmp_path / "retried" / "keras-epochs.jsonl").unlink()
    assert run(fit, tmp_path / "retried", 3, "loss", number=2, rate=1.0).status == "finished"
