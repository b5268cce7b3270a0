"""The examples, run as the README says, with small sizes."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from pathlib import Path

import hdfs as hdfs_package
import pytest

from tests import ROOT
from tests.demo_hdfs import client_environment, make_home

EXAMPLES = {
    "grid_search.py": (["--epochs", "1"], 6),
    "evolutionary_search.py": (["--epochs", "1", "--popsize", "4", "--generations", "1"], 8),
    "early_stopping.py": (["--epochs", "3", "--samples", "4"], 4),
    "architecture_search.py": (["--epochs", "1", "--samples", "4", "--algorithm", "reinforce"], 4),
    "distributed_training.py": (["--epochs", "1"], 3),
    "tournament.py": (["--epochs", "1", "--trainers", "2", "--rounds", "1"], 4),
}
BIN = Path(sys.executable).parent
COMMANDS = {
    "python": [sys.executable],
    "spark-submit": [str(BIN / "spark-submit"), "--master", "local[2]"],
}
RUNS = [
    # One runs in CI, too, where the README's two calls run as a page.
    pytest.param("spark-submit", "grid_search.py", marks=(pytest.mark.slow, pytest.mark.contract)),
    pytest.param("python", "grid_search.py", marks=pytest.mark.slow),
    pytest.param("python", "evolutionary_search.py", marks=pytest.mark.slow),
    pytest.param("python", "distributed_training.py", marks=pytest.mark.slow),
    pytest.param("python", "early_stopping.py", marks=pytest.mark.slow),
    pytest.param("python", "tournament.py", marks=pytest.mark.slow),
    pytest.param("spark-submit", "architecture_search.py", marks=pytest.mark.slow),
]


def run(command, folder, example, *arguments, **variables):
    """Run an example in a folder, without an activated environment; return its output."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VIRTUAL_ENV", "PYTHONPATH")
    }
    environment |= variables
    environment["PATH"] = os.pathsep.join(
        part for part in os.environ["PATH"].split(os.pathsep) if part != str(BIN)
    )
    if "spark-submit" in command[0]:
        environment["PYSPARK_PYTHON"] = sys.executable
    script = str(ROOT / "examples" / example)
    output = subprocess.run(
        [*command, script, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
    )
    assert output.returncode == 0, output.stderr[-4000:]
    return output.stdout


@pytest.mark.parametrize(("command", "example"), RUNS)
def test_an_example_prints_its_table_and_the_command_to_watch_it(tmp_path, example, command):
    arguments, trials = EXAMPLES[example]
    output = run(COMMANDS[command], tmp_path, example, *arguments, "--logdir", str(tmp_path))
    table, best = output.split("Best: ")
    assert table.count(" finished ") + table.count(" stopped ") == trials
    assert best.startswith("trial ")
    watch = output.splitlines()[-1]
    run_folder = Path(watch.split(" tensorboard ")[1])
    assert watch.startswith(f"Look at it: {sys.executable} -m experiment tensorboard ")
    assert len(list((run_folder / "trials").iterdir())) == trials


@pytest.mark.slow
def test_a_loop_of_the_users_own_trains_on_two_workers(tmp_path):
    output = run([sys.executable], tmp_path, "custom_loop.py", "--logdir", str(tmp_path))
    accuracy = output.split("Accuracy on 2 workers: ")[1].splitlines()[0]
    assert float(accuracy) > 0.9


@pytest.mark.slow
def test_slow_steps_on_two_workers_print_the_times_of_both(tmp_path):
    arguments = ["--seconds", "0.1", "--steps", "5", "--logdir", str(tmp_path)]
    output = run([sys.executable], tmp_path, "large_steps.py", *arguments)
    times = [float(output.split(f"Workers: {n}, a step: ")[1].split(" ms")[0]) for n in (1, 2)]
    assert times[0] > 100  # the two are faster, unless the host is busy
    assert times[1] > 50
    assert "Speed of two workers: " in output


@pytest.mark.slow
def test_l_bfgs_of_two_workers_gives_the_weights_of_one(tmp_path):
    output = run([sys.executable], tmp_path, "lbfgs_on_a_gang.py", "--logdir", str(tmp_path))
    assert float(output.split("Weights differ by ")[1].splitlines()[0]) < 1e-6
    accuracies = [line.split("; accuracy ")[1].split(",")[0] for line in output.splitlines()[:2]]
    assert all(float(accuracy) > 0.95 for accuracy in accuracies)


@pytest.mark.slow
def test_data_and_run_are_on_the_hdfs_of_hadoop_conf_dir(hdfs, tmp_path):
    variables = {**client_environment(hdfs, tmp_path / "conf"), "TMPDIR": str(tmp_path)}
    home = make_home(hdfs)
    arguments = ["--epochs", "1", "--popsize", "4", "--generations", "1"]
    output = run([sys.executable], tmp_path, "hdfs_search.py", *arguments, **variables)
    assert output.split("Best: ")[0].count(" finished ") == 8
    client = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=30)
    parts = [f"part-{number:05d}.tfrecord" for number in range(4)]
    assert sorted(client.list(f"{home}/digits")) == ["_SUCCESS", *parts]
    client._session.close()
    folder, name = output.splitlines()[-1].split(" tensorboard ")[1].rsplit("/", 1)
    assert folder == f"{hdfs.uri}{home}/experiments"
    listed = subprocess.run(
        [sys.executable, "-m", "experiment", "list", folder],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    (line,) = [line for line in listed.stdout.splitlines() if line.startswith(name)]
    assert " finished " in line
    assert not (tmp_path / "experiments").exists()
