"""Reports of `model.fit` in Keras."""

import types

import numpy as np
import pytest

import experiment
from tests.spark_jobs.trial.events.reading import scalars


def test_the_callbacks_report_each_epoch(trial):
    keras = pytest.importorskip("keras")
    callbacks = experiment.keras_callbacks()
    assert all(isinstance(callback, keras.callbacks.Callback) for callback in callbacks)
    for epoch in range(3):
        for callback in callbacks:
            callback.on_epoch_end(epoch, {"loss": 1.0 / (epoch + 1), "val_loss": 2.0})
    assert [step for step, _ in scalars(trial)["loss"]] == [0, 1, 2]
    assert len(scalars(trial)["val_loss"]) == 3


def test_the_callbacks_leave_out_what_is_no_number_and_say_so_once(trial):
    pytest.importorskip("keras")
    (callback,) = experiment.keras_callbacks()
    logs = {"loss": 1.0, "f1_score": np.ones(3), "note": "x"}  # as of F1Score(average=None)
    with pytest.warns(UserWarning, match="'f1_score', 'note'"):
        callback.on_epoch_end(0, logs)
    callback.on_epoch_end(1, logs)  # a second warning would be an error
    assert scalars(trial) == {"loss": [(0, 1.0), (1, 1.0)]}


def test_the_callbacks_stop_the_fit_instead(recorded):
    pytest.importorskip("keras")
    (callback,) = experiment.keras_callbacks()
    callback.set_model(types.SimpleNamespace(stop_training=False))
    callback.on_epoch_end(0, {"loss": 1.0})
    assert not callback.model.stop_training
    recorded.link.reason = "too bad"
    callback.on_epoch_end(1, {"loss": 2.0})
    assert callback.model.stop_training
    assert recorded.context.stopped == "too bad"
    experiment.report(step=2, test=0.5)  # what is said after the fit is not cut short
    assert [report.step for report in recorded.reports] == [0, 1, 2]


def test_the_callbacks_end_the_fit_after_the_last_epoch(recorded):
    pytest.importorskip("keras")
    recorded.context.max_steps = 9
    (callback,) = experiment.keras_callbacks()
    callback.set_model(types.SimpleNamespace(stop_training=False))
    for epoch in range(3, 9):  # a fit that resumes from a checkpoint
        assert not callback.model.stop_training
        callback.on_epoch_end(epoch, {"loss": 1.0})
    assert callback.model.stop_training
    assert recorded.context.stopped == ""
    experiment.report(step=9, test=0.5)  # what is said after the fit is not cut short


def test_the_epochs_of_several_fits_are_one_curve(recorded):
    pytest.importorskip("keras")
    for _ in range(2):
        (callback,) = experiment.keras_callbacks()
        callback.set_model(types.SimpleNamespace(stop_training=False))
        for epoch in range(2):
            callback.on_epoch_end(epoch, {"loss": 1.0})
    callback.on_epoch_end(7, {"loss": 1.0})  # of a fit that says where it begins
    assert [report.step for report in recorded.reports] == [0, 1, 2, 3, 7]
