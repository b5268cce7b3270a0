import contextvars
import math
import os
import stat
import subprocess
import sys
import types

import numpy as np
import pytest

import experiment
from spark_jobs.messages import Report, as_json
from spark_jobs.trial.context import StepsDone, TrialContext, TrialStopped, entered
from spark_jobs.trial.link import DirectLink
from tests.spark_jobs.trial.events.test_event_file import scalars


@pytest.fixture
def trial(tmp_path):
    with entered(TrialContext(params={"x": 1, "shape": (2, 3)}, folder=tmp_path)):
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


@pytest.mark.parametrize("step", [math.inf, -math.inf, math.nan, "1", [1], np.array([1, 2]), 1j])
def test_a_step_that_is_no_integer_is_refused_by_name(trial, step):
    with pytest.raises(ValueError, match=r"^report\(step=\.\.\.\): expected an integer, got "):
        experiment.report(step=step, loss=1.0)


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


class Recorded:
    """A trial's context, and its messages from and to the supervisor."""

    def __init__(self, folder):
        self.reports = []
        self.link = DirectLink(self.reports.append)
        self.context = TrialContext(params={"x": 1}, folder=folder, link=self.link)


@pytest.fixture
def recorded(tmp_path):
    recorded = Recorded(tmp_path)
    with entered(recorded.context):
        yield recorded


def test_reports_are_passed_on(recorded):
    experiment.report(step=5, loss=np.float32(0.5), accuracy=1)
    experiment.report(loss=math.nan)
    assert as_json(recorded.reports) == [
        {"step": 5, "metrics": {"loss": 0.5, "accuracy": 1.0}},
        {"step": 0, "metrics": {"loss": "nan"}},
    ]
    last = {"loss": "nan", "accuracy": 1.0}  # each as it was last
    assert as_json(recorded.context.last) == {"step": 0, "metrics": last}


def test_a_refused_report_is_not_passed_on_and_counts_for_nothing(recorded):
    with pytest.raises(ValueError, match="loss"):
        experiment.report(loss="x")
    experiment.report(loss=1.0)
    assert recorded.reports == [Report(0, {"loss": 1.0})]


def test_a_stop_is_raised_by_the_next_report_after_that_was_passed_on(recorded):
    experiment.report(loss=1.0)
    recorded.link.reason = "step 0: too bad"
    with pytest.raises(TrialStopped, match="step 0: too bad"):
        experiment.report(loss=2.0)
    assert [report.metrics["loss"] for report in recorded.reports] == [1.0, 2.0]
    assert recorded.context.stopped == "step 0: too bad"


def test_a_stop_is_raised_once_so_that_a_trial_can_report_its_end(recorded):
    recorded.link.reason = "too bad"
    with pytest.raises(TrialStopped):
        experiment.report(loss=1.0)
    experiment.report(loss=2.0)
    assert len(recorded.reports) == 2


def test_a_stop_is_no_exception_that_a_train_function_would_catch():
    assert experiment.TrialStopped is TrialStopped
    assert issubclass(TrialStopped, BaseException)
    assert not issubclass(TrialStopped, Exception)


def test_nothing_stops_the_next_trial_of_the_process(recorded, tmp_path):
    recorded.link.reason = "too bad"
    with pytest.raises(TrialStopped):
        experiment.report(loss=1.0)
    with entered(TrialContext(params={}, folder=tmp_path)):
        experiment.report(loss=1.0)


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


def test_the_report_of_the_last_step_ends_the_trial(recorded):
    recorded.context.max_steps = 3
    experiment.report(step=0, loss=3.0)
    experiment.report(step=1, loss=2.0)
    with pytest.raises(StepsDone, match="step 2 was the last one"):
        experiment.report(step=2, loss=1.0)
    assert [report.step for report in recorded.reports] == [0, 1, 2]
    assert recorded.context.stopped == ""


def test_a_train_function_that_asks_for_its_steps_ends_by_itself(recorded):
    recorded.context.max_steps = 3
    assert recorded.context.step is None
    assert experiment.max_steps() == 3
    assert recorded.context.step == 2  # it need not report
    for step in range(5):
        experiment.report(step=step, loss=1.0)
    assert recorded.context.step == 4


def test_without_a_limit_no_step_is_the_last(recorded):
    assert experiment.max_steps() is None
    experiment.report(step=10_000, loss=1.0)
    assert recorded.context.step == 10_000


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


def test_checkpoints_are_kept_in_the_trials_folder(trial):
    folder = experiment.checkpoint_dir()
    assert folder == str(trial / "checkpoint")
    assert os.listdir(folder) == []
    (trial / "checkpoint" / "model.keras").touch()
    assert os.listdir(experiment.checkpoint_dir()) == ["model.keras"]
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


def test_a_checkpoint_that_was_handed_on_is_there(trial):
    (trial / "checkpoint").mkdir()
    (trial / "checkpoint" / "model.keras").touch()
    assert os.listdir(experiment.checkpoint_dir()) == ["model.keras"]


def test_every_call_is_harmless_outside_of_a_trial(tmp_path):
    code = """
import os, experiment
folder = experiment.logdir()
assert os.path.isdir(folder) and experiment.logdir() == folder
assert experiment.params() == {}
assert experiment.max_steps() is None
experiment.report(step=1, loss=0.5)
assert os.listdir(folder) == []
checkpoints = experiment.checkpoint_dir()
assert os.listdir(checkpoints) == [] and experiment.checkpoint_dir() == checkpoints
os.rmdir(checkpoints)
os.rmdir(folder)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_the_epochs_of_several_fits_are_one_curve(recorded):
    pytest.importorskip("keras")
    for _ in range(2):
        (callback,) = experiment.keras_callbacks()
        callback.set_model(types.SimpleNamespace(stop_training=False))
        for epoch in range(2):
            callback.on_epoch_end(epoch, {"loss": 1.0})
    callback.on_epoch_end(7, {"loss": 1.0})  # of a fit that says where it begins
    assert [report.step for report in recorded.reports] == [0, 1, 2, 3, 7]


def test_a_metric_whose_name_utf8_cannot_hold_is_refused_by_name(recorded):
    with pytest.raises(ValueError, match=r"report\(\): .* got '\\ud800'"):
        experiment.report(**{"\ud800": 1.0})


@pytest.mark.parametrize(
    ("worker", "part"),
    [
        ({"rank": 1, "workers": 2}, [1, 3]),
        ({"rank": 1, "workers": 2, "divides_data": True}, [0, 1, 2, 3, 4]),
        ({}, [0, 1, 2, 3, 4]),
    ],
)
def test_a_worker_gets_its_part_of_data_unless_its_strategy_divides_it(tmp_path, worker, part):
    assert experiment.shard([0, 1, 2, 3, 4]) == [0, 1, 2, 3, 4]
    with entered(TrialContext(params={}, folder=tmp_path, **worker)):
        assert experiment.shard([0, 1, 2, 3, 4]) == part


def test_one_worker_is_the_first_of_one_inside_and_outside(tmp_path):
    def place():
        return experiment.rank(), experiment.world_size()

    assert place() == (0, 1)
    with entered(TrialContext(params={}, folder=tmp_path)):
        assert place() == (0, 1)
    with entered(TrialContext(params={}, folder=tmp_path, rank=1, workers=2)):
        assert place() == (1, 2)
    assert place() == (0, 1)


@pytest.mark.parametrize("rank", [0, 1])
def test_all_workers_of_a_trial_end_at_its_last_step(tmp_path, rank):
    context = TrialContext(params={}, folder=tmp_path, rank=rank, workers=2, max_steps=3)
    with entered(context):
        experiment.report(loss=1.0)
        experiment.report(loss=1.0)
        with pytest.raises(StepsDone):
            experiment.report(loss=1.0)
    assert (context.last is None) == bool(rank)
