"""TensorBoard imports the entry point of the tab in every environment that has this package."""

import json
import os
import subprocess
import sys
import tomllib

import pytest

from tests import ROOT

LISTING = """
import json, sys, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
from tensorboard import default
from tensorboard.backend import application
from tensorboard.plugins import base_plugin

[loader] = [p for p in default.get_dynamic_plugins() if p.__module__ == "experiment.tab.plugin"]
ours = [name for name in sys.modules if name.startswith(("experiment.", "search", "spark_jobs"))]
try:
    made = type(loader().load(base_plugin.TBContext(logdir="."))).__name__
except Exception as error:
    made = f"{type(error).__name__}: {error}"
print(json.dumps([ours, made]))
"""


@pytest.fixture
def installed(tmp_path):
    """A folder for Python's path with the entry points of this package, as pip installs them."""
    facts = tmp_path / "site" / "spark_tf_experiment-0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: spark-tf-experiment\nVersion: 0\n"
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [(name, value)] = project["entry-points"]["tensorboard_plugins"].items()
    (facts / "entry_points.txt").write_text(f"[tensorboard_plugins]\n{name} = {value}\n")
    return facts.parent


def listed(folder, installed):
    """Return our modules that the entry point loads, and what its loader makes."""
    ended = subprocess.run(
        [sys.executable, "-c", LISTING],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(["", str(installed), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_the_entry_point_imports_nothing_that_can_fail(tmp_path, installed):
    ours, made = listed(tmp_path, installed)
    assert ours == ["experiment.version", "experiment.tab", "experiment.tab.plugin"]
    assert made == "ExperimentTab"


@pytest.mark.parametrize("hiding", ["search/__init__.py", "spark_jobs.py"])
def test_a_file_that_hides_a_package_leaves_out_the_tab_alone(tmp_path, installed, hiding):
    file = tmp_path / hiding
    file.parent.mkdir(exist_ok=True)
    file.write_text("raise SystemExit('imported')\n")
    ours, made = listed(tmp_path, installed)
    assert "experiment.tab.plugin" in ours
    assert made.startswith("ImportError: package ")
    assert str(file) in made
