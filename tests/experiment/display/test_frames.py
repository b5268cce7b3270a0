import math

import pytest
from hypothesis import given

from experiment.display.frames import running_in_words
from spark_jobs.messages import Report
from tests.experiment.display.searches import failed, finished, frame, running, status
from tests.experiment.results.html_reader import text


@pytest.mark.parametrize(
    ("state", "seconds", "wanted"),
    [
        (status(5), 3.0, "0/5 trials"),
        (status(1), 3.0, "0/1 trial"),
        (status(5, out=[running(0), running(1)]), 3.0, "0/5 trials, 2 running"),
        (status(6, [failed(0)], typical=5.0), 10.0, "1/6 trials, 1 failed, about 25 s left"),
        (
            status(9, [finished(0)], slots=4, typical=600.0),
            9.0,
            "1/9 trials, about 20 min 0 s left",
        ),
        (status(9, [finished(0)], [running(1)]), 600.0, "1/9 trials, 1 running"),
        (status(1, [finished(0)]), 80.0, "1/1 trial, took 1 min 20 s"),
        (status(1, [failed(0)]), 0.5, "1/1 trial, 1 failed, took 0.5 s"),
        (status(9, out=[running(0, generation=3)]), 1.0, "0/9 trials, 1 running, generation 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_frame_counts_done_running_and_failed_trials(state, seconds, wanted):
    assert frame(state, seconds).counts == wanted


def test_a_search_that_ended_early_has_no_time_left():
    state = status(9, [failed(0), failed(1)])
    assert frame(state, 10.0, ended=True).counts == "2/9 trials, 2 failed, took 10 s"


def test_a_frame_names_the_best_with_its_hyperparameters():
    state = status(5, [finished(0, 0.25), finished(1, 2 / 3, {"lr": 0.01, "layers": (8,)})])
    assert frame(state).best == "best accuracy 0.666667 in trial 1: lr=0.01, layers=(8,)"


@pytest.mark.parametrize("results", [[], [failed(0)]], ids=len)
def test_before_the_first_value_there_is_no_best(results):
    assert frame(status(5, results)).best == ""


def test_a_frame_is_a_line_too():
    state = status(4, [finished(0, 0.5, {"lr": 0.1})], typical=10.0)
    assert frame(state).line == (
        "train: 1/4 trials, about 30 s left, best accuracy 0.5 in trial 0: lr=0.1"
    )
    assert frame(status(4), waiting="no executor").line == "train: 0/4 trials, no executor"


@given(text, text, text)
def test_a_frame_is_one_line_whatever_the_user_calls_things(name, value, objective):
    state = status(2, [finished(0, 1.0, {name: value})], objective=objective)
    assert frame(state).line.isprintable()


@pytest.mark.parametrize(
    ("last", "wanted"),
    [
        (None, "running"),
        (Report(3, {"loss": 0.25}), "running, step 3: loss=0.25"),
        (Report(0, {"loss": math.nan, "big": math.inf}), "running, step 0: loss=nan, big=inf"),
        (Report(9, dict.fromkeys("abcde", 1.0)), "running, step 9: a=1, b=1, c=1"),
    ],
)
def test_a_running_trial_shows_its_last_report(last, wanted):
    assert running_in_words(running(0, last=last)) == wanted


def test_a_trial_whose_slot_imports_modules_is_starting():
    assert running_in_words(running(0, since=None)) == "starting"
    assert running(0, since=None).seconds(7.0) == 0.0
