"""The state of a run by its records, without a journal."""

from experiment.run_files.journal_records import Begun, Finished, Planned
from experiment.run_files.run_state import RunState
from search.trial import Outcome, Trial
from spark_jobs.messages import Attempt
from spark_jobs.run_folder.paths import RunPaths


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
