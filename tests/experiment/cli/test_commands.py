import contextlib
import csv
import errno
import io
import json
import math
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import replace
from pathlib import Path

import pandas
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import experiment
from experiment.cli.commands import main
from experiment.results.text import printable
from experiment.results.trial_result import TrialResult
from experiment.run_files.journal import Journal, encode_line
from experiment.run_files.journal_records import Lost
from search.fidelity.hyperband import Hyperband
from search.space.spaces import Space
from search.trial import Failure, Outcome, Trial
from search.values import Params
from spark_jobs.messages import GIVEN_UP, Attempt, encode
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.files import LocalFiles
from tests.experiment.display.searches import HARMLESS, HOSTILE
from tests.experiment.display.terminals import in_terminal
from tests.experiment.runs import (
    TRACEBACK,
    begun,
    make_run,
    make_search,
    make_spec,
    mark_as_owned,
    owned_by_us,
)
from tests.search.fakes import started as started_searcher

COMMAND = [sys.executable, "-m", "experiment"]
SECONDS = 120  # until a test gives up
LOG = "trials/000000/stdout.log"


def run(*arguments, **options):
    options = {"capture_output": True, "text": True, "timeout": SECONDS} | options
    return subprocess.run([*COMMAND, *map(str, arguments)], **options)


@pytest.fixture
def call(capsys):
    """Run a command that succeeds and return its output."""

    def call(*arguments):
        assert main([str(argument) for argument in arguments]) == 0
        output, errors = capsys.readouterr()
        assert errors == ""
        return output

    return call


@pytest.fixture
def refused(capsys):
    """Run a command that is refused and return its error."""

    def call(*arguments):
        assert main([str(argument) for argument in arguments]) == 2
        output, errors = capsys.readouterr()
        assert output == ""
        assert errors.replace("\n", "").isprintable()
        assert len(errors.splitlines()) == 1
        return errors

    return call


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("finished"), trials=12, failed=(1, 4))


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    """A run whose trial 2 was retried and whose trial 3 is in flight."""
    folder = tmp_path_factory.mktemp("unfinished")
    return make_run(folder, failed=(1,), lost=(2,), running=(3,), ended=False)


def started(folder):
    """Create a run that has only a manifest yet."""
    root = make_run(folder, ended=False)
    for name in ("journal", "trials", "search"):
        shutil.rmtree(root / name)
    return root


def hostile_outcome(trial):
    if trial.id == 0:
        return Outcome.failed(0, "user error", HOSTILE, f"Traceback\n\t{HOSTILE}")
    metrics = {HOSTILE: 1.0, f"{HOSTILE}2": 2.0}
    return Outcome(trial.id, "finished", 1.0, HOSTILE, metrics, seconds=1.0)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A run in which every text of the user and the trials has control characters."""
    root = make_run(
        tmp_path_factory.mktemp("hostile"),
        points=[{"a": HOSTILE, "b[red]": (HOSTILE,)}, {"a": "\x1b[8m", "<b>": 1}],
        outcome_of=hostile_outcome,
        name=HOSTILE,
        description=HOSTILE,
        train=HOSTILE,
        master=HOSTILE,
        application=HOSTILE,
        optimization_key=HOSTILE,
        problem=HOSTILE,
    )
    folder = root.with_name(f"{HOSTILE.replace('/', '-')}-run")
    shutil.copytree(root, folder)
    paths = RunPaths(folder).attempt(0)
    paths.stdout.write_text(HOSTILE)
    paths.stderr.write_text(HOSTILE)
    return folder


def rows_of(table):
    return [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]


def test_a_list_has_a_line_per_run_with_its_state(call, tmp_path):
    folders = [
        make_run(tmp_path, failed=(0, 1)),
        make_run(tmp_path, running=(3,), ended=False),
        make_run(tmp_path, problem="2 trials failed, more than max_failures=1"),
        make_run(tmp_path, trials=1, failed=(0,), optimization_key=None),
    ]
    for number, folder in enumerate(folders):
        os.utime(folder / "manifest.json", (number, number))
    head, *rows = rows_of(call("list", tmp_path))
    assert head == ["run", "started (UTC)", "state", "trials", "failed", "best"]
    assert [row[0] for row in rows] == [folder.name for folder in folders]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", row[1]) for row in rows)
    assert [row[3:] for row in rows] == [
        ["6/6", "2", "accuracy 0.006"],
        ["5/6", "1", "accuracy 0.006"],
        ["6/6", "1", "accuracy 0.006"],
        ["1/1", "1"],
    ]
    states = [row[2] for row in rows]
    assert states[0] == states[3] == "finished"
    assert re.fullmatch(r"not ended, last update [\d.]+ s ago", states[1])
    assert states[2] == "ended early: 2 trials failed, more than max_failures=1"


US = f"host {socket.gethostname()}, pid {os.getpid()}"


def test_a_run_with_an_active_driver_names_it(call, tmp_path):
    root = make_run(tmp_path, running=(3,), ended=False)
    with owned_by_us(root):
        assert rows_of(call("list", tmp_path))[1][2] == f"running on {US}"
        assert ["state", f"running on {US}"] in rows_of(call("show", root))
        assert call("stop", root) == f"asked to stop: {root}, running on {US}\n"
    assert (root / "stop").exists()
    assert "not ended, last update" in call("show", root)


def test_a_resumed_run_is_running(call, tmp_path):
    root = make_run(tmp_path, problem="interrupted")
    with owned_by_us(root):
        assert ["state", f"running on {US}"] in rows_of(call("show", root))
        assert "asked to stop" in call("stop", root)


@pytest.mark.fault(24)
def test_a_run_without_its_driver_shows_how_to_resume_and_cannot_be_stopped(
    call, refused, tmp_path
):
    root = make_run(tmp_path, running=(3,), ended=False)
    mark_as_owned(root)
    gone = rf"not ended, last update [\d.]+ s ago, its driver \({re.escape(US)}\) is gone"
    how = f"resume='{root}' continues it"
    rows = dict(row for row in rows_of(call("show", root)) if len(row) == 2)
    assert re.fullmatch(gone, rows["state"])
    assert rows["to continue"] == how
    assert re.fullmatch(gone, rows_of(call("list", tmp_path))[1][2])
    refusal = refused("stop", root)
    assert re.match(f"run: expected a run in progress, got '{root}', {gone}; ", refusal)
    assert refusal.endswith(f"{how}\n")
    assert not (root / "stop").exists()


def test_a_run_that_cannot_be_written_to_is_not_stopped(refused, tmp_path, monkeypatch):
    def write(self, location, data):
        raise OSError(errno.EROFS, "Read-only file system")

    root = make_run(tmp_path, running=(3,), ended=False)
    with owned_by_us(root), monkeypatch.context() as patched:
        patched.setattr(LocalFiles, "write", write)
        assert refused("stop", root) == (
            f"run: expected the folder of a run, got {str(root)!r}, which cannot be written to: "
            "Read-only file system\n"
        )


def test_a_driver_on_another_host_is_shown_with_its_last_sign_of_life(call, tmp_path):
    root = make_run(tmp_path, running=(3,), ended=False)
    elsewhere = {"boot": "0" * 32, "namespace": 1, "started": 1}
    mark_as_owned(root, host=HOSTILE, origin=elsewhere)
    mark = root / "owners" / "000001.json"
    os.utime(mark, times=(0, mark.stat().st_mtime - 300))
    rows = dict(row for row in rows_of(call("show", root)) if len(row) == 2)
    assert re.search(r"s ago, last sign of life of its driver \(.* 5 min \d s ago$", rows["state"])
    assert "to continue" not in rows
    assert "asked to stop" in call("stop", root)


def test_how_to_continue_is_shown_after_a_long_silence_of_a_driver_on_another_host(call, tmp_path):
    root = make_run(tmp_path, running=(3,), ended=False)
    elsewhere = {"boot": "0" * 32, "namespace": 1, "started": 1}
    mark_as_owned(root, host="spark-7", origin=elsewhere)
    mark = root / "owners" / "000001.json"
    os.utime(mark, times=(0, mark.stat().st_mtime - 3600))
    rows = dict(row for row in rows_of(call("show", root)) if len(row) == 2)
    assert rows["state"].endswith(" 1 h 0 min ago")
    assert rows["to continue"] == f"resume='{root}' continues it"
    assert "asked to stop" in call("stop", root)  # its clock may differ


def test_the_list_shows_the_default_folder_by_default(call, tmp_path, monkeypatch):
    root = make_run(tmp_path / "experiments")
    monkeypatch.chdir(tmp_path)
    assert root.name in call("list")


@pytest.mark.parametrize("what", ["missing", "empty", "file", "run"])
def test_a_folder_without_runs_is_refused(refused, finished, tmp_path, what):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    folder = finished if what == "run" else tmp_path / what
    assert "expected a folder of runs" in refused("list", folder)


def break_journal(paths):
    segment = next(paths.journal.iterdir())
    segment.write_bytes(segment.read_bytes().replace(b"adam", b"adan"))


def write(name, data):
    def damage(paths):
        path = paths.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)

    return damage


def make_folder(name):
    def damage(paths):
        (paths.root / name).unlink()
        (paths.root / name).mkdir()

    return damage


def change_manifest(**changes):
    def damage(paths):
        manifest = json.loads(paths.manifest.read_text()) | changes
        paths.manifest.write_text(json.dumps(manifest))

    return damage


def change_result(**changes):
    def damage(paths):
        result = json.loads(paths.result.read_text()) | changes
        paths.result.write_text(json.dumps(result))

    return damage


def lose_an_ended_trial(paths):
    [segment] = paths.journal.glob("*.jsonl")
    with segment.open("ab") as file:
        failure = Failure(kind="machine", message="its disk is full")
        file.write(
            encode_line(Lost.of(Attempt(Trial(0, {})), "1.0.0", failure, counts=True, at=9.0))
        )


def make_pipe(name):
    def damage(paths):
        (paths.root / name).unlink()
        os.mkfifo(paths.root / name)

    return damage


def make_link(name, target):
    def damage(paths):
        (paths.root / name).unlink()
        (paths.root / name).symlink_to(target)

    return damage


BEST = {"params": {}, "trial": 5, "status": "finished", "value": 0.5}
DAMAGES = {
    "empty": write("manifest.json", b""),
    "no json": write("manifest.json", b"{"),
    "no object": write("manifest.json", b"[]"),
    "no unicode": write("manifest.json", b'{"format": 1, "name": "\xff"}'),
    "deep": write("manifest.json", b"[" * 100_000),
    "folder": make_folder("manifest.json"),
    "newer": change_manifest(format=2),
    "odd space": change_manifest(space={"x": {"type": "odd"}}),
    "wrong space": change_manifest(space={"x": {"type": "float", "low": 1, "high": "a"}}),
    "odd direction": change_manifest(direction="up"),
    "journal": break_journal,
    "result": write("result.json", b"{"),
    "result without unicode": write("result.json", b'{"problem": "\xff"}'),
    "result is a folder": make_folder("result.json"),
    "no time": change_manifest(created="yesterday"),
    "before all time": change_manifest(created="0001-01-01T00:00:00"),
    "result before all time": change_result(ended="0001-01-01T00:00:00"),
    "best of no number": change_result(best=BEST | {"value": "0.5"}),
    "best without a value": change_result(best=BEST | {"status": "stopped", "value": None}),
    "front of nothing": change_result(front=[{}]),
    "lost after its end": lose_an_ended_trial,
    "pipe": make_pipe("manifest.json"),
    "device": make_link("manifest.json", "/dev/zero"),
    "journal is a pipe": make_pipe("journal/000001.jsonl"),
    "result is a device": make_link("result.json", "/dev/zero"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_run_is_refused_in_one_line(refused, tmp_path, damage):
    root = make_run(tmp_path)
    DAMAGES[damage](RunPaths(root))
    for arguments in (["show"], ["export", "--json"]):
        assert root.name in refused(*arguments, root)


def test_broken_runs_hide_no_other(call, tmp_path):
    good = [make_run(tmp_path)]
    for damage in DAMAGES.values():
        damage(RunPaths(make_run(tmp_path)))
    good.append(make_run(tmp_path))
    rows = {row[0]: row for row in rows_of(call("list", tmp_path))}
    broken = [row for row in rows.values() if row[1].startswith("cannot be read: ")]
    assert len(broken) == len(DAMAGES)
    assert [rows[root.name][2:4] for root in good] == [["finished", "6/6"]] * 2


@pytest.mark.parametrize(
    "damage",
    [make_pipe(LOG), make_link(LOG, "/dev/zero"), make_folder(LOG)],
    ids=["pipe", "device", "folder"],
)
def test_what_is_no_log_is_named_in_one_line(refused, tmp_path, damage):
    root = make_run(tmp_path)
    damage(RunPaths(root))
    assert f"'{root}/{LOG}', which cannot be read: " in refused("logs", root, 0)


def test_a_pipe_in_place_of_the_drivers_files_delays_nothing(call, tmp_path):
    root = make_run(tmp_path, ended=False)
    owners = RunPaths(root).owners
    owners.mkdir(exist_ok=True)
    for name in ("000009.json", "lock"):
        (owners / name).unlink(missing_ok=True)
        os.mkfifo(owners / name)
    assert root.name in call("list", tmp_path)


def test_files_that_are_no_segments_of_the_journal_are_ignored(call, tmp_path):
    root = make_run(tmp_path)
    (root / "journal" / "notes.jsonl").write_text("mine")
    (root / "journal" / "notes.txt").write_text("mine")
    assert "6/6" in call("list", tmp_path)


def test_show_has_the_description_and_the_state_of_a_run(call, finished):
    output = call("show", finished)
    rows = rows_of(output)
    assert rows[0] == ["run", "digits"]
    assert ["state", "finished"] in rows
    assert any(row[1].startswith("12 trials, 2 failed, best accuracy 0.012") for row in rows[:9])
    assert ["folder", str(finished)] in rows
    assert ["optimizer", "adam", "choice"] in rows
    best = rows.index(["Best trials"])
    assert rows[best + 1][:2] == ["trial", "accuracy ↑"]
    assert [row[0] for row in rows[best + 2 : best + 12]] == [
        *("11", "10", "9", "8", "7", "6", "5", "3", "2", "0")
    ]
    failed = rows.index(["Failed trials"])
    assert rows[failed + 2] == ["1", "ValueError: too large", "learning_rate=0.02, optimizer=adam"]
    assert output.endswith(f"-m experiment show {finished} 1\n")
    assert "Running" not in output


def test_show_has_the_arguments_that_a_resume_must_repeat(call, tmp_path):
    algorithm = {"type": "regularized evolution", "popsize": 4}
    search = make_search(3)
    spec = make_spec("run", search.searcher, search.space, algorithm=algorithm)
    rows = rows_of(call("show", make_run(tmp_path, search=spec, repeats=3)))
    arguments = "direction='max', optimization_key='accuracy', seed=7, repeats=3"
    assert ["arguments", f"{arguments}, searcher='regularized evolution', popsize=4"] in rows


def test_show_has_the_number_of_trials_of_a_run_that_was_resumed_for_more(call, tmp_path):
    root = make_run(tmp_path, call="random_search")
    manifest = json.loads((root / "manifest.json").read_text())
    (root / "manifest.json").write_text(json.dumps(manifest | {"trials": 4}))
    (arguments,) = (row[1] for row in rows_of(call("show", root)) if row[0] == "arguments")
    assert arguments.endswith("; since it was resumed, 6 trials")


def test_show_counts_the_outcomes_that_are_ignored(call, tmp_path):
    root = make_run(tmp_path, lost=(2, 3), failed=(3,), running=(4, 5))
    assert not any("ignored" in row for row in rows_of(call("show", root)))
    assert ["ignored", "0 outcomes"] in rows_of(call("show", root, "--verbose"))
    late, other = root / "trials" / "000002", root / "trials" / "000001-2"
    newer = root / "trials" / "000002-2"
    (late / "outcome.json").write_bytes((newer / "outcome.json").read_bytes())
    other.mkdir()
    (other / "outcome.json").write_bytes((newer / "outcome.json").read_bytes())
    given_up = encode(Outcome(4, "stopped", 0.5, reason=GIVEN_UP))
    (root / "trials" / "000004" / "outcome.json").write_bytes(given_up)
    (root / "trials" / "000005" / "outcome.json").write_bytes(b"{")
    shown = rows_of(call("show", root, "-v"))
    assert ["ignored", "4 outcomes"] in shown
    assert shown[-4:] == [
        ["1", "2", "it is that of trial 2"],
        ["2", "1", "attempt 2 counts"],
        ["4", "1", "its slot was given up"],
        ["5", "1", "it is no outcome that a slot has written"],
    ]


def test_show_of_a_run_in_progress_has_the_trials_in_flight(call, unfinished):
    rows = rows_of(call("show", unfinished))
    running = rows.index(["Running, at the last update"])
    assert rows[running + 2] == ["3", "learning_rate=0.04, optimizer=adam"]
    assert rows[running + 3] == [""]
    assert any(
        row[:2]
        == [
            "so far",
            "5 of 6 trials, 1 failed, best accuracy 0.006 in trial 5: "
            "learning_rate=0.06, optimizer=adam",
        ]
        for row in rows
    )


def test_show_of_a_run_that_has_just_started(call, tmp_path):
    output = call("show", started(tmp_path))
    assert "0 of 6 trials" in output
    assert "Best trials" not in output
    assert "Failed trials" not in output


def test_a_description_keeps_its_lines(call, tmp_path):
    output = call("show", make_run(tmp_path, description="one\ntwo"))
    assert rows_of(output)[1:3] == [["description", "one"], ["two"]]


def test_show_of_explicit_points_has_no_space(call, tmp_path):
    root = make_run(tmp_path, points=[{"a": 1}, {"a": 2, "b": "x"}], failed=())
    assert "Space" not in call("show", root)


def test_show_has_points_as_the_call_got_them(call, tmp_path):
    search = make_search(3, call="random_search")
    point = Params({"layers": (64, 32), "clip": math.inf}).to_json()  # as `random_search` keeps it
    search = replace(search, algorithm=dict(search.algorithm or {}) | {"points": [point]})
    root = make_run(tmp_path, search=search)
    rows = dict(row for row in rows_of(call("show", root)) if len(row) == 2)
    shown = "points=[{'layers': (64, 32), 'clip': float('inf')}]"
    assert shown in rows["arguments"]


def test_the_hint_at_a_traceback_names_a_trial_that_has_one(call, tmp_path):
    def outcome(trial):
        traceback = TRACEBACK if trial.id == 2 else ""
        return Outcome.failed(trial.id, "lost executor", "gone", traceback, seconds=1.0)

    root = make_run(tmp_path, trials=3, outcome_of=outcome)
    assert re.search(r"A traceback: .* 2\n$", call("show", root))
    root = make_run(tmp_path, trials=2, outcome_of=outcome)
    assert "A traceback" not in call("show", root)


def test_show_of_a_trial_does_not_need_its_folder(call, finished, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    rows = rows_of(call("show", finished, 5))
    assert ["status", "finished"] in rows
    assert ["folder", str(RunPaths(finished).attempt(5).folder)] in rows


def test_a_folder_that_cannot_be_read_is_an_error_in_a_sentence(refused, tmp_path):
    root = make_run(tmp_path)
    shutil.rmtree(root / "trials")
    (root / "trials").touch()
    assert "Not a directory" in refused("logs", root, 0)


def test_a_full_disk_is_an_error_in_a_sentence(finished, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # with it, nothing is left to the exit
    command = [sys.executable, "-m", "experiment", "export", "--json", finished]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        both = subprocess.run(command, stdout=full, stderr=full, check=False)
    assert (ended.returncode, ended.stderr) == (2, "[Errno 28] No space left on device\n")
    assert both.returncode == 2


def test_many_failures_are_cut_and_counted(call, tmp_path):
    root = make_run(tmp_path, trials=30, failed=range(30))
    assert "Failed trials, 10 more not shown" in call("show", root)


def test_show_of_a_trial_has_all_its_facts(call, finished):
    rows = rows_of(call("show", finished, 5))
    assert rows[:6] == [
        ["trial", "5"],
        ["status", "finished"],
        ["accuracy", "0.006"],
        ["hyperparameters", "learning_rate=0.06, optimizer=adam"],
        ["metrics", "loss=0.994"],
        ["took", "2.5 s"],
    ]
    assert rows[6] == ["folder", str(RunPaths(finished).attempt(5).folder)]
    assert rows[7][1].endswith(f"-m experiment logs {finished} 5")


def test_an_objective_may_be_named_like_a_fact_of_its_trial(call, tmp_path):
    names = ["trial", "took", "metrics", "folder", "metrics.took", "size"]
    values = {name: float(number) for number, name in enumerate(names)}

    def outcome_of(trial):
        return Outcome(trial.id, "finished", values=values, metrics=values, seconds=2.5)

    goal = dict.fromkeys(names, "max")
    root = make_run(tmp_path, trials=1, direction=goal, outcome_of=outcome_of)
    rows = rows_of(call("show", root, 0))
    assert rows[:-1] == [
        ["trial", "0"],
        ["status", "finished"],
        ["metrics.trial", "0"],
        ["metrics.took", "1"],
        ["metrics.metrics", "2"],
        ["metrics.folder", "3"],
        ["metrics.metrics.took", "4"],
        ["size", "5"],
        ["on the front", "with 0 others"],
        ["hyperparameters", "learning_rate=0.01, optimizer=adam"],
        ["took", "2.5 s"],
        ["folder", str(RunPaths(root).attempt(0).folder)],
    ]


def test_a_single_objective_may_be_named_like_a_fact_of_its_trial(call, tmp_path):
    def outcome_of(trial):
        return Outcome(trial.id, "finished", 0.5, "status", {"status": 0.5}, seconds=2.5)

    rows = rows_of(call("show", make_run(tmp_path, trials=1, outcome_of=outcome_of), 0))
    assert rows[1:3] == [["status", "finished"], ["metrics.status", "0.5"]]


def test_show_of_a_failed_trial_has_its_traceback(call, finished):
    output = call("show", finished, 1)
    assert ["error", "ValueError: too large (user error)"] in rows_of(output)
    assert output.endswith(f"\n{TRACEBACK}\n")


def test_show_of_a_trial_in_flight_or_retried(call, unfinished):
    assert ["status", "running at the last update"] in rows_of(call("show", unfinished, 3))
    with owned_by_us(unfinished):
        assert ["status", "running"] in rows_of(call("show", unfinished, 3))
    assert f"{RunPaths(unfinished).attempt(2, 2).folder}\n" in re.sub(
        " +\n", "\n", call("show", unfinished, 2)
    )


def test_show_of_a_trial_that_waits_for_its_next_attempt(call, tmp_path):
    root = make_run(tmp_path, running=(2, 3), ended=False)
    paths = RunPaths(root)
    assert ["status", "running at the last update"] in rows_of(call("show", root, 3))
    [segment] = paths.journal.glob("*.jsonl")
    with Journal(paths.journal) as journal:  # of a resumed search, which has no slot yet
        journal.append(begun(len(segment.read_bytes().splitlines()), trials=6))
    rows = rows_of(call("show", root, 3))
    assert ["status", "waiting to run again, after attempt 1"] in rows
    assert ["folder", str(paths.attempt(3).folder)] in rows


def test_show_needs_no_trial_folders(call, tmp_path):
    root = make_run(tmp_path)
    shutil.rmtree(root / "trials")
    assert ["status", "finished"] in rows_of(call("show", root, 5))


@pytest.mark.parametrize("number", [-1, 6, 10**30, -(10**30), 2**53 + 1])
@pytest.mark.parametrize("command", ["show", "logs"])
def test_an_unknown_trial_is_refused(refused, unfinished, command, number):
    error = refused(command, unfinished, number)
    assert error.startswith("trial: expected the number of a trial that has started, got ")
    assert f"-m experiment show {unfinished}" in error


@pytest.mark.parametrize("command", ["show", "logs"])
def test_a_trial_is_refused_before_the_first_one_starts(refused, tmp_path, command):
    assert "no trial has started yet" in refused(command, started(tmp_path), 0)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["show"],
        ["show", "run", "x"],
        ["show", "run", "1.5"],
        ["show", "run", "9" * 5_000],
        ["logs", "run"],
        ["export", "run"],
        ["export", "run", "--csv", "--json"],
    ],
    ids=lambda arguments: " ".join(arguments)[:20] or "nothing",
)
def test_a_command_line_that_cannot_be_read_is_refused_with_its_usage(capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: python -m experiment" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["list", "show", "logs", "stop", "repair", "tensorboard", "export"]
)
def test_the_help_of_each_command_has_an_example_that_can_be_read(capsys, command, monkeypatch):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    _, example = capsys.readouterr().out.split(f"example: python -m experiment {command} ")
    read = []
    monkeypatch.setattr(f"experiment.cli.commands._{command}", read.append)
    arguments = shlex.split(example.partition(">")[0])
    arguments[0] = "/run" if command != "list" else arguments[0]  # not looked for
    assert main([command, *arguments]) == 0
    assert len(read) == 1


def test_the_help_lists_each_command_and_has_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert "example: python -m experiment show latest" in text
    assert re.findall(r"^    (\w+)\b", text, re.MULTILINE) == [
        "list",
        "show",
        "logs",
        "stop",
        "repair",
        "tensorboard",
        "export",
    ]


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"{experiment.__version__}\n")


@pytest.mark.parametrize("command", [["show"], ["logs"], ["tensorboard"], ["export", "--csv"]])
@pytest.mark.parametrize("folder", ["", "missing", "file", "hdfs://host/run", "\x1b[2J", "\udcff"])
def test_a_folder_that_is_no_run_is_refused(refused, tmp_path, monkeypatch, command, folder):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    trial = [0] if command == ["logs"] else []
    assert "run: expected the folder of a run" in refused(*command, folder, *trial)


def test_a_url_with_a_slash_too_few_is_no_folder_of_this_host(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in ("list", "show", "stop", "repair", "tensorboard"):
        assert "on Databricks, write '/dbfs/runs'" in refused(command, "dbfs:/runs")
    assert "a URL has two slashes" in refused("show", "s3a:/x")


def test_a_folder_of_runs_where_one_is_needed_names_the_newest(refused, finished):
    assert str(finished) in refused("show", finished.parent)


def test_logs_are_the_output_of_a_trial_on_the_same_streams(capfd, finished):
    assert main(["logs", str(finished), "5"]) == 0
    assert capfd.readouterr() == ("trial 5 says hello\n", "trial 5 warns\n")


def test_logs_are_of_every_attempt(capfd, unfinished):
    RunPaths(unfinished).attempt(2, 2).stdout.write_text("again\n")
    assert main(["logs", str(unfinished), "2"]) == 0
    heads = [f"--- trial 2, attempt {number} ---" for number in (1, 2)]
    assert capfd.readouterr().out == f"{heads[0]}\ntrial 2 says hello\n{heads[1]}\nagain\n"


def test_an_attempt_without_a_folder_hides_no_later_one(capfd, tmp_path):
    run = make_run(tmp_path, lost=(2,))
    RunPaths(run).attempt(2, 2).folder.rename(RunPaths(run).attempt(2, 3).folder)
    assert main(["logs", str(run), "2"]) == 0
    heads = [f"--- trial 2, attempt {number} ---" for number in (1, 3)]
    assert [line for line in capfd.readouterr().out.splitlines() if "---" in line] == heads


@pytest.mark.parametrize("latest", ["latest", "experiments/latest"])
def test_the_newest_run_is_called_latest(call, tmp_path, monkeypatch, latest):
    monkeypatch.chdir(tmp_path)
    for number in (0, 1):
        run = make_run(tmp_path / "experiments", trials=number + 2)
        os.utime(run / "manifest.json", (number, number))
    assert str(run) in call("show", latest)
    assert str(RunPaths(run).attempt(2).folder) in call("show", latest, 2)


def test_latest_is_refused_without_a_run(refused, tmp_path):
    assert f"expected a folder of runs, got '{tmp_path}', which has none" in refused(
        "show", f"{tmp_path}/latest"
    )


def test_the_folder_of_an_executor_is_listed_as_one(call, tmp_path):
    search = make_search(0, points=[{}, {}])
    make_run(tmp_path, search=replace(search, call="executor"))
    (row,) = rows_of(call("list", tmp_path))[1:]
    assert row[2:] == ["executor, finished", "2 calls", "1"]


def test_of_the_calls_of_an_executor_none_is_the_best(call, tmp_path):
    search = make_search(0, points=[{}, {}])
    shown = call("show", make_run(tmp_path, search=replace(search, call="executor")))
    assert re.search(r"so far +2 calls *\n", shown)
    assert "best" not in shown.lower()


def test_the_newest_run_is_the_one_that_began_last_though_an_older_one_was_copied_later(
    call, tmp_path
):
    names = ["digits-20250101T000000Z-00000000", "digits-20261101T000000Z-00000000"]
    for number, name in enumerate(reversed(names)):
        folder = make_run(tmp_path).rename(tmp_path / name)
        os.utime(folder / "manifest.json", (number, number))
    assert [row[0] for row in rows_of(call("list", tmp_path))[1:]] == names


@pytest.mark.parametrize("name", ["renamed", "digits-20261301T000000Z-00000000"])
def test_a_run_whose_name_has_no_time_counts_from_its_manifest(call, tmp_path, name):
    folder = make_run(tmp_path).rename(tmp_path / name)
    os.utime(folder / "manifest.json", (0, 0))
    newer = make_run(tmp_path)
    assert [row[0] for row in rows_of(call("list", tmp_path))[1:]] == [name, newer.name]


def test_logs_of_a_trial_that_printed_nothing_are_empty(capfd, tmp_path):
    root = make_run(tmp_path)
    shutil.rmtree(root / "trials" / "000000")
    (root / "trials" / "000000").mkdir()
    assert main(["logs", str(root), "0"]) == 0
    assert capfd.readouterr() == ("", "")


def logs_of(data):
    """Return the output of `logs` for the bytes that a trial printed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out:
        paths = RunPaths(Path(folder)).attempt(0)
        paths.folder.mkdir(parents=True)
        RunPaths(Path(folder)).manifest.touch()
        paths.stdout.write_bytes(data)
        assert main(["logs", folder, "0"]) == 0
        return out.getvalue()


def as_text(data):
    """Return bytes as text with a line end at each end of a line, also where a bar starts anew."""
    text = re.sub("\r\n?", "\n", data.decode("utf-8", "replace"))
    return text if not text or text.endswith("\n") else text + "\n"


pieces = st.sampled_from(
    [b"a", b"\r", b"\n", b"\r\n", b"\x1b", b"[31m", b"\x1b[2J", b"\xc3", b"\xbc", b"\xff", b"\0"]
)


@given(st.binary() | st.lists(pieces).map(b"".join))
def test_any_bytes_are_shown_without_control_characters(data):
    assert logs_of(data) == printable(as_text(data), keep="\n\t")


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"1%\r2%\r3%\r\ndone", "1%\n2%\n3%\ndone\n"),
        (b"\x1b[1;31mred\x1b[0m\tand \x1b[2Jgone\x1b]0;t\x07\n", "red\tand ?[2Jgone?]0;t?\n"),
        ("naïve".encode("latin-1"), "na\ufffdve\n"),
        ("ü".encode()[:1], "\ufffd\n"),
        (b"\xe2\x80\xae\n", "?\n"),
    ],
    ids=ascii,
)
def test_logs_decode_text_and_progress_bars(data, wanted):
    assert logs_of(data) == wanted


@pytest.mark.parametrize("before", [65_534, 65_535, 65_536])
@pytest.mark.parametrize("data", ["ü".encode(), b"\r\n", b"\r", b"\xff"], ids=ascii)
def test_a_log_may_be_read_in_any_pieces(before, data):
    data = b"\n" * before + data + b"x"
    assert logs_of(data) == as_text(data)


def test_a_line_of_ten_megabytes_without_end_is_shown():
    assert logs_of(b"x" * 10_000_000) == "x" * 10_000_000 + "\n"


@contextlib.contextmanager
def started_command(*arguments):
    """Yield a running command, and end it."""
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def follow(*arguments):
    return started_command("logs", "-f", *arguments)


def test_a_log_is_followed_until_the_trial_has_ended(tmp_path):
    root = make_run(tmp_path, running=(3,), ended=False)
    paths = RunPaths(root).attempt(3)
    with follow(root, 3) as process, paths.stdout.open("ab") as log:
        assert process.stdout.readline() == "trial 3 says hello\n"
        for number in range(3):
            log.write(b"epoch \xff%d\n" % number)
            log.flush()
            assert process.stdout.readline() == f"epoch \ufffd{number}\n"
        log.write(b"the last line")
        log.flush()
        paths.outcome.write_text("{}")
        assert process.communicate(timeout=SECONDS) == ("the last line\n", "trial 3 warns\n")
        assert process.returncode == 0


def test_a_long_line_is_shown_before_it_has_an_end(tmp_path):
    root = make_run(tmp_path, running=(3,), ended=False)
    with follow(root, 3) as process:
        assert process.stdout.readline() == "trial 3 says hello\n"
        with RunPaths(root).attempt(3).stdout.open("ab") as log:
            log.write(b"x" * 200_000)
        assert process.stdout.read(100_000) == "x" * 100_000


def test_a_log_that_does_not_exist_yet_is_followed(tmp_path):
    root = make_run(tmp_path, running=(3,), ended=False)
    paths = RunPaths(root).attempt(3)
    paths.stdout.unlink()
    with follow(root, 3) as process:
        assert process.stderr.readline() == "trial 3 warns\n"
        paths.stdout.write_text("hello\n")
        assert process.stdout.readline() == "hello\n"


@pytest.mark.parametrize("arguments", [{}, {"running": (3,)}], ids=["finished", "cancelled"])
def test_an_ended_trial_is_not_followed(tmp_path, arguments):
    ended = run("logs", "-f", make_run(tmp_path, **arguments), 3)
    assert (ended.returncode, ended.stdout) == (0, "trial 3 says hello\n")


def test_a_retried_trial_is_followed_through_its_next_attempt(tmp_path):
    root = make_run(tmp_path, running=(3,), ended=False)
    again = RunPaths(root).attempt(3, 2)
    with follow(root, 3) as process:
        assert process.stdout.readline() == "trial 3 says hello\n"
        again.folder.mkdir()
        again.stdout.write_text("hello again\n")
        assert process.stdout.readline() == "--- trial 3, attempt 2 ---\n"
        assert process.stdout.readline() == "hello again\n"
        again.outcome.write_text("{}")
        assert process.communicate(timeout=SECONDS) == ("", "trial 3 warns\n")
        assert process.returncode == 0


def test_a_trial_without_an_outcome_of_its_slot_is_not_followed_for_ever(tmp_path):
    root = make_run(tmp_path, ended=False)
    RunPaths(root).attempt(3).outcome.unlink()
    ended = run("logs", "-f", root, 3)
    assert (ended.returncode, ended.stdout) == (0, "trial 3 says hello\n")


def test_a_trial_whose_driver_is_gone_is_not_followed(tmp_path):
    root = make_run(tmp_path, running=(3,), ended=False)
    mark_as_owned(root)
    ended = run("logs", "-f", root, 3)
    assert (ended.returncode, ended.stdout) == (0, "trial 3 says hello\n")


def test_a_damaged_journal_hides_no_logs(tmp_path):
    root = make_run(tmp_path, running=(3,), ended=False)
    [journal] = RunPaths(root).journal.glob("*.jsonl")
    journal.write_bytes(b"x" + journal.read_bytes())
    with follow(root, 3) as process:
        assert process.stdout.readline() == "trial 3 says hello\n"
        RunPaths(root).attempt(3).outcome.write_text("{}")
        assert process.communicate(timeout=SECONDS) == ("", "trial 3 warns\n")


def test_ctrl_c_ends_a_command_without_a_traceback(tmp_path):
    with follow(make_run(tmp_path, running=(3,), ended=False), 3) as process:
        assert process.stdout.readline() == "trial 3 says hello\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 130
        assert errors in ("", "trial 3 warns\n")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A run for which each command prints more than a pipe holds."""

    def outcome_of(trial):
        return Outcome.failed(trial.id, "user error", "x" * 8_000, "y" * 8_000)

    root = make_run(tmp_path_factory.mktemp("large"), trials=20, outcome_of=outcome_of)
    RunPaths(root).attempt(0).stdout.write_bytes(b"z\n" * 100_000)
    RunPaths(root).attempt(0).stderr.write_bytes(b"z\n" * 100_000)
    for number in range(9):
        shutil.copytree(root, root.with_name(f"{'copy' * 50}-{number}"))
    return root


COMMANDS = {
    "list": ["list", "LOGDIR"],
    "show": ["show", "RUN"],
    "trial": ["show", "RUN", "0"],
    "logs": ["logs", "RUN", "0"],
    "follow": ["logs", "-f", "RUN", "0"],
    "csv": ["export", "--csv", "RUN"],
    "json": ["export", "--json", "RUN"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_pipe_ends_a_command_silently(large, command):
    names = {"LOGDIR": large.parent, "RUN": large}
    reader, writer = os.pipe()
    os.close(reader)
    arguments = [names.get(word, word) for word in COMMANDS[command]]
    both = subprocess.STDOUT if "logs" in arguments else subprocess.PIPE
    ended = run(*arguments, capture_output=False, stdout=writer, stderr=both)
    os.close(writer)
    assert ended.returncode == 0
    assert not ended.stderr


def test_head_gets_its_line(large):
    line = (
        f"{sys.executable} -m experiment export --json {large} | head -1; exit ${{PIPESTATUS[0]}}"
    )
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=SECONDS)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[\n", "")


def not_json(text):
    raise AssertionError(f"{text} is no JSON")


def exported(output):
    return json.loads(output, parse_constant=not_json)


def test_json_has_all_facts_of_all_trials(call, finished):
    trials = exported(call("export", "--json", finished))
    assert [trial["trial"] for trial in trials] == list(range(12))
    assert trials[1] == {
        "trial": 1,
        "status": "failed",
        "attempt": 1,
        "value": None,
        "params": {"learning_rate": 0.02, "optimizer": "adam"},
        "metrics": {},
        "error": {
            "kind": "user error",
            "message": "ValueError: too large",
            "traceback": TRACEBACK,
            "unreached": False,
            "of_store": False,
        },
        "reason": "",
        "seconds": 2.5,
        "logdir": str(RunPaths(finished).attempt(1).folder),
    }
    assert trials[5]["value"] == 0.006
    assert trials[5]["metrics"] == {"accuracy": 0.006, "loss": 0.994}
    assert trials[5]["error"] is None


def of_two_objectives(trial):
    values = {"accuracy": float(trial.id % 4), "size": float(trial.id // 4)}
    return Outcome(trial.id, "finished", values=values, metrics=values, seconds=1.0)


def test_json_says_which_trials_are_on_the_front_without_comparing_them(
    call, tmp_path, monkeypatch
):
    def compared(one, other):
        raise AssertionError("each of many trials with each of the front takes minutes")

    goal = {"accuracy": "max", "size": "min"}
    root = make_run(tmp_path, trials=8, direction=goal, outcome_of=of_two_objectives)
    monkeypatch.setattr(TrialResult, "__eq__", compared)
    trials = exported(call("export", "--json", root))
    assert trials[3]["values"] == {"accuracy": 3.0, "size": 0.0}
    assert [trial["trial"] for trial in trials if trial["on_front"]] == [3]
    assert "value" not in trials[0]


ODD = [
    {"x": math.inf, "y": "a,b"},
    {"x": -math.inf, "y": 'say "a"'},
    {"x": 10**300, "y": "two\nlines"},
    {"x": 0.1, "y": "a\rb"},
    {"x": 1, "y": "a\r\nb"},
    {"x": 2, "y": " a "},
    {"x": 3, "y": HOSTILE},
    {"x": 4, "y": "ü 漢 😀"},
    {"x": 5, "y": "='a'"},
]


def odd_metrics(trial):
    metrics = {"loss": 1.0, "inf": math.inf, "nan": math.nan}
    return Outcome(trial.id, "finished", 1.0, "loss", metrics, seconds=1.0)


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("odd"), points=ODD, outcome_of=odd_metrics)


def test_json_is_standard_json_for_any_values(call, odd):
    trials = exported(call("export", "--json", odd))
    assert [trial["params"]["y"] for trial in trials] == [point["y"] for point in ODD]
    assert [trial["params"]["x"] for trial in trials] == [
        "inf",
        "-inf",
        *(point["x"] for point in ODD[2:]),
    ]
    assert trials[0]["metrics"] == {"loss": 1.0, "inf": "inf", "nan": "nan"}


def test_nested_values_are_lists_in_json(call, tmp_path):
    point = {"a": (1, (math.inf, [None])), "b": {"c": (-math.inf,)}}
    root = make_run(tmp_path, points=[point], failed=())
    [trial] = exported(call("export", "--json", root))
    assert trial["params"] == {"a": [1, ["inf", [None]]], "b": {"c": ["-inf"]}}


def test_none_and_a_missing_hyperparameter_differ_in_csv(call, tmp_path):
    large = 2**53 + 1
    points = [{"a": None, "n": large}, {"a": 1, "n": 0.5}, {"b": 2}]
    root = make_run(tmp_path, points=points, failed=())
    rows = list(csv.DictReader(io.StringIO(call("export", "--csv", root))))
    assert [row["a"] for row in rows] == ["None", "1", ""]
    assert [row["n"] for row in rows] == [str(large), "0.5", ""]


def test_the_epochs_of_short_trials_are_exported(call, tmp_path):
    space = Space.of_bounds({"rate": [0.0, 1.0]})
    search = started_searcher(Hyperband, space, 7, max_epochs=3)
    spec = make_spec("hyperband_search", search, space, algorithm=Hyperband(max_epochs=3).to_json())
    with pytest.warns(UserWarning, match="each of them may train in full"):  # they report nothing
        root = make_run(tmp_path, trials=search.total, failed=(), search=spec)
    trials = exported(call("export", "--json", root))
    table = pandas.read_csv(io.StringIO(call("export", "--csv", root)))
    assert [trial["max_steps"] for trial in trials] == list(table.max_steps)
    assert {1, 3} <= set(table.max_steps)


def test_csv_is_read_back_as_the_same_table(call, odd, finished):
    table = pandas.read_csv(io.StringIO(call("export", "--csv", odd), newline=""))
    assert list(table.trial) == list(range(len(ODD)))
    assert list(table.y) == [point["y"] for point in ODD]
    table = pandas.read_csv(io.StringIO(call("export", "--csv", finished)))
    first = ["trial", "status", "value", "learning_rate", "optimizer"]
    assert list(table.columns)[:5] == first
    assert list(table.columns)[-3:] == ["seconds", "error", "logdir"]
    assert list(table.value.isna()) == [number in (1, 4) for number in range(12)]
    assert list(table.error.dropna()) == ["ValueError: too large"] * 2


def test_a_run_in_progress_is_exported(call, unfinished):
    trials = exported(call("export", "--json", unfinished))
    assert [trial["trial"] for trial in trials] == [0, 1, 2, 4, 5]
    assert len(pandas.read_csv(io.StringIO(call("export", "--csv", unfinished)))) == 5


def test_a_run_without_a_trial_is_exported_as_an_empty_list(call, tmp_path):
    root = started(tmp_path)
    assert exported(call("export", "--json", root)) == []
    assert len(pandas.read_csv(io.StringIO(call("export", "--csv", root)))) == 0


def test_no_command_prints_control_characters(capfd, hostile):
    for command in COMMANDS.values():
        if "export" in command:
            continue
        words = {"LOGDIR": hostile.parent, "RUN": hostile}
        assert main([str(words.get(word, word)) for word in command]) == 0
        output, errors = capfd.readouterr()
        for line in (output + errors).splitlines():
            assert line.replace("\t", "").isprintable(), command


def test_errors_have_no_control_characters(capfd, hostile):
    for arguments in (["show", str(hostile), "9"], ["list", str(hostile)]):
        assert main(arguments) == 2
        assert capfd.readouterr().err.replace("\n", "").isprintable()


@pytest.mark.parametrize("command", COMMANDS)
def test_on_a_terminal_hostile_text_moves_no_cursor(hostile, command):
    words = {"LOGDIR": hostile.parent, "RUN": hostile}
    arguments = [str(words.get(word, word)) for word in COMMANDS[command]]
    program = f"from experiment.cli.commands import main; main({arguments!r})"
    _, raw = in_terminal(program, columns=60)
    text = re.sub(rb"\x1b\[[0-9;]*m", b"", raw).decode()
    assert text.replace("\r\n", "").replace("\t", "").isprintable()


def test_text_of_the_user_is_no_markup(call, hostile):
    output = call("show", hostile)
    assert HARMLESS in output
    assert "b[red]" in output
    assert "[/red]:smile:" in output


def test_tensorboard_serves_until_ctrl_c(finished):
    with started_command("tensorboard", finished) as process:
        url = process.stdout.readline().removeprefix("TensorBoard: ").strip()
        with urllib.request.urlopen(f"{url}/data/logdir", timeout=SECONDS) as answer:
            assert json.loads(answer.read())["logdir"] == str(finished)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
        assert (process.returncode, errors) == (130, "")
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=SECONDS)


def test_a_tensorboard_that_ends_by_itself_is_status_2_and_one_line(finished):
    with started_command("tensorboard", finished) as process:
        assert process.stdout.readline().startswith("TensorBoard: ")
        for server in psutil.Process(process.pid).children():
            server.kill()
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 2
        assert errors == "TensorBoard has ended by itself, with status -9\n"


def test_a_bad_folder_is_status_2_and_one_line_on_standard_error(tmp_path):
    ended = run("show", tmp_path / "missing")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.splitlines()) == 1


def test_commands_need_neither_tensorflow_nor_spark(finished):
    program = f"""
import sys
import experiment
from experiment.cli.commands import main
main(["list", {str(finished.parent)!r}])
main(["show", {str(finished)!r}])
print({{"tensorflow", "pyspark", "grpc"}} & set(sys.modules), file=sys.stderr)
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert ended.stderr == "set()\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_whose_name_is_no_unicode_can_be_shown(tmp_path, command):
    root = make_run(tmp_path)
    folder = root.rename(root.with_name("run-\udcff"))
    words = {"LOGDIR": tmp_path, "RUN": folder}
    environment = dict(os.environ) | {"PYTHONIOENCODING": "utf-8:strict"}  # as outside containers
    ended = run(*(words.get(word, word) for word in COMMANDS[command]), env=environment)
    assert ended.returncode == 0, ended.stderr


def test_a_stopped_trial_is_shown_with_its_step_and_reason(call, tmp_path):
    def outcome_of(trial):
        reason = "step 7: 0.25 is not among the best 1 of 4 trials"
        if trial.id == 1:
            return Outcome(
                1,
                "stopped",
                0.25,
                "accuracy",
                {"accuracy": 0.25},
                seconds=1.0,
                reason=reason,
                step=7,
            )
        return Outcome(trial.id, "finished", 0.5, "accuracy", {"accuracy": 0.5}, seconds=1.0)

    root = make_run(tmp_path, trials=3, outcome_of=outcome_of)
    reason = "step 7: 0.25 is not among the best 1 of 4 trials"
    assert "3 trials, 1 stopped, best accuracy 0.5" in call("show", root)
    shown = " ".join(call("show", root, 1).split())
    assert "stopped at " + reason in shown
    trials = json.loads(call("export", "--json", root))
    assert [trial["reason"] for trial in trials] == ["", reason, ""]
    assert reason in call("export", "--csv", root)
