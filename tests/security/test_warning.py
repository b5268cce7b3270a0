"""One warning if strangers reach Spark's own ports, with the settings to add."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pyspark
import pytest

import experiment
from tests import ROOT
from tests.experiment.waiting import wait_until

OPEN = {"spark.authenticate": "false"}


def test_a_local_session_without_authentication_is_warned_of_once(sparks, tmp_path):
    spark = sparks.get("local[2]", **OPEN)

    def search():
        settings = {"logdir": tmp_path, "preload": (), "verbose": 0}
        return experiment.launch(spark, lambda x: x, {"x": [1.0]}, **settings)

    line = "; stop the session, and create it again with "
    line += 'SparkSession.builder.config("spark.authenticate", "true")'
    with pytest.warns(UserWarning, match=f"can take over a search{re.escape(line)}$"):
        search()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert search().best.value == 1.0


@pytest.mark.slow
@pytest.mark.contract
def test_a_local_session_with_authentication_runs_trials_of_every_isolation(spark, tmp_path):
    assert spark.conf.get("spark.authenticate") == "true"
    for isolation in ("process", "spawn", "none"):
        settings = {"logdir": tmp_path, "preload": (), "verbose": 0, "isolation": isolation}
        result = experiment.launch(spark, lambda x: x, {"x": [1.0, 2.0]}, **settings)
        assert result.best.value == 2.0


MADE = """
from spark_jobs.session.classic import make_session

spark = make_session()
print([spark.conf.get(f"spark.{name}", None) for name in ("authenticate", "ui.killEnabled")])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "made"),
    [
        pytest.param("local[1]", "['true', 'false']", marks=pytest.mark.contract),
        ("local[1] --conf spark.authenticate=false", "['false', 'false']"),
    ],
)
def test_a_job_has_authentication_in_local_mode_unless_its_settings_turn_it_off(given, made):
    words = f"--master {given} --conf spark.ui.enabled=false pyspark-shell"
    environment = {k: v for k, v in os.environ.items() if k != "SPARK_SUBMIT_OPTS"}
    program = subprocess.run(
        [sys.executable, "-c", MADE],
        cwd=ROOT,
        env=environment | {"PYSPARK_SUBMIT_ARGS": words},
        capture_output=True,
        text=True,
    )
    assert program.stdout.splitlines()[-1:] == [made], program.stderr


@pytest.mark.parametrize(
    "page",
    [
        "Makefile",
        "docs/getting_started.md",
        "examples/quickstart.ipynb",
        "examples/jobs/kubernetes.sh",
        "examples/jobs/yarn.sh",
    ],
)
def test_sessions_that_the_project_advises_are_closed_to_strangers(page):
    text = (ROOT / page).read_text()
    on = re.compile(r"""spark\.authenticate(=true|\\": \\"true)""")
    off = re.compile(r"""spark\.ui\.killEnabled(=false|\\": \\"false)""")
    assert on.search(text)
    assert off.search(text)
    assert len(re.findall("--master 'local", text)) <= len(on.findall(text))


def test_examples_set_no_authentication_since_they_run_under_any_master():
    examples = list((ROOT / "examples").glob("*.py"))
    assert examples
    assert not [path for path in examples if "spark.authenticate" in path.read_text()]


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
