"""A module for `preload=`: the processes of trials find no JAX, as on hosts that lack it."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class NoJax(MetaPathFinder):
    """Refuses to find JAX."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise the error of a missing module for JAX, and leave others to the next finder."""
        if fullname == "jax":
            raise ModuleNotFoundError("No module named 'jax'", name=fullname)
        return None


sys.meta_path.insert(0, NoJax())
