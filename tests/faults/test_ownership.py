"""One driver at a time: races, a failing NameNode, and a killed driver with a real Spark."""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from spark_jobs.storage.locations import Location
from tests.experiment.run_files.owning import Place, race
from tests.experiment.waiting import wait_until

pytestmark = pytest.mark.slow
_FOLDERS = itertools.count()
SILENCE = (
    12.0  # longer than a command of Hadoop takes, and than the pause between a driver's retries
)


@pytest.fixture(params=["local", "without locks", "hdfs"])
def place(request, tmp_path):
    if request.param == "hdfs":
        with on_hdfs(request.getfixturevalue("hdfs")) as place:
            yield place
    else:
        with Place(Location.parse(tmp_path), locks=request.param == "local") as place:
            yield place


def on_hdfs(hdfs):
    root = Location.parse(f"{hdfs.uri}/owned in trouble/{next(_FOLDERS)}")
    return Place(root, hdfs.settings(), locks=False)


@pytest.mark.fault(24)
def test_one_of_several_drivers_that_take_a_run_at_once_gets_it(place):
    drivers = [place.driver() for _ in range(4)]
    for killed in [False] * 12 + [True] * 6:
        winner = race(drivers)
        if killed:
            winner.kill()
            drivers.remove(winner)
            drivers.append(place.driver())
        else:
            assert winner.ask("release") == "released"
    assert all(driver.hears_nothing() for driver in drivers)
    numbers = [int(name.partition(".")[0]) for name in place.marks() if name.endswith(".json")]
    assert numbers == list(range(1, 19))


def mark_of(place):
    with place.files() as files:
        return files.status(place.root.below("owners/000001.json")).version


@pytest.mark.fault(24, 28)
@pytest.mark.parametrize(
    "trouble",
    [
        "restart",
        pytest.param("safe mode", marks=pytest.mark.thorough),
        pytest.param("no DataNode", marks=pytest.mark.thorough),
    ],
)
def test_a_cluster_in_trouble_makes_no_owner_dead(hdfs, trouble):
    """Although its owner file is not updated for too long while another driver waits."""
    begin = {
        "restart": lambda: hdfs.kill("namenode"),
        "safe mode": lambda: hdfs.admin("-safemode", "enter"),
        "no DataNode": lambda: (hdfs.kill("datanode0"), hdfs.kill("datanode1")),
    }[trouble]
    end = {"safe mode": lambda: hdfs.admin("-safemode", "leave")}.get(trouble, hdfs.restore)
    with on_hdfs(hdfs) as place:
        owner, other = place.driver(silence=SILENCE), place.driver(silence=SILENCE)
        assert owner.take() == "owned"
        owner.process.send_signal(signal.SIGSTOP)
        assert other.ask("take").startswith("note: ")
        begin()
        owner.process.send_signal(signal.SIGCONT)
        time.sleep(SILENCE)
        end()
        assert f"pid {owner.pid} " in other.hear()
        before = mark_of(place)
        wait_until(lambda: mark_of(place) != before)
        assert owner.hears_nothing()
        assert owner.ask("release") == "released"
        assert other.take() == "owned"


DRIVER = """
    import sys
    from pyspark.sql import SparkSession
    from experiment.run_files.ownership import owned
    from spark_jobs.storage.hadoop_settings import HadoopSettings
    from spark_jobs.storage.locations import Location

    folder = sys.argv[1]

    def run(rows):
        import pathlib, time
        pathlib.Path(folder, "started").touch()
        time.sleep(100)
        yield from rows

    place = Location.parse(folder)
    with owned(place, HadoopSettings(), "app", taken=print, tell=print):
        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        spark = spark.getOrCreate()  # its JVM is started while the run is owned
        spark.sparkContext.parallelize([1], 1).mapPartitions(run).count()
"""


@pytest.mark.fault(23, 24)
def test_no_process_of_spark_keeps_the_lock_of_a_killed_driver(tmp_path):
    with Place(Location.parse(tmp_path)) as place:
        other = place.driver()
        script = textwrap.dedent(DRIVER)
        driver = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stderr=subprocess.DEVNULL
        )
        try:
            wait_until((tmp_path / "started").exists)
            children = psutil.Process(driver.pid).children(recursive=True)
            assert len(children) > 1
            assert f"pid {driver.pid} " in other.take()
            holders = [child for child in children if holds(child, tmp_path / "owners" / "lock")]
            assert holders == []
        finally:
            driver.kill()
            driver.wait()
        assert other.ask("take") == "owned"
        psutil.wait_procs(children, timeout=240)


def holds(process, path):
    with contextlib.suppress(psutil.NoSuchProcess):
        return path in [open_file.path for open_file in process.open_files()]
    return False
