"""One warning where strangers reach Spark's own ports, with what to paste."""

from __future__ import annotations

import re
import subprocess
import warnings
from pathlib import Path

import pyspark
import pytest

import experiment
from tests.experiment.waiting import wait_until

OPEN = {"spark.authenticate": "false"}


def test_a_local_session_without_authentication_is_warned_of_once(sparks, tmp_path):
    spark = sparks.get("local[2]", **OPEN)

    def search():
        settings = {"logdir": tmp_path, "preload": (), "verbose": 0}
        return experiment.launch(spark, lambda x: x, {"x": [1.0]}, **settings)

    line = '; make the session with SparkSession.builder.config("spark.authenticate", "true")'
    with pytest.warns(UserWarning, match=f"can take a search over{re.escape(line)}$"):
        search()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert search().best.value == 1.0


def test_a_local_session_with_authentication_runs_trials_of_every_isolation(spark, tmp_path):
    assert spark.conf.get("spark.authenticate") == "true"
    for isolation in ("process", "spawn", "none"):
        settings = {"logdir": tmp_path, "preload": (), "verbose": 0, "isolation": isolation}
        result = experiment.launch(spark, lambda x: x, {"x": [1.0, 2.0]}, **settings)
        assert result.best.value == 2.0


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


@pytest.mark.slow
def test_a_cluster_with_an_open_network_is_warned_of_once_in_a_session(sparks, master, tmp_path):
    executors = {"spark.executor.instances": "1", "spark.executor.cores": "1"}
    spark = sparks.get(master, **executors, **OPEN)

    def search():
        with pytest.raises(experiment.SearchFailed, match="no slot has started"):
            experiment.launch(
                spark, lambda x: x, {"x": [1]}, logdir=tmp_path, startup_timeout=1, preload=()
            )

    try:
        with pytest.warns(UserWarning, match=r"master, workers and this session: spark\.auth"):
            search()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            search()
    finally:
        sparks.stop()
