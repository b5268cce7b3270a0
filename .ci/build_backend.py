"""The build backend: setuptools, which leaves nothing in the checkout when pip installs from it.

setuptools would write `build` and `*.egg-info` there. `DIST_EXTRA_CONFIG` is its own variable for a
further file of settings.
"""

import contextlib
import os
import pathlib
import tempfile

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  # all else as it is


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Build a wheel by way of a temporary folder."""
    with _elsewhere():
        return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Write a wheel's metadata by way of a temporary folder."""
    with _elsewhere():
        return build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def get_requires_for_build_wheel(config_settings=None):
    """Return what else is needed, by way of a temporary folder."""
    with _elsewhere():
        return build_meta.get_requires_for_build_wheel(config_settings)


@contextlib.contextmanager
def _elsewhere():
    with tempfile.TemporaryDirectory(prefix="experiment-build-") as folder:
        settings = pathlib.Path(folder, "setup.cfg")
        settings.write_text(f"[build]\nbuild_base = {folder}\n[egg_info]\negg_base = {folder}\n")
        os.environ["DIST_EXTRA_CONFIG"] = str(settings)
        try:
            yield
        finally:
            del os.environ["DIST_EXTRA_CONFIG"]
