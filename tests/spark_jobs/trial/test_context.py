import contextvars
import errno
import math
import os
import stat
import subprocess
import sys

import numpy as np
import pytest

import experiment
from spark_jobs.messages import Report, as_json
from spark_jobs.trial.context import StepsDone, TrialContext, TrialStopped, entered
from spark_jobs.trial.events.event_file import EventFile
from tests.spark_jobs.trial.events.reading import scalars


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


@pytest.mark.parametrize("step", [-1, 2**53 + 1, 2**70, np.int64(-3)])
def test_a_step_that_no_curve_can_have_is_refused(trial, step):
    with pytest.raises(ValueError, match=r"^report\(step=\.\.\.\): expected a step from 0 to "):
        experiment.report(step=step, loss=1.0)


def test_reports_are_passed_on(recorded):
    experiment.report(step=5, loss=np.float32(0.5), accuracy=1)
    experiment.report(loss=math.nan)
    assert as_json(recorded.reports) == [
        {"step": 5, "metrics": {"loss": 0.5, "accuracy": 1.0}},
        {"step": 0, "metrics": {"loss": "nan"}},
    ]
    last = {"loss": "nan", "accuracy": 1.0}  # each as it was last
    assert as_json(recorded.context.last) == {"step": 0, "metrics": last}


def test_a_large_report_is_passed_on_in_parts(recorded):
    """As of a model with several outputs, whose metrics exceed one message."""
    metrics = {f"val_head_{n}_sparse_categorical_accuracy": n / 300 for n in range(300)}
    experiment.report(step=5, **metrics)
    assert {report.step for report in recorded.reports} == {5}
    passed_on = {}
    for report in recorded.reports:
        passed_on |= report.metrics
    assert passed_on == metrics
    assert recorded.context.last == Report(5, metrics)


def test_a_report_on_a_full_disk_loses_its_point_but_is_passed_on(recorded, monkeypatch):
    def fail(events, values, step):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(EventFile, "scalars", fail)
        with pytest.warns(UserWarning, match="a point is missing in the curves: .*No space left"):
            experiment.report(loss=1.0)
    experiment.report(loss=2.0)
    assert recorded.reports == [Report(0, {"loss": 1.0}), Report(1, {"loss": 2.0})]
    assert scalars(recorded.context.folder) == {"loss": [(1, 2.0)]}


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
