"""Trials that call the train function several times."""

from __future__ import annotations

import os
from pathlib import Path

import cloudpickle
import pytest

import experiment
from search.trial import Trial
from spark_jobs.messages import Attempt
from spark_jobs.trial.link import NoLink
from spark_jobs.trial.trial_process import Program, evaluate
from tests.spark_jobs.trial.test_event_file import scalars


class Recorded(NoLink):
    """Keeps the reports, and stops the trial after some of them."""

    def __init__(self, after=99):
        self.reports, self._after = [], after

    def send(self, report):
        self.reports.append((report.step, dict(report.metrics)))

    def stop(self):
        return "step 1: worse" if len(self.reports) >= self._after else ""


def run(function, folder, link=None, repeats=4, key=None, direction="max"):
    program = Program(
        function=cloudpickle.dumps(function), key=key, direction=direction, repeats=repeats
    )
    return evaluate(program, Attempt(Trial(0, {"x": 1.0})), folder, link or Recorded())


def test_the_value_is_the_mean_and_each_call_is_a_step(tmp_path):
    link = Recorded()
    outcome = run(lambda x: x + experiment.repeat(), tmp_path, link)
    assert (outcome.status, outcome.value, outcome.step) == ("finished", 2.5, 3)
    assert outcome.metrics == {"metric": 2.5}
    assert link.reports == [(n, {"metric": 1.0 + n}) for n in range(4)]


def test_a_trial_that_is_stopped_makes_no_further_call(tmp_path):
    link = Recorded(after=2)
    outcome = run(lambda x: x + experiment.repeat(), tmp_path, link)
    assert (outcome.status, outcome.value, outcome.step) == ("stopped", 1.5, 1)
    assert outcome.reason == "step 1: worse"


def test_a_trial_that_is_to_stop_after_its_last_call_has_finished(tmp_path):
    assert run(lambda x: x, tmp_path, Recorded(after=4)).status == "finished"


def test_of_several_metrics_the_objective_is_reported(tmp_path):
    link = Recorded()

    def train(x):
        return {"loss": x, "accuracy": float(experiment.repeat())}

    outcome = run(train, tmp_path, link, key="accuracy")
    assert link.reports[3] == (3, {"accuracy": 3.0})
    assert outcome.metrics == {"loss": 1.0, "accuracy": 1.5}


def test_several_objectives_have_means_and_no_reports(tmp_path):
    link = Recorded()
    directions = {"a": "max", "b": "min"}
    outcome = run(
        lambda x: {"a": x, "b": experiment.repeat()}, tmp_path, link, direction=directions
    )
    assert outcome.values == {"a": 1.0, "b": 1.5}
    assert link.reports == []


def test_the_curves_of_all_repeats_follow_each_other_and_have_folders_of_their_own(tmp_path):
    link = Recorded()

    def train(x):
        Path(experiment.checkpoint_dir(), "file").touch()
        for step in range(3):
            experiment.report(step=step, loss=10.0 * experiment.repeat() + step)
        return x

    run(train, tmp_path, link, repeats=2)
    assert scalars(tmp_path)["loss"] == [(0, 0), (1, 1), (2, 2), (3, 10), (4, 11), (5, 12)]
    assert sorted(os.listdir(tmp_path / "checkpoint")) == ["repeat-0", "repeat-1"]
    assert [step for step, _ in link.reports] == [0, 1]


def test_a_failure_in_any_repeat_is_the_trials(tmp_path):
    def train(x):
        if experiment.repeat() == 2:
            raise ValueError("no")
        return x

    assert run(train, tmp_path).error.message == "ValueError: no"


def test_without_repeats_there_is_one_call(tmp_path):
    link = Recorded()
    outcome = run(lambda x: x + experiment.repeat(), tmp_path, link, repeats=1)
    assert (outcome.value, outcome.step, link.reports) == (1.0, None, [])


@pytest.mark.parametrize("repeats", [1, 3])
def test_the_epochs_of_keras_are_curves_alone(tmp_path, repeats):
    keras = pytest.importorskip("keras")

    def train(x):
        (callback,) = experiment.keras_callbacks()
        callback.set_model(keras.Sequential())
        for epoch in range(2):
            callback.on_epoch_end(epoch, {"loss": 1.0})
        return x

    link = Recorded()
    run(train, tmp_path, link, repeats=repeats, key="loss" if repeats == 1 else None)
    assert [step for step, _ in scalars(tmp_path)["loss"]] == list(range(2 * repeats))
    assert [step for step, _ in link.reports] == list(range(max(repeats, 2)))
