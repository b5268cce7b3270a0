"""A bad network between slots and driver: no trial fails, and every result arrives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import psutil
import pytest

from experiment.driver.jobs import slot_jobs
from experiment.run_files.journal import read_journal
from spark_jobs.channel.grpc_channel import ChannelServer
from spark_jobs.run_folder.paths import RunPaths
from tests.proxy import Proxy
from tests.whole_searches.executors.steady_search import (
    SECONDS,
    search,
    steps,
    wait_for_steps,
    wait_until,
)


@pytest.fixture
def proxies(monkeypatch):
    """The proxies between the slots and the driver of each search in the test."""
    made = []

    class Behind(ChannelServer):
        """Gives slots the address of a proxy."""

        def __enter__(self):
            server = super().__enter__()
            self.proxy = Proxy(self.address.target).__enter__()
            self.address = msgspec.structs.replace(self.address, target=self.proxy.address)
            made.append(self.proxy)
            return server

        def __exit__(self, *error):
            self.proxy.__exit__(*error)
            super().__exit__(*error)

    monkeypatch.setattr(slot_jobs, "ChannelServer", Behind)
    return made


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.fault(32, 33)
@pytest.mark.parametrize("harm", ["cut", "hold", "hold answers", "slow"])
def test_trials_continue_and_all_reports_arrive_when_the_network_is_back(
    spark, proxies, logdir, tmp_path, harm
):
    handle = search(spark, logdir, tmp_path)
    wait_for_steps(tmp_path)
    (proxy,) = proxies
    if harm == "cut":
        proxy.cut()
    elif harm == "hold":
        proxy.hold("up", "down")
    elif harm == "hold answers":
        proxy.hold("down")
    else:
        proxy.slow(2_000)
    wait_for_steps(tmp_path)
    if harm != "slow":
        (tmp_path / "enough").touch()  # their outcomes are held up, too
        wait_until(lambda: all_ended(handle, logdir))
        assert handle.status() == "running"
    proxy.forward()
    (tmp_path / "enough").touch()
    result = handle.result(SECONDS)
    assert [trial.status for trial in result.trials] == ["finished"] * 2
    for trial in result.trials:
        heard = [
            report["step"]
            for record in read_journal(RunPaths(Path(result.logdir)).journal)
            if record["event"] == "reported" and record["trial"] == trial.id
            for report in record["reports"]
        ]
        assert list(dict.fromkeys(heard)) == list(range(int(trial.value)))


def all_ended(handle, logdir):
    """Return whether both trials have written their outcome."""
    (root,) = Path(logdir).iterdir()
    return all(RunPaths(root).attempt(trial).outcome.exists() for trial in (0, 1))


@pytest.mark.slow
@pytest.mark.fault(32)
def test_slots_reconnect_when_the_network_drops_one_direction(spark, proxies, logdir, tmp_path):
    handle = search(spark, logdir, tmp_path)
    wait_for_steps(tmp_path)
    (proxy,) = proxies
    proxy.drop("down")
    wait_for_steps(tmp_path)
    before = proxy.connected
    proxy.forward()  # only new connections work
    wait_until(lambda: proxy.connected >= before + 2)
    (tmp_path / "enough").touch()
    assert [trial.status for trial in handle.result(SECONDS).trials] == ["finished"] * 2


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.fault(32)
def test_a_search_with_unreachable_slots_can_be_cancelled(spark, proxies, logdir, tmp_path):
    handle = search(spark, logdir, tmp_path)
    wait_for_steps(tmp_path)
    proxies[0].cut()
    handle.cancel()
    result = handle.result(SECONDS)
    assert [trial.status for trial in result.trials] == ["cancelled"] * 2
    before = [steps(tmp_path, trial) for trial in (0, 1)]
    assert handle.status() == "cancelled"
    assert [steps(tmp_path, trial) for trial in (0, 1)] == before


DRIVER = """
    import sys
    from pyspark.sql import SparkSession
    import experiment
    from tests.whole_searches.executors.steady_search import search

    if __name__ == "__main__":
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        handle = search(spark.getOrCreate(), sys.argv[1], sys.argv[2], verbose=0)
        result = handle.result()
        print([(trial.status, trial.value) for trial in result.trials])
"""


@pytest.mark.slow
@pytest.mark.fault(33)
def test_a_suspended_driver_delays_no_trial(logdir, tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(textwrap.dedent(DRIVER))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    driver = subprocess.Popen(
        [sys.executable, script, logdir, tmp_path],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        wait_for_steps(tmp_path)
        os.kill(driver.pid, signal.SIGSTOP)
        wait_for_steps(tmp_path, more=300)
        (tmp_path / "enough").touch()
        os.kill(driver.pid, signal.SIGCONT)
        output, _ = driver.communicate(timeout=SECONDS)
    finally:
        if driver.poll() is None:
            for child in psutil.Process(driver.pid).children(recursive=True):
                child.kill()
            driver.kill()
    assert driver.returncode == 0
    assert output.count("finished") == 2
