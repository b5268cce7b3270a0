import dataclasses
import getpass
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from experiment.setup.settings import Settings, choose_logdir
from search.direction import Direction, Directions
from search.errors import ExperimentError, InvalidArgument
from search.stopping.racing import StudentRacing, WilcoxonRacing
from search.stopping.rules import MedianStopping, Patience, Threshold
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.refusals import StorageFailed

REFUSED = [
    ({"direction": "up"}, "'max' or 'min'", "'up'"),
    ({"direction": "MAX"}, "'max' or 'min'", "'MAX'"),
    ({"direction": None}, "'max' or 'min'", "None"),
    ({"direction": ["max"]}, "'max' or 'min'", "['max']"),
    ({"direction": {}}, "at least two objectives", "{}"),
    ({"direction": {"loss": "min"}}, "at least two objectives", "{'loss': 'min'}"),
    (
        {"optimization_key": "a", "direction": {"a": "max", "b": "min"}},
        "None with several objectives",
        "'a'",
    ),
    (
        {"stopping": Patience(3), "direction": {"a": "max", "b": "min"}},
        "None with several objectives",
        "Patience(patience=3, min_delta=0.0)",
    ),
    ({"name": ""}, "a non-empty string", "''"),
    ({"name": 5}, "a string", "5"),
    ({"name": b"run"}, "a string", "b'run'"),
    ({"description": None}, "a string", "None"),
    ({"description": 1.5}, "a string", "1.5"),
    ({"optimization_key": ""}, "a non-empty string", "''"),
    ({"optimization_key": ["loss"]}, "a string", "['loss']"),
    ({"logdir": ""}, "the path of a folder", "''"),
    ({"logdir": 7}, "the path of a folder", "7"),
    ({"logdir": b"runs"}, "the path of a folder", "b'runs'"),
    ({"logdir": "s3://bucket/runs"}, "the path of a folder, or hdfs://...", "'s3://bucket/runs'"),
    ({"logdir": "hdfs:/runs"}, "a path or a URL", "'hdfs:/runs'"),
    ({"logdir": "dbfs:/runs"}, "a path or a URL", "'dbfs:/runs'"),
    ({"logdir": "abfss://x@y/runs"}, "the path of a folder, or hdfs://...", "'abfss://x@y/runs'"),
    ({"resume": "dbfs:/runs/a"}, "a path or a URL", "'dbfs:/runs/a'"),
    ({"resume": "s3a:/x"}, "a path or a URL", "'s3a:/x'"),
    ({"resume": "s3a://x/a"}, "the path of a folder, or hdfs://...", "'s3a://x/a'"),
    ({"logdir": "webhdfs://ho st/runs"}, "webhdfs://host:port/path", "'webhdfs://ho st/runs'"),
    ({"parallelism": 0}, "an integer of at least 1", "0"),
    ({"parallelism": -1}, "an integer of at least 1", "-1"),
    ({"parallelism": 10**9}, "an integer from 1 to 100,000, or None", "1000000000"),
    ({"parallelism": 1.5}, "an integer of at least 1", "1.5"),
    ({"parallelism": True}, "an integer of at least 1", "True"),
    ({"parallelism": "2"}, "an integer of at least 1", "'2'"),
    ({"repeats": 0}, "an integer of at least 1", "0"),
    ({"gpus_per_trial": -1}, "an integer of at least 0, or None", "-1"),
    ({"gpus_per_trial": 0.5}, "an integer of at least 0, or None", "0.5"),
    ({"gpus_per_trial": True}, "an integer of at least 0, or None", "True"),
    ({"trials_per_gpu": 0}, "an integer of at least 1", "0"),
    ({"trials_per_gpu": None}, "an integer of at least 1", "None"),
    ({"trials_per_gpu": 2.0}, "an integer of at least 1", "2.0"),
    ({"trials_per_gpu": 65}, "at most 64", "65"),
    ({"trials_per_gpu": 4, "gpus_per_trial": 2}, "1 with gpus_per_trial=2", "4"),
    ({"trials_per_gpu": 4, "gpus_per_trial": 0}, "1 with gpus_per_trial=0", "4"),
    ({"workers_per_trial": 0}, "an integer of at least 1", "0"),
    ({"workers_per_trial": None}, "an integer of at least 1", "None"),
    ({"workers_per_trial": 2.0}, "an integer of at least 1", "2.0"),
    (
        {"workers_per_trial": (4, 2)},
        "an integer, or a least and a greater number, such as (2, 4)",
        "(4, 2)",
    ),
    ({"trials_per_gpu": 2, "workers_per_trial": (1, 3)}, "1 with 1 to 3 workers", "2"),
    ({"trials_per_gpu": 2, "workers_per_trial": 3}, "1 with 3 workers", "2"),
    ({"strategy": "ring"}, "experiment.Codistillation(...) or None", "'ring'"),
    ({"precision": "float16"}, "'mixed_bfloat16', 'mixed_float16' or None", "'float16'"),
    ({"precision": 16}, "'mixed_bfloat16', 'mixed_float16' or None", "16"),
    (
        {"precision": "mixed_float16", "gpus_per_trial": 0},
        "'mixed_bfloat16' or None with gpus_per_trial=0",
        "'mixed_float16'",
    ),
    (
        {"isolation": "none", "workers_per_trial": 3},
        "'process' or 'spawn' with 3 workers",
        "'none'",
    ),
    ({"timeout": 0}, "seconds above zero", "0"),
    ({"timeout": -1}, "seconds above zero", "-1"),
    ({"timeout": math.nan}, "seconds above zero", "nan"),
    ({"timeout": math.inf}, "seconds above zero", "inf"),
    ({"timeout": True}, "seconds above zero", "True"),
    ({"timeout": "10"}, "seconds above zero", "'10'"),
    ({"timeout": 5, "isolation": "none"}, "None with isolation='none'", "5"),
    ({"grace": 0}, "seconds above zero", "0"),
    ({"grace": None}, "seconds above zero", "None"),
    ({"deadline": 0}, "seconds above zero, or None", "0"),
    ({"deadline": "1h"}, "seconds above zero, or None", "'1h'"),
    ({"target": math.inf}, "a finite number, or None", "inf"),
    ({"target": math.nan}, "a finite number, or None", "nan"),
    ({"target": True}, "a finite number, or None", "True"),
    ({"target": "0.9"}, "a finite number, or None", "'0.9'"),
    ({"startup_timeout": -1}, "seconds above zero, or None", "-1"),
    ({"startup_timeout": math.inf}, "seconds above zero, or None", "inf"),
    ({"stopping": "median"}, "a stopping rule or a list of them", "'median'"),
    ({"stopping": 5}, "a stopping rule or a list of them", "5"),
    ({"max_failures": -1}, "an integer of at least 0", "-1"),
    ({"max_failures": 0.5}, "an integer of at least 0", "0.5"),
    ({"max_failures": False}, "an integer of at least 0", "False"),
    ({"seed": -1}, "an integer of at least 0", "-1"),
    ({"seed": 1.0}, "an integer of at least 0", "1.0"),
    ({"isolation": "thread"}, "'process', 'spawn' or 'none'", "'thread'"),
    ({"isolation": None}, "'process', 'spawn' or 'none'", "None"),
    ({"verbose": 3}, "0, 1 or 2", "3"),
    ({"verbose": -1}, "0, 1 or 2", "-1"),
    ({"verbose": True}, "0, 1 or 2", "True"),
    ({"verbose": False}, "0, 1 or 2", "False"),
    ({"verbose": 1.0}, "0, 1 or 2", "1.0"),
    ({"verbose": "1"}, "0, 1 or 2", "'1'"),
    ({"verbose": None}, "0, 1 or 2", "None"),
    ({"verbose": [1]}, "0, 1 or 2", "[1]"),
    ({"preload": "tensorflow"}, "a list of module names, or None", "'tensorflow'"),
    ({"preload": [1]}, "a list of module names, or None", "[1]"),
    ({"preload": [""]}, "a list of module names, or None", "['']"),
    ({"preload": [".x"]}, "a list of module names, or None", "['.x']"),
]


@pytest.mark.parametrize(("arguments", "expected", "got"), REFUSED, ids=lambda case: str(case)[:40])
def test_an_invalid_setting_is_refused_by_name(arguments, expected, got):
    name = next(iter(arguments))
    with pytest.raises(InvalidArgument) as caught:
        Settings(**arguments)
    error = caught.value
    assert error.name == name
    assert expected in error.expected
    assert error.got == got
    assert str(error).startswith(f"{name}: expected {error.expected}, got {error.got}")


def test_a_refusal_is_a_value_error_and_an_experiment_error():
    with pytest.raises(ValueError, match="direction"):
        Settings(direction="up")
    assert issubclass(InvalidArgument, ExperimentError)


@pytest.mark.parametrize(
    ("stopping", "name", "hint"),
    [
        (MedianStopping, "stopping", "write MedianStopping(...)"),
        ([Patience(1), Threshold], "stopping[1]", "write Threshold(...)"),
        ([None], "stopping[0]", "such as MedianStopping()"),
    ],
)
def test_an_object_that_is_no_stopping_rule_is_refused_with_a_hint(stopping, name, hint):
    with pytest.raises(InvalidArgument) as caught:
        Settings(stopping=stopping)
    assert caught.value.name == name
    assert hint in str(caught.value)


def test_a_timeout_without_a_process_is_refused_with_the_reason():
    with pytest.raises(InvalidArgument, match="cannot be ended"):
        Settings(timeout=5, isolation="none")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"name": "ü run/1", "description": "", "optimization_key": "val_loss"},
        {"direction": "min", "logdir": Path("runs")},
        {"logdir": "hdfs://host:8020/runs"},
        {"logdir": "hdfs:///runs"},
        {"logdir": "webhdfs://host:9870/runs"},
        {"logdir": "file:///runs"},
        {"parallelism": 1, "timeout": 0.5, "max_failures": 0, "seed": 0},
        {"timeout": 1, "isolation": "spawn", "preload": ()},
        {"isolation": "none", "timeout": None, "preload": ("numpy",)},
        {"seed": 2**70},
        {"grace": 0.5, "deadline": 3600.0, "startup_timeout": None},
        {"stopping": MedianStopping()},
        {"stopping": [Patience(3), Threshold(upper=9.0)]},
        {"stopping": ()},
        {"verbose": 0},
        {"verbose": 1},
        {"verbose": 2},
    ],
    ids=str,
)
def test_valid_settings_are_kept(arguments):
    made = Settings(**arguments)
    assert {name: getattr(made, name) for name in arguments} == arguments


def test_a_search_shows_its_progress_by_default():
    assert Settings().verbose == 1


def test_unknown_and_positional_arguments_are_type_errors():
    with pytest.raises(TypeError, match="paralellism"):
        Settings(paralellism=2)
    with pytest.raises(TypeError):
        Settings("name")


def test_settings_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().seed = 1


def chosen(given, default="experiments"):
    """Return the chosen folder, a local one."""
    location = choose_logdir(given, default, HadoopSettings())
    assert location.scheme == "file"
    return Path(location.path)


def test_a_folder_below_a_working_directory_that_utf_8_cannot_hold_is_refused(
    tmp_path, monkeypatch
):
    odd = Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))
    odd.mkdir()
    monkeypatch.chdir(odd)
    with pytest.raises(InvalidArgument, match="^logdir: expected a folder whose name UTF-8 can"):
        chosen(None)
    assert not list(odd.iterdir())


def test_the_default_folder_is_created_where_the_user_gives_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert chosen(None) == tmp_path / "experiments"
        assert (tmp_path / "experiments").is_dir()
    default, given = tmp_path / "default" / "runs", tmp_path / "given"
    assert chosen(None, str(default)) == default
    assert default.is_dir()
    assert chosen(given, str(tmp_path / "unused")) == given
    assert not (tmp_path / "unused").exists()


def test_the_folder_is_absolute_and_a_tilde_means_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert chosen("a/../b") == tmp_path / "b"
    assert chosen("~/runs") == tmp_path / "home" / "runs"
    assert chosen(None, "~/other") == tmp_path / "home" / "other"
    assert chosen(f"file://{tmp_path}/url") == tmp_path / "url"


@pytest.mark.parametrize("given", [None, "runs", "{cwd}/runs"])
def test_a_folder_that_yarn_removes_with_the_driver_is_refused(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    path = given and given.format(cwd=tmp_path)
    with pytest.raises(
        InvalidArgument, match="YARN removes .*give logdir a shared folder"
    ) as caught:
        choose_logdir(path, "experiments", HadoopSettings(), in_container=True)
    assert caught.value.name == "logdir"
    assert os.listdir(tmp_path) == []


def test_a_driver_in_a_container_of_yarn_may_have_runs_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "container").mkdir()
    monkeypatch.setenv("PWD", str(tmp_path / "container"))
    for folder in ("container", "."):
        monkeypatch.chdir(tmp_path / folder)
        runs = tmp_path / "runs"
        location = choose_logdir(runs, "experiments", HadoopSettings(), in_container=True)
        assert location.path == str(runs)
    monkeypatch.chdir(tmp_path)
    choose_logdir("runs", "experiments", HadoopSettings(), in_container=True)


def test_the_check_leaves_no_files_in_the_folder(tmp_path):
    (tmp_path / "mine").touch()
    chosen(str(tmp_path))
    assert os.listdir(tmp_path) == ["mine"]


@pytest.mark.parametrize("default", ["", "s3://bucket/runs", "hdfs:/runs"])
def test_the_default_is_checked_like_the_argument(default):
    with pytest.raises(InvalidArgument, match="logdir: expected (the path of a folder|a path)"):
        chosen(None, default)


def test_an_hdfs_url_without_a_host_needs_a_default_hdfs():
    with pytest.raises(InvalidArgument, match="since fs.defaultFS is no HDFS"):
        chosen("hdfs:///runs")


def test_an_hdfs_that_does_not_answer_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr("spark_jobs.storage.webhdfs.WebHdfs.__init__.__defaults__", (0.5,))
    with pytest.raises(InvalidArgument) as caught:
        chosen("webhdfs://127.0.0.1:9/runs")
    message = str(caught.value)
    assert message.startswith("logdir: expected a folder that can be written to, got ")
    assert "no WebHDFS at http://127.0.0.1:9 within 0.5 s" in message
    assert isinstance(caught.value, StorageFailed)
    assert "\n" not in message


@pytest.mark.parametrize("below", ["", "runs", "runs/deep"])
def test_a_file_in_place_of_a_folder_is_refused_by_name(tmp_path, below):
    file = tmp_path / "file"
    file.write_text("mine")
    path = file / below
    with pytest.raises(InvalidArgument) as caught:
        chosen(path)
    assert caught.value.name == "logdir"
    assert caught.value.expected == "a folder that can be written to"
    assert str(path) in caught.value.got
    assert file.read_text() == "mine"


@pytest.mark.fault(30)
@pytest.mark.parametrize("path", ["/proc/nope", "/proc/self/fdinfo"])
def test_a_folder_that_cannot_be_written_to_is_refused(path):
    with pytest.raises(InvalidArgument, match="logdir: expected a folder that can be written to"):
        chosen(path)


@pytest.mark.fault(30)
def test_a_folder_of_another_user_is_refused_with_path_and_user(tmp_path):
    folder = tmp_path / "not mine"
    folder.mkdir(mode=0o500)
    user = os.geteuid()
    if user == 0:  # root can write everywhere
        os.seteuid(12_345)
    try:
        with pytest.raises(InvalidArgument) as caught:
            chosen(folder)
    finally:
        os.seteuid(user)
    name = "12345" if user == 0 else getpass.getuser()
    assert caught.value.got == f"{str(folder)!r}: Permission denied, as user {name}"


@pytest.mark.fault(30)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize(
    ("options", "problem"),
    [("ro", "Read-only file system"), ("size=4k", "No space left on device")],
)
def test_a_read_only_and_a_full_disk_are_refused(tmp_path, options, problem):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        if options != "ro":
            (disk / "full").write_bytes(bytes(4096))
        with pytest.raises(InvalidArgument) as caught:
            chosen(disk)
        assert caught.value.got == f"{str(disk)!r}: {problem}, as user root"
        assert isinstance(caught.value, StorageFailed) == (options != "ro")
        assert [path.name for path in disk.iterdir()] in ([], ["full"])
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize(
    "arguments",
    [
        {"preload": 5},
        {"preload": "keras"},
        {"timeout": 10**400},
        {"verbose": np.array([1, 2])},
        {"logdir": Path("hdfs://host/runs")},
        {"logdir": "a\0b"},
        {"name": "\udcff"},
        {"description": "\udcff"},
        {"optimization_key": "\udcff"},
    ],
    ids=ascii,
)
def test_no_other_exceptions_are_raised(arguments):
    with pytest.raises(InvalidArgument) as caught:
        Settings(**arguments)
    assert caught.value.name == next(iter(arguments))


def test_a_null_byte_is_refused():
    with pytest.raises(InvalidArgument, match="logdir"):
        chosen("a\0b")


def test_preload_may_be_an_iterator():
    assert tuple(Settings(preload=iter(["a"])).preload) == ("a",)


def test_numpys_numbers_and_strings_are_converted_to_python_types():
    made = Settings(timeout=np.float64(2.5), name=np.str_("a"))
    assert (type(made.timeout), type(made.name)) == (float, str)


def test_several_objectives_keep_their_order_and_are_copied():
    given = {"b": "min", "a": Direction.MAX}
    settings = Settings(direction=given)
    given["c"] = "max"
    assert list(settings.direction.items()) == [("b", "min"), ("a", "max")]
    assert settings.goal == Directions({"b": Direction.MIN, "a": Direction.MAX})
    assert Settings(direction="min").goal is Direction.MIN
    with pytest.raises(
        InvalidArgument, match=r"direction\['b'\]: expected 'max' or 'min', got 'up'"
    ):
        Settings(direction={"a": "max", "b": "up"})


def test_repeats_race_unless_there_are_several_objectives():
    assert Settings(repeats=3).rules == (StudentRacing(),)
    assert Settings(repeats=3, stopping=Patience(2)).rules == (Patience(2), StudentRacing())
    own = WilcoxonRacing(p_threshold=0.3)
    assert Settings(repeats=3, stopping=own).rules == (own,)
    assert Settings(stopping=Patience(2)).rules == (Patience(2),)
    assert Settings(repeats=3, direction={"a": "max", "b": "min"}).rules == ()
