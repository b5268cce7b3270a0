"""The files that `pip install` leaves in a checkout, and the contents of a release."""

from __future__ import annotations

import email.parser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import experiment
from tests import ROOT

PACKAGES = ("experiment", "search", "spark_jobs")
PARTS = (*PACKAGES, ".ci", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml")

# Each line with the comment "refused" has an error, and no other has.
USERS_FILE = """
from typing import Any, assert_type

import experiment


def train(x: float) -> float:
    return -x * x


def search(spark: Any) -> None:
    grid = {"x": [1.0, 2.0]}
    result = experiment.launch(spark, train, grid, direction="min", seed=3, verbose=2)
    assert_type(result, experiment.Result)
    assert result.best is not None
    assert_type(result.best.params["x"], Any)
    assert_type(experiment.search_each(spark, train, {"a": grid}, "min"), experiment.Results)
    assert_type(experiment.executor(spark, timeout=60.0), experiment.SparkExecutor)
    assert_type(experiment.plan(experiment.launch, spark, train, grid), experiment.Plan)
    handle = experiment.submit(experiment.random_search, spark, train, grid, samples=3)
    assert_type(handle.result(), experiment.Result)

    experiment.launch(spark, train, grid, verbos=2)  # refused
    experiment.launch(spark, train, grid, direction=3)  # refused
    experiment.launch(spark, train, grid, verbose=3)  # refused
    experiment.evolutionary_search(spark, train, grid, popsiz=20)  # refused
    experiment.evolutionary_search(spark, train, grid, direction=3)  # refused
    experiment.evolutionary_search(spark, train, grid, timeout="1 min")  # refused
    experiment.executor(spark, direction="min")  # refused
    experiment.submit(experiment.launch, spark, train, grid, verbos=2)  # refused
    experiment.plan(experiment.launch, spark, train, grid, direction=3)  # refused
    experiment.lunch(spark, train, grid)  # refused
"""


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()
    # Other processes write compiled files meanwhile.
    compiled = shutil.ignore_patterns("__pycache__", "node_modules")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=compiled)
        else:
            shutil.copy(ROOT / part, folder / part)
    return folder


def test_clean_keeps_the_runs():
    make = ["make", "--dry-run", "--no-print-directory", "clean"]
    commands = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "experiments" not in commands.split()


@pytest.mark.slow
@pytest.mark.contract
def test_a_wheel_has_all_packages_and_its_build_leaves_nothing_in_the_checkout(checkout, tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(checkout)], check=True)
    assert sorted(path.name for path in checkout.iterdir()) == sorted(PARTS)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        said = email.parser.BytesParser().parsebytes(file.read(metadata))
    modules = {
        path.relative_to(ROOT).as_posix().removeprefix("experiment/tab/entry-point/")
        for part in PACKAGES
        for path in (ROOT / part).rglob("*.py")
        if "node_modules" not in path.parts
    }
    page = {f"experiment/tab/built-page/{name}" for name in ("index.js", "uPlot.LICENSE.txt")}
    assert page == {name for name in names if name.startswith("experiment/tab/built-page/")}
    assert not any("frontend" in name for name in names)
    assert modules == {name for name in names if name.endswith(".py")}
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert (said["License-Expression"], said["Version"]) == ("Apache-2.0", experiment.__version__)


def test_the_zip_has_all_packages_whatever_folder_the_checkout_is_in(checkout, tmp_path):
    place = tmp_path / "frontend" / "checkout"  # as the tab's sources, which it leaves out
    place.parent.mkdir()
    checkout.rename(place)
    subprocess.run([sys.executable, ".ci/zip.py"], cwd=place, check=True)
    with zipfile.ZipFile(place / "build" / "experiment.zip") as file:
        names = file.namelist()
    modules = {path.relative_to(place).as_posix() for path in place.rglob("*.py")}
    assert {name for name in modules if not name.startswith(".ci/")} <= set(names)
    assert not any("frontend" in name for name in names)


@pytest.mark.slow
@pytest.mark.contract
def test_a_release_can_be_uploaded_and_type_checks_the_calls_of_its_users(checkout, tmp_path):
    run = [sys.executable, "-m"]
    dist, environment = tmp_path / "dist", tmp_path / "environment"
    build = [*run, "build", "--no-isolation", "--outdir", str(dist), str(checkout)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = dist.glob("*.whl")  # built from the source distribution
    subprocess.run(
        [*run, "twine", "check", "--strict", *map(str, dist.iterdir())],
        check=True,
        capture_output=True,
    )

    subprocess.run([*run, "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    install = [*run, "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*install, "--no-index", str(wheel)], check=True)
    users_file = tmp_path / "users_file.py"
    users_file.write_text(USERS_FILE)
    options = ["--strict", "--config-file=", f"--python-executable={python}"]
    cache = f"--cache-dir={tmp_path / 'cache'}"
    checked = subprocess.run(
        [*run, "mypy", *options, cache, users_file.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    errors = re.findall(r"^users_file\.py:(\d+): error", checked.stdout, re.MULTILINE)
    lines = enumerate(USERS_FILE.splitlines(), 1)
    refused = [number for number, line in lines if line.endswith("# refused")]
    assert [int(number) for number in errors] == refused, checked.stdout
    assert 'did you mean "verbose"' in checked.stdout

    assert _printed(environment / "bin" / "spark-experiment", "--version") == experiment.__version__
    place = _printed(python, "-P", "-c", "import experiment; print(experiment.__file__)")
    assert Path(place).is_relative_to(environment)


def _printed(*command: str | Path) -> str:
    """Return the output of a program in the empty environment with our dependencies."""
    dependencies = {"PYTHONPATH": sysconfig.get_path("purelib")}
    printed = subprocess.run(
        command, env=os.environ | dependencies, check=True, stdout=subprocess.PIPE, text=True
    )
    return printed.stdout.strip()
