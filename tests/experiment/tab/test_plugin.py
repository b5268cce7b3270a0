"""TensorBoard imports the entry point of the tab in every environment that has this package."""

import contextlib
import json
import os
import subprocess
import sys
import tomllib
import urllib.request

import pytest

from experiment.tab.plugin import ENTRY_POINT
from tests import ROOT
from tests.experiment.runs import make_run

LISTING = """
import json, sys, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
from tensorboard import default
from tensorboard.backend import application
from tensorboard.plugins import base_plugin

[loader] = [p for p in default.get_dynamic_plugins() if p.__module__ == sys.argv[1]]
ours = [name for name in sys.modules if name.startswith(("experiment", "search", "spark_"))]
try:
    made = type(loader().load(base_plugin.TBContext(logdir="."))).__name__
except Exception as error:
    made = f"{type(error).__name__}: {error}"
print(json.dumps([ours, made]))
"""
# The program `tensorboard` without TensorFlow; as with `python -m tensorboard.main`, files of the
# current folder come first.
TENSORBOARD = """
import sys, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
sys.argv = ["tensorboard", "--logdir", ".", "--host", "127.0.0.1", "--port", "0"]
from tensorboard.main import run_main
run_main()
"""


@pytest.fixture
def installed(tmp_path):
    """A folder for Python's path with the entry points of this package, as pip installs them."""
    site = tmp_path / "site"
    facts = site / "spark_tf_experiment-0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: spark-tf-experiment\nVersion: 0\n"
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [(name, value)] = project["entry-points"]["tensorboard_plugins"].items()
    (facts / "entry_points.txt").write_text(f"[tensorboard_plugins]\n{name} = {value}\n")
    (site / ENTRY_POINT).symlink_to(ROOT / "experiment" / "tab" / "entry-point" / ENTRY_POINT)
    return site


@pytest.fixture
def path(installed):
    """The environment of processes whose current folder comes first on Python's path."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(["", str(installed), str(ROOT)])}


def listed(folder, path):
    """Return our modules that the entry point loads, and what its loader makes."""
    ended = subprocess.run(
        [sys.executable, "-c", LISTING, ENTRY_POINT],
        cwd=folder,
        env=path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_the_entry_point_imports_nothing_that_can_fail(tmp_path, path):
    ours, made = listed(tmp_path, path)
    assert ours == [ENTRY_POINT]
    assert made == "ExperimentTab"


@pytest.mark.parametrize(
    "hiding",
    ["experiment.py", "experiment/__init__.py", "search/__init__.py", "spark_jobs.py"],
)
def test_a_file_that_hides_a_package_leaves_out_the_tab_alone(tmp_path, path, hiding):
    hide(tmp_path, hiding)
    ours, made = listed(tmp_path, path)
    assert ENTRY_POINT in ours
    assert made.startswith("ImportError: ")
    assert str(tmp_path / hiding) in made


def test_a_plain_tensorboard_of_a_folder_of_runs_has_the_tab(tmp_path, path):
    run = make_run(tmp_path)
    with running_tensorboard(tmp_path, path) as (url, _):
        listed = answer_of(f"{url}data/plugins_listing")["experiment"]
        runs = answer_of(f"{url}data/plugin/experiment/runs")
    assert listed["enabled"]
    assert listed["tab_name"] == "Experiment"
    assert [facts["name"] for facts in runs] == [run.name]


def test_tensorboard_runs_beside_a_file_that_hides_our_package(tmp_path, path):
    hide(tmp_path, "experiment.py")
    with running_tensorboard(tmp_path, path) as (url, lines):
        plugins = answer_of(f"{url}data/plugins_listing")
    assert "scalars" in plugins
    assert "experiment" not in plugins
    assert any(f"{tmp_path / 'experiment.py'} hides the package" in line for line in lines)


def hide(folder, hiding):
    """Write a file of the name of one of our packages, which nothing may run."""
    file = folder / hiding
    file.parent.mkdir(exist_ok=True)
    file.write_text("raise SystemExit('imported')\n")


def answer_of(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


@contextlib.contextmanager
def running_tensorboard(folder, path):
    """Yield the address of a TensorBoard in a folder, and the lines that it printed before."""
    with subprocess.Popen(
        [sys.executable, "-c", TENSORBOARD], cwd=folder, env=path, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if line.startswith("TensorBoard "):
                    break
            else:
                pytest.fail("".join(lines))
            yield next(word for word in lines[-1].split() if word.startswith("http")), lines
        finally:
            process.kill()
