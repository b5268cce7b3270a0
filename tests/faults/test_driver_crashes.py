"""Drivers that are killed with SIGKILL repeatedly, and runs that are resumed after each."""

from __future__ import annotations

import contextlib
import getpass
import re
import secrets
import uuid

import msgspec
import pytest

from experiment.run_files.loading import SUMMARY
from spark_jobs.run_folder.mirror import Mirror
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import files_at
from tests.faults.crashes import (
    Driver,
    DriverOptions,
    compare,
    crash_and_resume,
    ends,
    find_run,
    records,
)
from tests.servers import jvm

pytestmark = [pytest.mark.slow, pytest.mark.fault(23)]


def show(crashes):
    print(
        f"\n{crashes.kills} kills of the driver {dict(crashes.where)}: "
        f"{crashes.lost} results lost, {crashes.doubled} doubled"
    )


def test_killed_drivers_lose_and_repeat_no_trial(tmp_path):
    crashes = crash_and_resume(tmp_path, kills=6)  # 50 in `make bench-faults`
    show(crashes)
    assert (crashes.kills, crashes.lost, crashes.doubled) == (6, 0, 0)
    assert len(crashes.where) == 3


@pytest.mark.thorough
def test_killed_drivers_lose_and_repeat_no_trial_on_two_slots(tmp_path):
    crashes = crash_and_resume(tmp_path, kills=4, seed=2, workers=2)
    show(crashes)
    assert (crashes.kills, crashes.lost, crashes.doubled) == (4, 0, 0)


@pytest.mark.thorough
def test_killed_drivers_with_executors_in_other_jvms(tmp_path):
    settings = {"spark.executor.memory": "512m", "spark.executor.memoryOverhead": "384m"}
    settings["spark.executor.extraJavaOptions"] = jvm.SPARK_OPTIONS
    settings["spark.authenticate.secret"] = secrets.token_hex(16)
    master = "local-cluster[2,1,1024]"
    crashes = crash_and_resume(tmp_path, kills=3, seed=1, master=master, settings=settings)
    show(crashes)
    assert (crashes.kills, crashes.lost, crashes.doubled) == (3, 0, 0)


def test_secrets_of_a_killed_driver_are_removed_when_its_run_is_resumed(tmp_path):
    options = DriverOptions(kind="grid", logdir=str(tmp_path / "runs"))

    def files():
        run = find_run(tmp_path / "runs")
        with contextlib.suppress(FileNotFoundError):  # the driver has just removed it
            if run is not None:
                return [path for path in RunPaths(run).secrets.rglob("*") if path.is_file()]
        return []

    with Driver(options, tmp_path / "killed") as driver:
        assert driver.lives_until(lambda: records(find_run(tmp_path / "runs")) > 2), driver.said()
        driver.kill()
    left = files()
    assert len(left) == 2  # one of the slot job, and one of all jobs
    resumed = msgspec.structs.replace(options, resume=str(find_run(tmp_path / "runs")))
    with Driver(resumed, tmp_path / "resumed") as driver:
        assert driver.lives_until(lambda: files() and not set(left) & set(files())), driver.said()
        assert driver.process.wait(timeout=200) == 0, driver.said()
    assert files() == []
    assert not RunPaths(find_run(tmp_path / "runs")).secrets.exists()


@pytest.mark.thorough
def test_a_killed_driver_of_a_run_on_hdfs(hdfs, tmp_path):
    settings = {f"spark.hadoop.{name}": value for name, value in hdfs.settings().items()}
    logdir = Location.parse(f"{hdfs.uri}/crashes/{uuid.uuid4().hex}")
    options = DriverOptions(kind="grid", logdir=str(logdir), isolation="none", settings=settings)
    hadoop = HadoopSettings(hdfs.settings(), getpass.getuser())
    with contextlib.closing(files_at(logdir, hadoop)) as files:

        def run():
            return next(status.location for status in files.listdir(logdir) if status.is_folder)

        def trials():
            with contextlib.suppress(FileNotFoundError, StopIteration):
                return len(files.listdir(run().below("trials")))
            return 0

        def copy(name):
            (tmp_path / name).mkdir()
            Mirror(files, run(), tmp_path / name, re.compile(SUMMARY)).update()
            return tmp_path / name

        with Driver(options, tmp_path / "killed") as driver:
            assert driver.lives_until(lambda: trials() > 6), driver.said()
            driver.kill()
        assert list(tmp_path.glob("killed/experiment-run-*"))
        known = ends(copy("before"))
        resuming = msgspec.structs.replace(options, resume=str(run()))
        with Driver(resuming, tmp_path / "killed") as driver:
            assert driver.process.wait(timeout=400) == 0, driver.said()
        assert not list(tmp_path.glob("killed/experiment-run-*"))
        assert compare(copy("after"), "grid", known) == (0, 0)
        assert trials() >= 12
