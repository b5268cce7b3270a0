"""Trials that call the train function several times."""

from __future__ import annotations

import math
import os
import random
import shutil
from pathlib import Path

import cloudpickle
import numpy
import pytest

import experiment
from search.trial import Outcome, Trial
from spark_jobs.messages import LARGEST_MESSAGE, Attempt
from spark_jobs.run_folder.paths import is_ours
from spark_jobs.trial import repeats
from spark_jobs.trial.context import TrialContext, entered
from spark_jobs.trial.pipe.link import NoLink
from spark_jobs.trial.random_numbers import seed_random_numbers
from spark_jobs.trial.repeats import outcome_of
from spark_jobs.trial.trial_process import Program, evaluate
from tests.search.adapters.spaces import global_random_numbers
from tests.spark_jobs.trial.events.reading import scalars


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


class Late(Recorded):
    """Passes on the driver's answer only when it is asked for the third time."""

    asked = 0

    def stop(self):
        self.asked += bool(super().stop())
        return super().stop() if self.asked >= 3 else ""


def test_a_trial_waits_a_moment_for_the_answer_before_another_call(tmp_path, monkeypatch):
    monkeypatch.setattr(repeats, "_SHARE_OF_WAIT", math.inf)
    monkeypatch.setattr(repeats, "_LONGEST_WAIT", 60.0)
    outcome = run(lambda x: x + experiment.repeat(), tmp_path, Late(after=1), repeats=2)
    assert (outcome.status, outcome.value, outcome.step) == ("stopped", 1.0, 0)


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
    assert sorted(os.listdir(tmp_path / "checkpoint")) == ["repeat-0", "repeat-1", "repeats.json"]
    assert [step for step, _ in link.reports] == [0, 1]


def test_the_file_of_the_calls_is_none_of_the_train_functions_files(tmp_path):
    def train(x):
        Path(experiment.checkpoint_dir(), "state").write_text("mine")
        return x

    run(train, tmp_path, repeats=2)
    below = (path for path in tmp_path.rglob("*") if path.is_file())
    names = sorted(path.relative_to(tmp_path).as_posix() for path in below)
    assert [name for name in names if not is_ours(name)] == [
        "checkpoint/repeat-0/state",
        "checkpoint/repeat-1/state",
    ]


def test_a_failure_in_any_repeat_is_the_trials(tmp_path):
    def train(x):
        if experiment.repeat() == 2:
            raise ValueError("no")
        return x

    assert run(train, tmp_path).error.message == "ValueError: no"


class Lost(Exception):
    """Ends an attempt where its slot would be lost."""


def attempt(folder, lost_in=None, calls=None):
    """Make the calls of an attempt of four, of which one is the last before its slot is lost."""
    running = TrialContext(params={}, folder=folder, link=Recorded(), repeats=4)

    def train():
        number = experiment.repeat()
        if number == lost_in:
            raise Lost
        if calls is not None:
            calls.append(number)
        for step in range(3):
            experiment.report(step=step, loss=10.0 * number + step)
        return 1.0 + number

    with entered(running):
        return running, outcome_of(running, train, lambda x: Outcome(0, "finished", x, "metric"))


def test_the_next_attempt_makes_the_calls_that_were_not_made(tmp_path):
    with pytest.raises(Lost):
        attempt(tmp_path / "first", lost_in=2)
    shutil.copytree(tmp_path / "first" / "checkpoint", tmp_path / "second" / "checkpoint")
    calls = []
    running, outcome = attempt(tmp_path / "second", calls=calls)
    assert calls == [2, 3]
    assert outcome.value == 2.5
    assert running.link.reports == [(n, {"metric": 1.0 + n}) for n in range(4)]
    curve = scalars(tmp_path / "second")["loss"]
    assert [step for step, _ in curve] == list(range(6, 12))


def drawing_attempt(folder, drawn, seed, lost_in=None):
    """Draw random numbers in each call of an attempt, whose process is seeded as for any trial."""
    running = TrialContext(params={}, folder=folder, repeats=3, seed=seed)

    def train():
        number = experiment.repeat()
        if number == lost_in:
            raise Lost
        drawn[number] = random.random(), numpy.random.random()
        return 1.0

    with global_random_numbers(0), entered(running):
        seed_random_numbers(7, running.trial)
        outcome_of(running, train, lambda x: Outcome(0, "finished", x, "metric"))


def test_a_repeat_draws_the_same_numbers_in_every_attempt_and_others_than_its_siblings(tmp_path):
    whole, parts = {}, {}
    drawing_attempt(tmp_path / "whole", whole, seed=7)
    with pytest.raises(Lost):
        drawing_attempt(tmp_path / "parts", parts, seed=7, lost_in=2)
    drawing_attempt(tmp_path / "parts", parts, seed=7)
    assert parts == whole
    assert len(set(whole.values())) == 3


def test_the_first_repeat_draws_the_numbers_of_a_trial_without_repeats(tmp_path):
    drawn = {}
    drawing_attempt(tmp_path, drawn, seed=7)
    with global_random_numbers(0):
        seed_random_numbers(7, 0)
        assert drawn[0] == (random.random(), numpy.random.random())


def test_without_a_seed_a_repeat_goes_on_with_the_numbers_of_the_one_before(tmp_path):
    drawn = {}
    drawing_attempt(tmp_path, drawn, seed=None)
    with global_random_numbers(0):
        seed_random_numbers(7, 0)
        assert list(drawn.values()) == [(random.random(), numpy.random.random()) for _ in range(3)]


def test_the_seed_of_the_search_reaches_the_repeats(tmp_path):
    def train(x):
        return random.random()

    values = []
    for before in (1, 2):
        with global_random_numbers(before):
            program = Program(
                function=cloudpickle.dumps(train), key=None, direction="max", repeats=2, seed=7
            )
            link = Recorded()
            evaluate(program, Attempt(Trial(0, {"x": 1.0})), tmp_path / str(before), link)
            values.append([metrics["metric"] for _, metrics in link.reports])
    drawn, again = values
    assert drawn == again
    assert drawn[0] != drawn[1]


def test_an_attempt_after_the_last_call_makes_none(tmp_path):
    attempt(tmp_path)
    calls = []
    running, outcome = attempt(tmp_path, calls=calls)
    assert (calls, outcome.value, running.step) == ([], 2.5, 3)


def test_the_calls_of_an_earlier_attempt_are_reported_after_the_first_new_one(tmp_path):
    """Else a stop would come within it, and the trial would seem to hear of stops at once."""
    with pytest.raises(Lost):
        attempt(tmp_path, lost_in=2)
    seen, link = [], NoLink()
    link.send = lambda report: seen.append(("report", report.step))
    running = TrialContext(params={}, folder=tmp_path, link=link, repeats=4)

    def train():
        seen.append(("call", running.repeat))

    outcome_of(running, train, lambda _: Outcome(0, "finished", 1.0, "metric"))
    assert seen == [
        ("call", 2),
        *(("report", step) for step in range(3)),
        ("call", 3),
        ("report", 3),
    ]


def test_calls_are_kept_though_they_are_longer_than_a_message(tmp_path):
    def attempt(calls, lost_in=None):
        running = TrialContext(params={}, folder=tmp_path, repeats=3)

        def read(number):
            return Outcome(0, "finished", 1.0, "metric", metrics={"x" * LARGEST_MESSAGE: 1.0})

        def train():
            if running.repeat == lost_in:
                raise Lost
            calls.append(running.repeat)

        return outcome_of(running, train, read)

    calls = []
    with pytest.raises(Lost):
        attempt(calls, lost_in=2)
    attempt(calls)
    assert calls == [0, 1, 2]


def test_the_calls_of_the_trial_that_it_resumes_from_do_not_count(tmp_path):
    attempt(tmp_path)
    running = TrialContext(params={}, folder=tmp_path, link=Recorded(), repeats=4, trial=1)
    calls = []
    outcome_of(running, lambda: calls.append(running.repeat), lambda _: Outcome(1, "cancelled"))
    assert calls == [0, 1, 2, 3]


@pytest.mark.parametrize("content", [b"{", b"[]", b'[{"outcome": {}}]'])
def test_a_file_that_has_no_outcomes_counts_for_nothing(tmp_path, content):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "repeats.json").write_bytes(content)
    assert run(lambda x: x + experiment.repeat(), tmp_path).value == 2.5


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


def test_a_repeat_ends_at_the_last_step_of_the_trial_with_the_value_that_it_reported(tmp_path):
    link = Recorded()

    def train(x):
        for step in range(9):
            experiment.report(step=step, loss=10.0 * experiment.repeat() + step)
        return {"loss": -1.0}

    program = Program(function=cloudpickle.dumps(train), key=None, direction="min", repeats=2)
    trial = Trial(0, {"x": 1.0}, max_steps=3)
    outcome = evaluate(program, Attempt(trial), tmp_path, link)
    assert (outcome.status, outcome.value) == ("finished", 7.0)
    assert link.reports == [(0, {"loss": 2.0}), (1, {"loss": 12.0})]


class Agreeing:
    """A communicator of two workers, of which the other has this wish to stop."""

    def __init__(self, other, made=0):
        self.calls, self._other, self._made = 0, other, made

    def meet(self):
        """The other one has come."""

    def all_reduce(self, arrays, op):
        if op == "min":
            return [numpy.minimum(array, self._made) for array in arrays]
        self.calls += 1
        return [numpy.maximum(array, self._other) for array in arrays]


@pytest.mark.parametrize(("rank", "after", "other"), [(0, 2, 0), (1, 99, 1)])
def test_all_workers_make_the_same_calls_though_only_one_hears_of_the_stop(
    tmp_path, rank, after, other
):
    calls = []
    running = TrialContext(params={}, folder=tmp_path, link=Recorded(after=after))
    running.repeats, running.rank, running.workers = 4, rank, 2
    running.communicator = Agreeing(other)

    def read(value):
        return Outcome(0, "finished", value, "metric")

    outcome_of(running, lambda: calls.append(0) or 1.0, read)
    assert len(calls) == running.communicator.calls == (1 if rank else 2)
    assert running.stopped


def test_workers_that_agree_to_go_on_make_all_calls(tmp_path):
    running = TrialContext(params={}, folder=tmp_path, repeats=4, rank=1, workers=2)
    running.communicator = Agreeing(0)
    calls = []
    assert outcome_of(running, lambda: calls.append(0), None) is None
    assert (len(calls), running.communicator.calls) == (4, 3)


def test_workers_that_find_different_calls_make_the_same_ones(tmp_path):
    with pytest.raises(Lost):
        attempt(tmp_path, lost_in=3)
    running = TrialContext(params={}, folder=tmp_path, repeats=4, rank=1, workers=2)
    running.communicator = Agreeing(0, made=2)
    calls = []
    outcome_of(running, lambda: calls.append(running.repeat), None)
    assert calls == [2, 3]


def test_values_as_large_as_a_float_can_be_have_a_mean(tmp_path):
    assert run(lambda x: 1.6e308, tmp_path).value == 1.6e308


def test_a_metric_without_a_mean_fails_no_trial(tmp_path):
    def train(x):
        odd = [float("inf"), float("-inf"), 0.0, 0.0]
        return {"a": x, "odd": odd[experiment.repeat()]}

    outcome = run(train, tmp_path, key="a")
    assert (outcome.status, outcome.value) == ("finished", 1.0)
    assert math.isnan(outcome.metrics["odd"])
