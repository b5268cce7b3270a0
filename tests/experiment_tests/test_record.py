import datetime
import hashlib
import json
import platform
import re
import stat

import msgspec
import pytest

from experiment.record import FORMAT, make_run_folder, write_manifest, write_result
from experiment.result import Result, TrialResult
from search.direction import Direction
from search.trial import Failure
from search.values import from_json, to_json


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
def test_a_run_is_a_new_folder_below_the_given_one(tmp_path, name, label):
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    paths = make_run_folder(tmp_path, name)
    after = datetime.datetime.now(datetime.UTC)
    assert paths.root.parent == tmp_path
    match = re.fullmatch(r"(.+)-(\d{8}T\d{6}Z)-([0-9a-f]{8})", paths.root.name)
    assert match[1] == label
    made = datetime.datetime.strptime(match[2], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    assert before <= made <= after
    assert paths.trials.is_dir()
    assert mode(paths.root) == mode(paths.trials) == 0o700


def test_two_runs_of_one_name_are_two_folders(tmp_path):
    roots = {make_run_folder(tmp_path, "train").root for _ in range(20)}
    assert len(roots) == 20


def test_the_folder_of_all_runs_is_made(tmp_path):
    assert make_run_folder(tmp_path / "a" / "b", "train").root.is_dir()


def test_the_manifest_says_what_the_run_is(tmp_path):
    paths = make_run_folder(tmp_path, "train")
    facts = {"name": "größe", "seed": 2**40, "space": {"lr": {"type": "float"}}, "timeout": None}
    write_manifest(paths, b"the function", facts)
    manifest = read(paths.manifest)
    assert manifest["format"] == FORMAT
    assert facts.items() <= manifest.items()
    assert manifest["function"] == hashlib.sha256(b"the function").hexdigest()
    assert datetime.datetime.fromisoformat(manifest["created"]).utcoffset() == datetime.timedelta(0)
    assert manifest["versions"]["python"] == platform.python_version()
    assert {"pyspark", "deap", "numpy"} <= manifest["versions"].keys()
    assert set(manifest) == {"format", "created", "function", "versions", *facts}
    assert mode(paths.manifest) == 0o600
    assert sorted(path.name for path in paths.root.iterdir()) == ["manifest.json", "trials"]


def finished(number, value, params, metrics):
    return TrialResult(number, params, value, metrics, "finished", None, 2.5, f"/runs/{number}")


def failed(number):
    error = Failure("user error", "ValueError", "Traceback")
    return TrialResult(number, {"a": 1}, None, {}, "failed", error, 1.0, f"/runs/{number}")


def test_a_result_without_a_best_is_written(tmp_path):
    paths = make_run_folder(tmp_path, "train")
    write_result(paths, Result([failed(0), failed(1)], Direction.MIN, "/runs"), "all failed: ü")
    assert read(paths.result) == {
        "format": FORMAT,
        "direction": "min",
        "trials": 2,
        "failed": 2,
        "problem": "all failed: ü",
        "best": None,
    }
    assert mode(paths.result) == 0o600


def test_an_empty_result_is_written(tmp_path):
    paths = make_run_folder(tmp_path, "train")
    write_result(paths, Result([], Direction.MAX, "/runs"), None)
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
    write_result(paths, Result(trials, Direction.MAX, "/runs"), None)
    summary = read(paths.result)
    best = summary.pop("best")
    assert summary == {
        "format": FORMAT,
        "direction": "max",
        "trials": 3,
        "failed": 1,
        "problem": None,
    }
    written = msgspec.json.decode(paths.result.read_bytes())["best"]["params"]
    assert {name: from_json(value) for name, value in written.items()} == params
    assert best.pop("params") == {name: to_json(value) for name, value in params.items()}
    assert best == {
        "trial": 1,
        "status": "finished",
        "value": 0.5,
        "objective": None,
        "metrics": {"accuracy": 0.5, "loss": "nan", "worst": "-inf"},
        "error": None,
        "seconds": 2.5,
    }


def test_writing_again_replaces_the_file_and_leaves_nothing_beside_it(tmp_path):
    paths = make_run_folder(tmp_path, "train")
    for problem in ("first" * 1_000, None):
        write_result(paths, Result([], Direction.MAX, "/runs"), problem)
    assert read(paths.result)["problem"] is None
    assert sorted(path.name for path in paths.root.iterdir()) == ["result.json", "trials"]


def test_a_problem_with_a_surrogate_can_be_written(tmp_path):
    write_result(make_run_folder(tmp_path, "x"), Result([], Direction.MAX, ""), "no file \udcff")
