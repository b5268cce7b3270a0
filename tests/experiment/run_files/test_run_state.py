"""What records come to, without a journal."""

from experiment.run_files.journal_records import Finished, Planned
from experiment.run_files.run_state import RunState
from search.trial import Outcome, Trial
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
