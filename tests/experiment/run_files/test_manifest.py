import datetime
import json
import os
import platform
import re
import stat
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import experiment
from experiment.results.result import Result
from experiment.results.trial_result import TrialResult
from experiment.run_files.format import FORMAT
from experiment.run_files.loading import read_manifest
from experiment.run_files.manifest import (
    Manifest,
    Summary,
    folder_name,
    now,
    write_manifest,
    write_result,
)
from search.direction import Direction
from search.trial import Failure
from search.values import from_json, to_json
from spark_jobs.run_folder.paths import RunPaths
from tests.experiment.runs import make_manifest, make_run_folder, make_search
from tests.properties import examples


def read(path):
    return json.loads(path.read_text("utf-8"), parse_constant=pytest.fail)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("train", "train"),
        ("my_run-2", "my_run-2"),
        ("../../etc", "etc"),
        ("/etc/passwd", "etc-passwd"),
        ("..", "search"),
        ("", "search"),
        ("größe äöü", "gr-e"),
        ("数据", "search"),
        ("<lambda>", "lambda"),
        ("a\0b\nc d", "a-b-c-d"),
        ("-rf", "rf"),
        ("x" * 500, "x" * 40),
    ],
)
def test_a_folders_name_has_the_label_and_the_time(name, label):
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    folder = folder_name(name)
    after = datetime.datetime.now(datetime.UTC)
    match = re.fullmatch(r"(.+)-(\d{8}T\d{6}Z)-([0-9a-f]{8})", folder)
    assert match[1] == label
    made = datetime.datetime.strptime(match[2], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    assert before <= made <= after


def test_two_runs_with_one_name_have_two_folders():
    assert len({folder_name("train") for _ in range(20)}) == 20


def test_the_manifest_describes_the_run(tmp_path):
    paths = make_run_folder(tmp_path, "train")
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    manifest = make_manifest(make_search(3), name="größe", description="zwei\nZeilen", seed=2**40)
    write_manifest(paths, manifest)
    written = read(paths.manifest)
    assert written["format"] == FORMAT
    assert (written["name"], written["description"]) == ("größe", "zwei\nZeilen")
    assert (written["seed"], written["timeout"], written["trials"]) == (2**40, None, 3)
    assert written["space"] == {
        "learning_rate": {"type": "choice", "values": [0.01, 0.02, 0.03]},
        "optimizer": {"type": "choice", "values": ["adam"]},
    }
    created = datetime.datetime.fromisoformat(written["created"])
    assert created.utcoffset() == datetime.timedelta(0)
    assert before <= created <= datetime.datetime.now(datetime.UTC)
    assert written["versions"]["spark-tf-experiment"] == experiment.__version__
    assert written["versions"]["python"] == platform.python_version()
    assert {"pyspark", "deap", "numpy"} <= written["versions"].keys()
    assert set(written) == {field.name for field in msgspec.structs.fields(Manifest)}
    assert mode(paths.manifest) == 0o600
    assert sorted(path.name for path in paths.root.iterdir()) == ["manifest.json", "trials"]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    name=texts,
    description=texts,
    train=texts,
    key=st.none() | texts,
    seed=st.integers(0, 2**80),
    timeout=st.none() | st.floats(1e-9, 1e9),
    direction=st.sampled_from(["max", "min"]),
    search=st.sampled_from(
        [
            make_search(3),
            make_search(8, generations=True),
            make_search(3, call="random_search"),
            make_search(0, points=[{"x": 1}]),
        ]
    ),
)
@examples(60)
def test_a_manifest_is_read_as_it_was_written(key, search, **facts):
    manifest = make_manifest(search, optimization_key=key, **facts)
    with tempfile.TemporaryDirectory() as folder:
        paths = RunPaths(Path(folder))
        write_manifest(paths, manifest)
        assert read_manifest(paths) == manifest


def test_the_manifest_is_indented_for_people(tmp_path):
    paths = make_run_folder(tmp_path, "train")
    write_manifest(paths, make_manifest(make_search(3), name="größe"))
    lines = paths.manifest.read_text("utf-8").splitlines()
    assert '  "name": "größe",' in lines


def finished(number, value, params, metrics):
    return TrialResult(
        id=number,
        params=params,
        value=value,
        metrics=metrics,
        status="finished",
        error=None,
        seconds=2.5,
        logdir=f"/runs/{number}",
    )


def failed(number):
    error = Failure(kind="user error", message="ValueError", traceback="Traceback")
    return TrialResult(
        id=number,
        params={"a": 1},
        value=None,
        metrics={},
        status="failed",
        error=error,
        seconds=1.0,
        logdir=f"/runs/{number}",
    )


def test_a_result_without_a_best_is_written(tmp_path):
    paths = make_run_folder(tmp_path, "train")
    result = Result([failed(0), failed(1)], Direction.MIN, "/runs", problem="all failed: ü")
    before = now()
    write_result(paths, result)
    summary = read(paths.result)
    assert before <= summary.pop("ended") <= now()
    assert summary == {
        "format": FORMAT,
        "direction": "min",
        "trials": 2,
        "total": 2,
        "failed": 2,
        "problem": "all failed: ü",
        "target": None,
        "exhausted": None,
        "best": None,
    }
    assert mode(paths.result) == 0o600


def test_an_empty_result_is_written(tmp_path):
    paths = make_run_folder(tmp_path, "train")
    write_result(paths, Result([], Direction.MAX, "/runs", total=5))
    summary = read(paths.result)
    assert (summary["trials"], summary["best"], summary["problem"]) == (0, None, None)


def test_the_best_trial_is_written_with_its_parameters(tmp_path):
    paths = make_run_folder(tmp_path, "train")
    params = {
        "layers": (64, (32, 16)),
        "max_norm": float("inf"),
        "options": {"tuple": [1]},
        "n": 2**70,
        "none": None,
    }
    metrics = {"accuracy": 0.5, "loss": float("nan"), "worst": float("-inf")}
    trials = [failed(0), finished(1, 0.5, params, metrics), finished(2, 0.25, {}, {})]
    write_result(paths, Result(trials, Direction.MAX, "/runs", objective="accuracy"))
    summary = read(paths.result)
    best = summary.pop("best")
    assert summary.pop("ended")
    assert summary == {
        "format": FORMAT,
        "direction": "max",
        "trials": 3,
        "total": 3,
        "failed": 1,
        "problem": None,
        "target": None,
        "exhausted": None,
    }
    written = msgspec.json.decode(paths.result.read_bytes())["best"]["params"]
    assert {name: from_json(value) for name, value in written.items()} == params
    assert best.pop("params") == {name: to_json(value) for name, value in params.items()}
    assert best == {
        "trial": 1,
        "status": "finished",
        "value": 0.5,
        "objective": "accuracy",
        "metrics": {"accuracy": 0.5, "loss": "nan", "worst": "-inf"},
        "error": None,
        "seconds": 2.5,
        "reason": "",
        "step": None,
        "values": {},
    }


def test_writing_again_replaces_the_file_and_leaves_no_other(tmp_path):
    paths = make_run_folder(tmp_path, "train")
    for problem in ("first" * 1_000, None):
        write_result(paths, Result([], Direction.MAX, "/runs", problem=problem))
    assert read(paths.result)["problem"] is None
    assert sorted(path.name for path in paths.root.iterdir()) == ["result.json", "trials"]


def test_a_loss_of_power_leaves_no_empty_manifest(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda it: synced.append(os.readlink(f"/proc/self/fd/{it}")))
    paths = make_run_folder(tmp_path, "train")
    write_manifest(paths, make_manifest(make_search(3)))
    write_result(paths, Result([], Direction.MAX, "/runs"))
    names = [Path(name).name.split(".")[1:3] for name in synced]
    assert names == [["manifest", "json"], ["result", "json"]]


def test_a_problem_with_a_surrogate_can_be_written(tmp_path):
    paths = make_run_folder(tmp_path, "x")
    write_result(paths, Result([], Direction.MAX, "", problem="no file \udcff"))
    assert read(paths.result)["problem"] == "no file \\udcff"


def test_a_cancelled_trial_ended_and_did_not_fail(tmp_path):
    paths = make_run_folder(tmp_path, "x")
    cancelled = TrialResult(
        id=1,
        params={},
        value=None,
        metrics={},
        status="cancelled",
        error=None,
        seconds=0.0,
        logdir="/runs/1",
    )
    write_result(paths, Result([failed(0), cancelled], Direction.MAX, "/runs", total=9))
    summary = read(paths.result)
    assert (summary["trials"], summary["failed"], summary["best"]) == (2, 1, None)
    assert set(summary) == {field.name for field in msgspec.structs.fields(Summary)} - {"front"}
