import contextvars
import math
import os
import subprocess
import sys

import pytest

import experiment
from spark_jobs.context import TrialContext, entered
from tests.spark_jobs_tests.test_events import scalars


@pytest.fixture
def trial(tmp_path):
    with entered(TrialContext({"x": 1, "shape": (2, 3)}, tmp_path)):
        yield tmp_path


def test_a_trial_sees_its_folder_and_parameters(trial):
    assert experiment.logdir() == str(trial)
    assert experiment.params() == {"x": 1, "shape": (2, 3)}


def test_changing_the_parameters_changes_a_copy(trial):
    experiment.params()["x"] = 2
    assert experiment.params()["x"] == 1


def test_reports_become_curves_with_steps_given_or_counted(trial):
    experiment.report(step=5, loss=1.0)
    experiment.report(loss=2.0)
    experiment.report(loss=3.0, other=math.inf)
    assert scalars(trial) == {"loss": [(5, 1.0), (0, 2.0), (1, 3.0)], "other": [(1, math.inf)]}


@pytest.mark.parametrize(
    "bad", [{"loss": "x"}, {"loss": None}, {"loss": [1.0]}, {"step": 0.5}, {"step": True}]
)
def test_a_bad_report_is_refused_inside_and_outside(trial, bad):
    with pytest.raises(ValueError, match="report"):
        experiment.report(**bad)
    with pytest.raises(ValueError, match="report"):
        contextvars.Context().run(lambda: experiment.report(**bad))


def test_the_callbacks_report_each_epoch(trial):
    keras = pytest.importorskip("keras")
    callbacks = experiment.keras_callbacks()
    assert all(isinstance(callback, keras.callbacks.Callback) for callback in callbacks)
    for epoch in range(3):
        for callback in callbacks:
            callback.on_epoch_end(epoch, {"loss": 1.0 / (epoch + 1), "val_loss": 2.0})
    assert [step for step, _ in scalars(trial)["loss"]] == [0, 1, 2]
    assert len(scalars(trial)["val_loss"]) == 3


def test_all_of_it_is_harmless_outside_of_a_trial(tmp_path):
    code = """
import os, experiment
folder = experiment.logdir()
assert os.path.isdir(folder) and experiment.logdir() == folder
assert experiment.params() == {}
experiment.report(step=1, loss=0.5)
assert os.listdir(folder) == []
os.rmdir(folder)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
