"""What a slot finds out about its host."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from spark_jobs.slot import host
from spark_jobs.slot.host import folder_problem, host_name, modules_problem
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location


def problem_of(folder, tell=pytest.fail):
    return folder_problem(Location.parse(str(folder)), HadoopSettings(), tell)


def test_a_host_has_its_own_name_where_spark_has_none():
    assert host_name() == socket.gethostname()


def test_a_host_has_the_name_that_spark_gave_to_the_executor():
    ask = "from spark_jobs.slot.host import host_name; print(host_name())"
    call = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ask!r}], check=True)"
    words = ["org.apache.spark.executor.CoarseGrainedExecutorBackend", "--hostname", "10.1.2.3"]
    command = [sys.executable, "-c", call, *words]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "10.1.2.3\n"


@pytest.mark.fault(46)
def test_a_host_without_a_preloaded_module_reports_it():
    assert modules_problem(("math", "pyspark.sql")) == ""
    problem = modules_problem(("math", "no_such_package.module"))
    assert problem.startswith(f"host {socket.gethostname()}, Python {sys.executable}: no module ")
    assert "'no_such_package.module', which the driver has" in problem


def test_a_host_that_does_not_see_the_drivers_folder_says_so_and_makes_none(tmp_path):
    root = tmp_path / "run-20260101T000000Z-0123abcd"
    for missing in (root, tmp_path / "file" / "run"):
        (tmp_path / "file").touch()
        problem = problem_of(missing)
        assert f"host {socket.gethostname()} does not see the folder {missing}" in problem
        assert problem.endswith("give logdir a shared folder or hdfs://...")
        assert not missing.exists()


def test_a_folder_that_is_there_is_the_drivers_and_the_check_leaves_nothing_in_it(tmp_path):
    (tmp_path / "manifest.json").touch()
    assert problem_of(tmp_path) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_folder_that_a_host_cannot_write_to_is_one_sentence(tmp_path):
    (tmp_path / "run").touch()
    problem = problem_of(tmp_path / "run")
    assert f"cannot write to the folder {tmp_path / 'run'}: File exists; " in problem
    assert problem.endswith("give logdir a shared folder or hdfs://...")
    assert "\n" not in problem


@pytest.mark.fault(31)
def test_a_host_with_full_disks_cannot_write_to_the_folder(tmp_path):
    look = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
        "from tests.spark_jobs.slot.test_host import problem_of; "
        "print(problem_of(sys.argv[1], print))"
    )
    command = [sys.executable, "-B", "-c", look, str(tmp_path)]
    problem = subprocess.run(command, capture_output=True, text=True).stdout
    assert f"cannot write to the folder {tmp_path}: File too large; " in problem


def test_a_slot_that_starts_in_an_outage_waits_and_warns(tmp_path, monkeypatch):
    sent, tries = [], []

    def away_at_first(files, folder):
        tries.append(folder)
        if len(tries) == 1:
            raise ConnectionError("away")

    monkeypatch.setattr(host, "check_writable", away_at_first)
    assert problem_of(tmp_path, sent.append) == ""
    assert len(tries) == 2
    assert "away; retrying" in sent[0]
