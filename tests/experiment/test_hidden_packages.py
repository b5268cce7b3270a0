"""Files that are called as packages of the framework, and lie before these on Python's path."""

import os
import subprocess
import sys

import pytest

from tests import ROOT

JOB = ("-m", "spark_jobs.submit", "--help")
SHELL = ("-m", "experiment", "list")
SCRIPT = ("script.py",)


def refused(folder, file, command):
    """Run Python in a folder where a file lies that hides a package; return what it says last."""
    hiding = folder / file
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("raise SystemExit('imported')\n")
    (folder / "script.py").write_text("import experiment\nexperiment.launch\n")
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, ended
    return ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "package"),
    [
        (SCRIPT, "search"),
        (SCRIPT, "spark_jobs"),
        (SHELL, "search"),
        (SHELL, "spark_jobs"),
        (JOB, "search"),
    ],
)
@pytest.mark.parametrize("file", ["{}.py", "{}/__init__.py"])
def test_using_a_hidden_framework_names_the_file_to_rename(tmp_path, file, command, package):
    file = file.format(package)
    assert refused(tmp_path, file, command) == (
        f"ImportError: package {package!r} of the experiment framework is in {ROOT / package}, "
        f"but Python finds {tmp_path / file}; rename that, or remove its folder from sys.path"
    )


@pytest.mark.parametrize("file", ["experiment.py", "experiment/__init__.py"])
def test_a_job_names_the_file_to_rename(tmp_path, file):
    assert refused(tmp_path, file, JOB) == (
        f"{tmp_path / file.removesuffix('/__init__.py')} hides the package 'experiment' of the "
        "framework: rename it, or take its folder off Python's path"
    )
