"""The names of the files of a run."""

import pytest

from spark_jobs.run_folder.paths import is_ours, only_grows


@pytest.mark.parametrize("folder", ["", "workers/1/", "workers/12/"])
def test_files_of_ours_are_told_from_those_of_the_train_function(folder):
    ours = ["trial.json", "stdout.log", "events.out.tfevents.trial", "checkpoint/repeats.json"]
    others = ["notes.txt", "repeats.json", "model/trial.json", "checkpoint/repeat-0/repeats.json"]
    others += ["model/events.out.tfevents.trial", "workers/2/workers/3/trial.json"]
    assert [name for name in ours + others if is_ours(folder + name)] == ours


@pytest.mark.parametrize("folder", ["", "trials/000007/", "trials/000007-2/workers/1/"])
def test_logs_event_files_and_journals_grow_and_checkpoints_may_be_rewritten(folder):
    grow = ["stdout.log", "keras-epochs.jsonl", "train/events.out.tfevents.1"]
    grow += ["checkpoint.log", "my-checkpoint/a.log"]
    others = ["trial.json", "checkpoint", "checkpoint/a.log", "checkpoint/b/c.jsonl"]
    others += ["checkpoint/tfevents-model/x.h5", "my-tfevents/x.h5"]
    assert [name for name in grow + others if only_grows(folder + name)] == grow
