"""Whether a module is installed. Light: a worker asks before it imports the rest."""

from __future__ import annotations

import importlib.util
import sys


def is_installed(module: str) -> bool:
    """Return whether the package of a module can be imported, without importing it."""
    package = module.partition(".")[0]
    try:
        return package in sys.modules or bool(package and importlib.util.find_spec(package))
    except (ImportError, ValueError):  # of a finder that refuses the name
        return False
