"""The build backend: setuptools, in a copy of the checkout.

So pip leaves nothing in the checkout that it installs from, where setuptools would write `build`
and `*.egg-info`; and the package's long description is the README without what a package lacks:
links and pictures of the checkout.
"""

import contextlib
import os
import pathlib
import re
import shutil
import tempfile

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  # all else as it is

_PARTS = (
    *("experiment", "search", "spark_jobs"),
    *(".ci/build_backend.py", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"),
)

_IGNORED = shutil.ignore_patterns("__pycache__", "frontend")  # the tab's page is built


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Build a wheel."""
    folder = os.path.abspath(wheel_directory)
    metadata = metadata_directory and os.path.abspath(metadata_directory)
    with _copy():
        return build_meta.build_wheel(folder, config_settings, metadata)


def build_sdist(sdist_directory, config_settings=None):
    """Build a source distribution."""
    folder = os.path.abspath(sdist_directory)
    with _copy():
        return build_meta.build_sdist(folder, config_settings)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Write a wheel's metadata."""
    folder = os.path.abspath(metadata_directory)
    with _copy():
        return build_meta.prepare_metadata_for_build_wheel(folder, config_settings)


def get_requires_for_build_wheel(config_settings=None):
    """Return what else the build of a wheel needs."""
    with _copy():
        return build_meta.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_sdist(config_settings=None):
    """Return what else the build of a source distribution needs."""
    with _copy():
        return build_meta.get_requires_for_build_sdist(config_settings)


def long_description(readme: str) -> str:
    """Return a README without its parts for a checkout and without relative links and pictures."""
    text = re.sub(r"<!-- checkout -->\n.*?<!-- /checkout -->\n", "", readme, flags=re.DOTALL)
    text = re.sub(r"!\[[^]]*\]\((?!https?:)[^)]*\)\n?", "", text)
    text = re.sub(r"\[([^]]+)\]\((?!https?:)[^)]*\)", r"\1", text)
    return re.sub(r"<!-- [/\w-]+ -->\n", "", text)


@contextlib.contextmanager
def _copy():
    """Work in a copy of what packages are made of."""
    with tempfile.TemporaryDirectory(prefix="experiment-build-") as name:
        folder = pathlib.Path(name)
        for part in _PARTS:
            copy = folder / part
            copy.parent.mkdir(exist_ok=True)
            if pathlib.Path(part).is_dir():
                shutil.copytree(part, copy, ignore=_IGNORED)
            else:
                shutil.copy(part, copy)
        readme = folder / "README.md"
        text = long_description(readme.read_text(encoding="utf-8"))
        readme.write_text(text, encoding="utf-8")
        with contextlib.chdir(folder):
            yield
