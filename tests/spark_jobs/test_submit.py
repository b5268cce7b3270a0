"""Searches as jobs: real spark-submit processes, and the exit status that a scheduler sees."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import psutil
import pytest

import experiment
from tests import ROOT
from tests.environments import bare_environment
from tests.servers import jvm
from tests.servers.yarn import Yarn

BIN = Path(sys.executable).parent
SUBMIT = ROOT / "spark_jobs" / "submit.py"

MODULE = """
import time

import experiment
import helper


def where(x, y):
    print("our packages:", experiment.__file__)
    return helper.double(x)


def broken(x):
    raise ValueError("no such x")


def slow(x):
    if x:
        time.sleep(600)
    return x
"""


@pytest.fixture
def folder(tmp_path):
    """The current folder of a job: a module that imports another, and files of spaces."""
    (tmp_path / "my_module.py").write_text(MODULE)
    (tmp_path / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "grid.yaml").write_text("x: [1, 2, 1e-3]\n")
    (tmp_path / "grid.json").write_text('{"x": [0, 1]}')
    (tmp_path / "bounds.yaml").write_text(
        "x: {type: float, low: 1e-5, high: 1, log: true}\ny: {type: integer, low: 1, high: 3}\n"
    )
    return tmp_path


def start(folder, *words, command=(), **variables):
    """Start a job in a folder, in an environment without our packages."""
    names = ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"PYSPARK_PYTHON": sys.executable} | variables
    environment["PATH"] = f"{BIN}{os.pathsep}{environment['PATH']}"
    local = [str(BIN / "spark-submit"), "--master", "local[2]", str(SUBMIT)]
    return subprocess.Popen(
        [*(command or local), *words],
        cwd=folder,
        env={name: value for name, value in environment.items() if value is not None},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process, timeout=280):
    """Wait for a job; return its exit status with what it printed."""
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        end(process)
        raise
    return process.returncode, output, errors


def end(process):
    """Kill a job with all that it has started."""
    left = children(process)
    process.kill()
    for one in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.communicate()


def packed(python):
    """Pack the environment of an interpreter, for executors."""
    folder = python.parent.parent
    archive = folder.with_suffix(".tar.gz")
    pack = [BIN / "venv-pack", "--prefix", folder, "--output", archive]
    subprocess.run(pack, check=True, capture_output=True)
    return archive


def configured(folder, settings):
    """Make a folder of Spark's configuration."""
    folder.mkdir()
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return folder


def wait_for(happened, timeout=250):
    end = time.monotonic() + timeout
    while not (found := happened()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


def test_the_zip_has_the_packages_and_the_same_bytes_each_time(tmp_path):
    for _ in range(2):
        subprocess.run(["make", "--silent", "zip"], cwd=ROOT, check=True, capture_output=True)
        file = ROOT / "build" / "experiment.zip"
        (tmp_path / str(len(list(tmp_path.iterdir())))).write_bytes(file.read_bytes())
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()
    tracked = subprocess.run(
        ["git", "ls-files", "experiment/*.py", "search/*.py", "spark_jobs/*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    with zipfile.ZipFile(file) as packages:
        assert set(tracked) <= set(packages.namelist())
        assert {name.partition("/")[0] for name in packages.namelist()} == {
            "experiment",
            "search",
            "spark_jobs",
        }


@pytest.fixture
def workers(sparks, standalone, folder):
    """Environment variables of jobs on executors with shipped packages only."""
    sparks.stop()  # its executors have all the cores
    python = bare_environment(folder / "environment")
    settings = {
        **standalone.settings(),
        "spark.archives": f"{packed(python)}#environment",
        "spark.pyspark.python": "./environment/bin/python",
        "spark.pyspark.driver.python": str(python),
        "spark.ui.enabled": "false",
    }
    del settings["spark.executorEnv.PYTHONPATH"]
    return {
        "MASTER": standalone.master,
        "LOGDIR": str(folder / "runs"),
        "SPARK_CONF_DIR": str(configured(folder / "conf", settings)),
        "PYSPARK_PYTHON": None,
    }


@pytest.mark.slow
def test_jobs_run_on_executors_with_shipped_files_only(workers, folder):
    script = ROOT / "examples" / "jobs" / "standalone.sh"
    status, output, errors = ended(start(folder, command=[script], **workers))
    assert status == 0, output + errors
    (run,) = (folder / "runs").iterdir()
    result = experiment.load(run)
    assert [trial.params for trial in result.trials] == [
        {"learning_rate": rate, "units": units} for rate in (1e-3, 1e-2) for units in (16, 64)
    ]
    assert all(trial.status == "finished" for trial in result.trials)
    assert f"{run}/result.json" in output
    assert "Best trials" in output

    # A module of the current folder, and one that it imports, travel with the train function.
    archive = ROOT / "build" / "experiment.zip"
    command = [BIN / "spark-submit", "--master", workers["MASTER"], "--py-files", archive, SUBMIT]
    words = ["--train", "my_module:where", "--bounds", "bounds.yaml", "--searcher", "random"]
    words += ["--samples", "2", "--preload", "[]", "--logdir", str(folder / "others")]
    status, output, errors = ended(start(folder, *words, command=command, **workers))
    assert status == 0, output + errors
    (run,) = (folder / "others").iterdir()
    result = experiment.load(run)
    assert result.space["x"] == experiment.Float(1e-5, 1, log=True)
    assert [trial.value for trial in result.trials] == [2 * t.params["x"] for t in result.trials]
    for trial in result.trials:
        assert "experiment.zip/experiment" in (Path(trial.logdir) / "stdout.log").read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_jobs_run_on_yarn_in_cluster_mode(folder):
    with Yarn(folder / "yarn") as yarn:
        python = bare_environment(folder / "environment")
        archive = packed(python)
        script = ROOT / "examples" / "jobs" / "yarn.sh"
        variables = {
            "HADOOP_CONF_DIR": str(yarn.configuration),
            "SPARK_CONF_DIR": str(configured(folder / "conf", yarn.settings())),
            "JAVA_HOME": yarn.java,
            "ENVIRONMENT": str(archive),
            "LOGDIR": str(folder / "runs"),
        }
        status, output, errors = ended(start(folder, command=[script], **variables), 400)
        assert status == 0, output + errors
        (run,) = (folder / "runs").iterdir()
        assert [t.status for t in experiment.load(run).trials] == ["finished"] * 4
        assert yarn.applications()[-1]["finalStatus"] == "SUCCEEDED"

        bad = start(folder, "--popsize", "4", command=[script], **variables)
        status, output, errors = ended(bad, 400)
        assert status == 1, output + errors
        application = yarn.applications()[-1]
        assert application["finalStatus"] == "FAILED"
        assert "exited with 4" in application["diagnostics"]


@pytest.mark.parametrize("place", ["copy", "link"])
def test_modules_beside_a_lone_submit_py_are_found(folder, place):
    """As in the current folder of YARN's cluster mode, where there is a link to this file."""
    lone = folder / "submit.py"
    if place == "copy":
        shutil.copy(SUBMIT, lone)
    else:
        (folder / "cache").mkdir()
        shutil.copy(SUBMIT, folder / "cache" / "submit.py")
        lone.symlink_to(folder / "cache" / "submit.py")
    words = ["--train", "my_module:where", "--grid", "no.yaml"]
    job = start(folder, *words, command=[sys.executable, "submit.py"], PYTHONPATH=str(ROOT))
    status, output, errors = ended(job)
    assert status == 4, output + errors
    assert errors.startswith("--grid: expected a file that can be read")  # after the module


def test_modules_of_ours_are_not_found_by_their_short_names():
    words = ["--train", "calls:run", "--grid", "no.yaml"]
    job = start(SUBMIT.parent, *words, command=[sys.executable, "submit.py"])
    status, output, errors = ended(job)
    assert status == 4, output + errors
    assert errors.startswith("--train: expected a module that can be imported, got 'calls'")


@pytest.mark.slow
def test_a_job_whose_trials_all_fail_ends_with_3(folder):
    words = ["--train", "my_module:broken", "--grid", "grid.yaml", "--preload", "[]"]
    status, output, errors = ended(start(folder, *words))
    assert status == 3, output + errors
    assert "all 3 trials failed; the first was trial 0: ValueError: no such x" in output
    (run,) = (folder / "experiments").iterdir()
    assert f"{run}/result.json" in output


@pytest.mark.slow
@pytest.mark.contract
def test_a_terminated_job_ends_with_130_and_keeps_its_results(folder):
    words = ["--train", "my_module:slow", "--grid", "grid.json", "--preload", "[]"]
    options = {"command": [sys.executable, SUBMIT], "SPARK_SUBMIT_OPTS": jvm.SPARK_OPTIONS}
    with started(folder, *words, "--parallelism", "1", **options) as process:
        process.terminate()
        status, output, errors = ended(process)
    assert status == 130, output + errors
    assert "can take over a search" not in errors
    check_kept(folder)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_ends_with_the_jvm_that_started_it(folder, number):
    words = ["--train", "my_module:slow", "--grid", "grid.json", "--preload", "[]"]
    with started(folder, *words, "--parallelism", "1") as process:
        driver = driver_of(process)
        if number == signal.SIGINT:  # as Ctrl-C in a terminal
            driver.send_signal(number)
        process.send_signal(number)
        driver.wait(250)
        ended(process)
    assert process.returncode in (-number, 128 + number)
    check_kept(folder)


@contextlib.contextmanager
def started(folder, *words, **options):
    """Start a job and wait until its first trial has ended; kill it at the end."""
    process = start(folder, *words, **options)
    try:
        wait_for(lambda: list(folder.glob("experiments/*/trials/000000/outcome.json")))
        wait_for(lambda: list(folder.glob("experiments/*/trials/000001")))
        yield process
    finally:
        end(process)


def driver_of(process):
    """Return the Python process of a job that spark-submit's JVM runs."""
    found = [p for p in psutil.Process(process.pid).children() if "python" in p.name()]
    return found[0]


def children(process):
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def check_kept(folder):
    (run,) = (folder / "experiments").iterdir()
    result = experiment.load(run)
    assert [trial.status for trial in result.trials] == ["finished", "cancelled"]
    assert json.loads((run / "result.json").read_text())["problem"]


def test_a_file_that_hides_the_package_is_named(folder):
    (folder / "experiment.py").write_text("raise SystemExit('imported')\n")
    command = (sys.executable, str(SUBMIT))
    status, output, errors = ended(start(folder, "--help", command=command, PYTHONPATH=str(folder)))
    assert (status, output) == (1, "")
    (line,) = errors.splitlines()
    assert line.startswith(f"{folder / 'experiment.py'} hides the package 'experiment'")
    assert "rename it" in line
