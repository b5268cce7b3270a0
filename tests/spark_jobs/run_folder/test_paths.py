"""The names of the files of a run."""

import pytest

from spark_jobs.run_folder.paths import is_ours


@pytest.mark.parametrize("folder", ["", "workers/1/", "workers/12/"])
def test_files_of_ours_are_told_from_those_of_the_train_function(folder):
    ours = ["trial.json", "stdout.log", "events.out.tfevents.trial", "checkpoint/repeats.json"]
    others = ["notes.txt", "repeats.json", "model/trial.json", "checkpoint/repeat-0/repeats.json"]
    others += ["model/events.out.tfevents.trial", "workers/2/workers/3/trial.json"]
    assert [name for name in ours + others if is_ours(folder + name)] == ours
