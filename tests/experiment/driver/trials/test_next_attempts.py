"""The next attempt, from the state of a run alone."""

from __future__ import annotations

import pytest

from experiment.driver.trials.next_attempts import NextAttempts
from experiment.run_files.journal_records import Finished, Lost, Planned
from experiment.run_files.left_outcomes import LeftBehind
from experiment.run_files.run_state import RunState
from search.trial import RETRIED, Failure, Outcome, Trial
from spark_jobs.messages import Attempt
from spark_jobs.run_folder.paths import RunPaths
from tests.experiment.runs import begun

FINISHED = Outcome(0, "finished", 1.0, "metric")
LOST = Failure(kind="lost executor", message="its executor was lost")


class Run:
    """The state of a run, and its next attempts."""

    def __init__(self, root, retries=3, retry_on=RETRIED):
        self.state = RunState(RunPaths(root))
        self.attempts = NextAttempts(
            self.state, retries=retries, retry_on=retry_on, held=lambda outcome: outcome
        )

    def plan(self, attempt):
        self.state.apply(Planned.of(attempt, ("1.0.0",), 0.0))

    def lose(self, attempt, *, counts=True):
        self.plan(attempt)
        self.state.apply(Lost.of(attempt, "1.0.0", LOST, counts=counts, at=0.0))

    def again(self, *avoiding):
        found = self.attempts.again(lambda trial: () if trial in avoiding else ("1.0.0", "1.1.0"))
        if found is None:
            return None
        attempt, slots = found
        assert slots == ("1.0.0", "1.1.0")
        return attempt


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def trial(number=0):
    return Trial(number, {"x": number})


def test_a_trial_runs_first_as_attempt_one(run):
    assert run.attempts.first(trial(7)) == Attempt(trial(7), 1)
    assert run.again() is None


def test_trials_run_again_in_the_order_in_which_they_were_lost(run):
    for number in (1, 0):
        run.lose(Attempt(trial(number)))
    assert run.again() == Attempt(trial(1), 2)
    assert run.again(1) == Attempt(trial(0), 2)
    assert run.again(0, 1) is None


def test_asking_for_the_next_retry_changes_nothing(run):
    run.lose(Attempt(trial()))
    assert run.again() == run.again() == Attempt(trial(), 2)
    run.plan(run.again())
    assert run.again() is None


@pytest.mark.parametrize("kind", ["machine", "user error", "exit", "gpu memory"])
def test_a_failure_of_a_kind_is_retried_as_often_as_allowed(tmp_path, kind):
    run = Run(tmp_path, retries=2, retry_on=(kind,))
    for attempt in (1, 2):
        assert run.attempts.is_retried(Outcome.failed(0, kind, "no"))
        run.lose(Attempt(trial(), attempt))
    assert not run.attempts.is_retried(Outcome.failed(0, kind, "no"))
    assert run.attempts.is_retried(Outcome.failed(1, kind, "no"))


def test_a_failure_of_another_kind_and_a_value_are_not_retried(run):
    assert not run.attempts.is_retried(Outcome.failed(0, "user error", "no"))
    assert not run.attempts.is_retried(FINISHED)


def test_an_attempt_that_does_not_count_uses_no_retry(tmp_path):
    run = Run(tmp_path, retries=1)
    run.lose(Attempt(trial()), counts=False)
    assert run.attempts.is_retried(Outcome.failed(0, "machine", "no"))


def test_the_outcome_in_a_trial_folder_is_found_once(run):
    end = Attempt(trial(), 2), FINISHED
    run.attempts.found([LeftBehind(0, 2, (end,))])
    assert run.attempts.end_found(trial(1)) is None
    assert run.attempts.end_found(trial()) == end
    assert run.attempts.end_found(trial()) is None


def test_the_outcome_of_other_hyperparameters_is_ignored(run):
    end = Attempt(Trial(0, {"x": 9}), 2), FINISHED
    run.attempts.found([LeftBehind(0, 2, (end,))])
    assert run.attempts.end_found(trial()) is None
    assert run.attempts.first(trial()) == Attempt(trial(), 3)


def test_a_failure_in_a_trial_folder_that_is_retried_is_no_outcome(run):
    failed = Outcome.failed(0, "machine", "no space left")
    run.attempts.found([LeftBehind(0, 4, ((Attempt(trial(), 4), failed),))])
    assert run.attempts.end_found(trial()) is None
    assert run.attempts.first(trial()) == Attempt(trial(), 5)


def test_no_attempt_reuses_the_folder_of_one_that_the_journal_lacks(run):
    run.lose(Attempt(trial()))
    run.attempts.found([LeftBehind(0, 3)])
    assert run.attempts.end_found(trial()) is None
    assert run.again() == Attempt(trial(), 4)
    assert run.attempts.before() == [Attempt(trial(), 3)]
    run.lose(run.again())
    assert run.again() == Attempt(trial(), 5)


def test_a_trial_in_flight_of_a_killed_driver_runs_again_as_the_next_attempt(run):
    for number in (1, 0):
        run.plan(Attempt(trial(number)))
    run.state.apply(Finished(1, FINISHED, at=0.0))
    run.state.apply(begun(3, 2))
    assert run.attempts.before() == [Attempt(trial(1), 1)]
    assert run.again() == Attempt(trial(1), 2)
