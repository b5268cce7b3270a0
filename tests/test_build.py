"""What `pip install` of a checkout leaves in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile

from tests import ROOT

PARTS = ("experiment", "search", "spark_jobs", ".ci", "pyproject.toml", "README.md", "MANIFEST.in")


def test_a_wheel_has_all_packages_and_its_build_leaves_nothing_in_the_checkout(tmp_path):
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    compiled = shutil.ignore_patterns("__pycache__")  # other processes write there meanwhile
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, checkout / part, ignore=compiled)
        else:
            shutil.copy(ROOT / part, checkout / part)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(checkout)], check=True)
    assert sorted(path.name for path in checkout.iterdir()) == sorted(PARTS)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    modules = {
        str(path.relative_to(ROOT)) for part in PARTS[:3] for path in (ROOT / part).rglob("*.py")
    }
    assert modules == {name for name in names if name.endswith(".py")}
