import json
import os
import socket
import threading

import pytest
from tensorboard.plugins.hparams import metadata

from search.trial import Outcome, Trial
from spark_jobs.channel.reporter import Reporter
from spark_jobs.messages import Attempt, Heard
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.slot.attempt_folder import make_again, write_below
from spark_jobs.slot.run_attempt import run_attempt
from spark_jobs.slot.slot import make_runner
from tests.spark_jobs import train_functions as functions
from tests.spark_jobs.slot.test_slot import config_of
from tests.spark_jobs.trial.events.reading import hparams_data, scalars


def run_all(config, params):
    """Run trials in one slot; return their outcomes and the warnings."""
    notes, outcomes = [], []
    with (
        Reporter(lambda *report: Heard(), pytest.fail, pytest.fail) as reporter,
        make_runner(config, {}) as runner,
    ):
        for number, values in enumerate(params):
            attempt = Attempt(Trial(number, values))
            outcomes.append(run_attempt(config, attempt, runner, notes.append, reporter))
    return outcomes, notes


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_a_trial_that_changes_its_folder_has_its_outcome_and_a_warning(tmp_path, isolation):
    config = config_of(tmp_path, functions.change_folder, isolation=isolation)
    changes = [*functions.FOLDER_CHANGES, "nothing"]
    outcomes, notes = run_all(config, [{"how": how} for how in changes])
    for number, (how, outcome) in enumerate(zip(changes, outcomes, strict=True)):
        assert (how, outcome.status, outcome.value) == (how, "finished", 1.0)
        warnings = [text for text in notes if f"trial {number}:" in text]
        is_noted = how not in ("nothing", "a symlink", "without permissions")
        if os.geteuid() == 0:  # whom permissions do not keep off
            is_noted = is_noted and how != "all without permissions"
        assert len(warnings) == is_noted, (how, notes)
        for text in warnings:
            assert text.startswith(f"host {socket.gethostname()}: trial {number}: trial.json, ")
            assert "its outcome counts" in text
        if number > changes.index("all removed"):  # else removed by that one
            files = RunPaths(tmp_path).attempt(number)
            assert json.loads(files.outcome.read_text())["value"] == 1.0


@pytest.mark.parametrize("how", functions.FOLDER_CHANGES)
def test_files_of_the_slot_are_written_again(tmp_path, how):
    config = config_of(tmp_path, functions.change_folder)
    run_all(config, [{"how": how}])
    files = RunPaths(tmp_path).attempt(0)
    assert json.loads(files.trial.read_text())["trial"]["params"] == {"how": how}
    assert json.loads(files.outcome.read_text())["value"] == 1.0
    row = hparams_data(files.folder, metadata.SESSION_START_INFO_TAG)
    assert row.hparams["how"].string_value == how
    curves = scalars(files.folder)
    assert curves.pop("objective/metric") == [(0, 1.0)]
    assert ("loss" in curves) == (how == "removed, then a report")
    # What was in the way is the user's, and is kept beside.
    aside = [path for path in tmp_path.rglob("*") if path.is_file() and path.name.count(".") == 1]
    kept = [path for path in aside if path.read_bytes() == b"the user's"]
    assert len(kept) == how.endswith("a file")


def test_neighbours_of_a_trial_that_removes_all_folders_lose_no_outcome(tmp_path):
    """The neighbour starts before it, and ends after it."""
    started, removed = threading.Event(), threading.Event()

    class Neighbour:
        warnings = ()

        def run(self, attempt, paths, tell):
            started.set()
            assert removed.wait(60)
            return Outcome(attempt.trial.id, "finished", 2.0, "metric", {"metric": 2.0})

    notes, outcomes = [], []

    def run_neighbour():
        with Reporter(lambda *report: Heard(), pytest.fail, pytest.fail) as reporter:
            attempt = Attempt(Trial(7, {"how": "nothing"}))
            config = config_of(tmp_path)
            outcomes.append(run_attempt(config, attempt, Neighbour(), notes.append, reporter))

    thread = threading.Thread(target=run_neighbour)
    thread.start()
    assert started.wait(60)
    run_all(config_of(tmp_path, functions.change_folder), [{"how": "all removed"}])
    removed.set()
    thread.join()
    assert [outcome.value for outcome in outcomes] == [2.0]
    assert json.loads(RunPaths(tmp_path).attempt(7).outcome.read_text())["value"] == 2.0
    assert len(notes) == 1


def test_a_missing_run_folder_is_the_hosts_fault(tmp_path):
    root = tmp_path / "run"
    root.mkdir()

    class Unmounting:
        warnings = ()

        def run(self, attempt, paths, tell):
            root.rename(tmp_path / "away")
            return Outcome(attempt.trial.id, "finished", 2.0, "metric", {"metric": 2.0})

    with Reporter(lambda *report: Heard(), pytest.fail, pytest.fail) as reporter:
        attempt = Attempt(Trial(0, {"x": 1}))
        outcome = run_attempt(config_of(root), attempt, Unmounting(), pytest.fail, reporter)
    assert (outcome.status, outcome.error.kind) == ("failed", "machine")
    assert str(root) in outcome.error.message
    assert not root.exists()


def test_an_attempt_runs_with_anything_in_the_last_ones_place(tmp_path):
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "000003").write_text("the user's")
    notes = []
    with Reporter(lambda *report: Heard(), pytest.fail, pytest.fail) as reporter:
        attempt, config = Attempt(Trial(3, {"x": 1}), 2), config_of(tmp_path)
        outcome = run_attempt(config, attempt, make_runner(config, {}), notes.append, reporter)
    assert (outcome.value, notes) == (2.0, [])


def test_a_folder_is_made_again_below_one_that_is_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        make_again(tmp_path / "run", tmp_path / "run" / "trials")
    make_again(tmp_path, tmp_path / "trials" / "000000")
    (tmp_path / "trials" / "000000" / "file").touch()
    make_again(tmp_path, tmp_path / "trials" / "000000")
    assert (tmp_path / "trials" / "000000" / "file").exists()


def test_files_removed_meanwhile_are_written_again(tmp_path):
    folder, tries = tmp_path / "trials" / "000000", []

    def write():
        tries.append(folder)
        if len(tries) < 3:
            folder.rmdir()
        (folder / "file").touch()

    write_below(tmp_path, folder, write)
    assert len(tries) == 3
    assert (folder / "file").exists()
