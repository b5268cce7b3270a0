"""What the doctor runs in a process of its own."""

from __future__ import annotations

import json

import pytest

from spark_jobs.doctor import checks
from spark_jobs.doctor.checks import _run_python, look_at_data, room
from spark_jobs.trial.context import DataSettings
from spark_jobs.trial.memory import control_groups
from spark_jobs.zygote.shared_import import SECRETS
from tests.spark_jobs.data.files import put

LOOK = "import json, os; print(json.dumps(dict(os.environ)))"


def test_the_process_that_loads_a_train_function_has_the_environment_of_a_trial(monkeypatch):
    for name in SECRETS:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    changes = {"CUDA_VISIBLE_DEVICES": "1", "OMP_NUM_THREADS": None}
    found = json.loads(_run_python(LOOK, b"", changes, 60.0))
    assert not found.keys() & {*SECRETS, "OMP_NUM_THREADS"}
    assert found["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize("killed", [False, True])
def test_a_host_tells_whether_trials_that_run_out_of_memory_end_its_executor(monkeypatch, killed):
    monkeypatch.setattr(checks, "are_killed_together", lambda: killed)
    assert room(DataSettings()).kills_all is killed


def test_trials_copy_data_of_a_store_and_none_of_their_host(tmp_path):
    paths = [str(tmp_path / "a"), "memory://of the doctor/a"]
    for path in paths:
        put(path, b"12345")
    found = [look_at_data(path, DataSettings()) for path in paths]
    assert [(data.bytes, data.copied) for data in found] == [(5, False), (5, True)]


def test_the_free_memory_is_at_most_what_the_limit_of_a_container_leaves(tmp_path, monkeypatch):
    monkeypatch.setattr(control_groups, "_ROOT", tmp_path)
    monkeypatch.setattr(control_groups, "_OWN", tmp_path / "own")
    for name, number in {"max": 3000, "current": 1000, "stat": ""}.items():
        (tmp_path / f"memory.{name}").write_text(f"{number}\n")
    assert room(DataSettings()).memory == 2000
