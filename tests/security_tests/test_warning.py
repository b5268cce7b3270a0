"""One warning where Spark's own network is open, on a real master of a standalone cluster."""

from __future__ import annotations

import re
import subprocess
import warnings
from pathlib import Path

import pyspark
import pytest

import experiment
from tests.experiment_tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def master(tmp_path):
    """The address of a master without workers."""
    log = tmp_path / "master.log"
    command = [Path(pyspark.__file__).parent / "bin" / "spark-class"]
    command += ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", "0", "--webui-port", "0"], stdout=output, stderr=output
        )
    try:
        wait_until(lambda: "New state: ALIVE" in log.read_text())
        yield re.search(r"spark://127\.0\.0\.1:\d+", log.read_text())[0]
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_a_cluster_with_an_open_network_is_warned_of_once_in_a_session(sparks, master, tmp_path):
    spark = sparks.get(master, **{"spark.executor.instances": "1", "spark.executor.cores": "1"})

    def search():
        with pytest.raises(experiment.SearchFailed, match="no slot has started"):
            experiment.launch(
                spark, lambda x: x, {"x": [1]}, logdir=tmp_path, startup_timeout=1, preload=()
            )

    try:
        with pytest.warns(UserWarning, match="set spark.authenticate and spark.network.crypto"):
            search()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            search()
    finally:
        sparks.stop()
