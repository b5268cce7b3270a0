"""The doctor compares the packages that slots import."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import spark_jobs
from spark_jobs.doctor.installed import known_modules, software

_OURS = {"experiment", "search", "spark_jobs"}
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
