"""The doctor compares the packages that slots import."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import spark_jobs
from spark_jobs.doctor.software import known_modules, software
from tests import ROOT

_OURS = {"experiment", "search", "spark_jobs"}
_DIGEST = "from spark_jobs.doctor.software import software; print(software(()).source)"
_LOADED = (
    "import sys, experiment, spark_jobs.slot.slot, spark_jobs.zygote.zygote; "
    "print(*[n for n in sys.modules if n.partition('.')[0] == 'search'])"
)


def imported(path: Path, *, late: bool) -> Iterator[str]:
    """Yield the packages that a module imports, those inside of functions where `late`."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if late else tree.body:
        if isinstance(node, ast.Import):
            yield from (package_of(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield package_of(node.module)


def package_of(module: str) -> str:
    """Return the package that is installed for a module; `google` is shared by many."""
    parts = module.split(".")
    return ".".join(parts[: 2 if parts[0] == "google" else 1])


def source_in(place: Path, cwd: Path) -> str:
    """Return the digest of our packages in a folder or a zip."""
    printed = subprocess.run(
        [sys.executable, "-P", "-c", _DIGEST],
        env=os.environ | {"PYTHONPATH": str(place)},
        cwd=cwd,
        check=True,
        capture_output=True,
        text=True,
    )
    return printed.stdout


def test_sources_are_the_same_in_a_checkout_an_installation_and_a_zip(tmp_path):
    checkout, installed = tmp_path / "checkout", tmp_path / "installed"
    for package in _OURS:
        unneeded = shutil.ignore_patterns("__pycache__", "frontend")
        shutil.copytree(ROOT / package, checkout / package, ignore=unneeded)
    shutil.make_archive(str(tmp_path / "ours"), "zip", checkout)
    shutil.copytree(checkout, installed)
    beside = installed / "experiment" / "tab" / "entry-point" / "spark_tf_experiment_tab"
    beside.rename(installed / beside.name)  # as a wheel has it
    places = (checkout, installed, tmp_path / "ours.zip")
    assert len({source_in(place, tmp_path) for place in places}) == 1
    with (checkout / "search" / "values.py").open("a") as file:
        file.write("# changed\n")
    assert source_in(checkout, tmp_path) != source_in(installed, tmp_path)


def test_every_package_that_a_slot_imports_is_compared():
    ours = Path(spark_jobs.__file__).parent.rglob("*.py")
    packages = {name for path in ours for name in imported(path, late=True)}
    printed = subprocess.run(
        [sys.executable, "-c", _LOADED], check=True, capture_output=True, text=True
    ).stdout
    loaded = [Path(find_spec(name).origin) for name in printed.split()]
    packages |= {name for path in loaded for name in imported(path, late=False)}
    # For Kerberos only, and other backends of Keras.
    optional = {"gssapi", "jax", "torch"}
    needed = packages - sys.stdlib_module_names - _OURS - optional
    assert needed <= set(known_modules())


def test_compared_packages_have_a_version():
    versions = software(known_modules()).versions
    assert [name for name, version in versions.items() if not version] == []
