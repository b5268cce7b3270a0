"""The state of a run by its records, without a journal."""

from experiment.results.trial_times import TrialTime
from experiment.run_files.journal_records import Begun, Finished, Lost, Planned
from experiment.run_files.run_state import RunState
from search.trial import Failure, Outcome, Trial
from spark_jobs.messages import Attempt
from spark_jobs.run_folder.paths import RunPaths
from tests.experiment.runs import begun


def test_a_finished_trial_of_another_objective_has_no_value(tmp_path):
    state = RunState(RunPaths(tmp_path))
    for trial, name in enumerate(["loss", "accuracy"]):
        state.apply(Planned(Trial(trial, {}), 1, "0.0.0", at=0.0))
        outcome = Outcome(trial, "finished", 0.5, name, {name: 0.5})
        state.apply(Finished(1, outcome, at=0.0))
    assert state.objective == "loss"
    assert [result.value for result in state.results] == [0.5, None]
    assert state.results[1].metrics == {"accuracy": 0.5}


def test_cancelled_trials_run_again_when_their_run_is_resumed(tmp_path):
    state = RunState(RunPaths(tmp_path))
    outcomes = [
        Outcome(0, "cancelled"),
        Outcome(1, "finished", 0.5, "loss", {"loss": 0.5}),
        Outcome(2, "stopped"),
        Outcome(3, "cancelled"),
    ]
    for outcome in outcomes:
        state.apply(Planned(Trial(outcome.trial, {}), 2, "0.0.0", at=0.0))
        state.apply(Finished(2, outcome, at=0.0))
    begun = {"records": 8, "application": "app", "created": "now", "function": "0", "trials": 4}
    state.apply(Begun(**begun, at=0.0))
    assert [(result.id, result.status) for result in state.results] == [
        (1, "finished"),
        (2, "stopped"),
    ]
    assert state.ended == {1, 2}
    assert state.waiting == {0: Attempt(Trial(0, {}), 3), 3: Attempt(Trial(3, {}), 3)}


def test_attempts_on_several_slots_are_kept_until_their_trial_has_ended(tmp_path):
    state = RunState(RunPaths(tmp_path))

    def plan(trial, number, *slots):
        state.apply(Planned.of(Attempt(Trial(trial, {}), number), slots, 0.0))

    plan(0, 1, "1.0.0", "1.1.0")
    plan(1, 1, "1.2.0")
    plan(2, 1, "1.3.0", "1.4.0")
    failure = Failure(kind="lost executor", message="its executor was lost")
    state.apply(Lost.of(Attempt(Trial(0, {})), "1.0.0", failure, counts=True, at=0.0))
    plan(0, 2, "1.0.0", "1.1.0")
    assert state.in_gangs == {(0, 1), (0, 2), (2, 1)}
    state.apply(Finished(2, Outcome(0, "stopped"), at=1.0))
    assert state.in_gangs == {(2, 1)}
    state.apply(Finished(1, Outcome(2, "cancelled"), at=1.0))  # runs again after a resume
    assert state.in_gangs == {(2, 1)}
    plan(3, 1, "1.0.0", "1.1.0")
    state.apply(Finished(1, Outcome(3, "stopped"), at=1.0))
    assert state.in_gangs == {(2, 1)}


def test_an_attempt_may_have_any_number(tmp_path):
    state = RunState(RunPaths(tmp_path))
    state.apply(Planned.of(Attempt(Trial(0, {}), 2**62), ("1.0.0", "1.1.0"), 0.0))
    state.apply(Finished(2**62, Outcome(0, "stopped"), at=1.0))
    assert state.ended == {0}
    assert state.in_gangs == set()


def test_the_times_of_a_trial_name_its_slots(tmp_path):
    state = RunState(RunPaths(tmp_path))
    for trial, slots in enumerate([("1.0.0",), ("1.1.0", "1.2.0")]):
        state.apply(Planned.of(Attempt(Trial(trial, {})), slots, 1.0))
        state.apply(Finished(1, Outcome(trial, "stopped"), at=2.0))
        assert state.times.of(trial) == TrialTime(1.0, 2.0, slots)


def test_a_trial_that_waited_when_it_was_cancelled_has_the_times_of_its_last_attempt(tmp_path):
    state, attempt = RunState(RunPaths(tmp_path)), Attempt(Trial(5, {}))
    failure = Failure(kind="machine", message="its host has no GPU")
    state.apply(Planned.of(attempt, ("1.0.0",), 1.0))
    state.apply(Lost.of(attempt, "1.0.0", failure, counts=True, at=10.0))
    state.apply(Finished(1, Outcome(5, "cancelled"), at=1000.0))
    assert state.times.of(5) == TrialTime(1.0, 10.0, ("1.0.0",))


def test_a_trial_that_a_killed_driver_left_and_that_is_cancelled_has_no_time(tmp_path):
    state = RunState(RunPaths(tmp_path))
    state.apply(Planned.of(Attempt(Trial(0, {})), ("1.0.0",), 1.0))
    state.apply(begun(1, 1))
    state.apply(Finished(1, Outcome(0, "cancelled"), at=1000.0))
    assert state.times.of(0) is None  # nobody knows when its attempt ended
