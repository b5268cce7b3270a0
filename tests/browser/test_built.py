"""The built file of the Experiment tab is what its sources give."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests import ROOT

pytestmark = pytest.mark.browser

TAB = ROOT / "experiment" / "tab"


def test_the_sources_give_the_built_file(tmp_path):
    modules = TAB / "frontend" / "node_modules"
    assert modules.is_dir(), "run `make tab` first"
    ignored = shutil.ignore_patterns("node_modules")
    copy = shutil.copytree(TAB / "frontend", tmp_path / "frontend", ignore=ignored)
    (copy / "node_modules").symlink_to(modules)
    subprocess.run(["npm", "run", "--silent", "build"], cwd=copy, check=True)
    built = (tmp_path / "built-page" / "index.js").read_bytes()
    assert built == (TAB / "built-page" / "index.js").read_bytes(), (
        "run `make tab` and commit its file"
    )


def test_the_license_of_the_charts_is_shipped():
    source = TAB / "frontend" / "node_modules" / "uplot" / "LICENSE"
    assert (TAB / "built-page" / "uPlot.LICENSE.txt").read_text() == source.read_text()


def test_the_lock_file_names_no_address():
    assert "://" not in "".join(
        line
        for line in (TAB / "frontend" / "package-lock.json").read_text().splitlines()
        if '"resolved"' in line
    )
