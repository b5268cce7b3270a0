"""The entry point of the Experiment tab, for TensorBoard.

Every TensorBoard of an environment imports the entry points of all plugins, and ends if one fails.
Files of users may hide the framework's packages, whose names are common words, so this package has
a name of its own, and imports only TensorBoard and the standard library. An exception of
`Loader.load` is logged, and leaves out the tab.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util

from tensorboard.plugins import base_plugin


class Loader(base_plugin.TBLoader):  # type: ignore[misc]  # TensorBoard ships no types
    """Makes the tab when TensorBoard starts."""

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin:
        """Return the plugin.

        Raises:
            ImportError: Another file hides one of our packages, or one that we need is missing.
        """
        _check_package()
        from experiment.neighbours import check_neighbours

        check_neighbours()
        from experiment.tab import plugin

        return plugin.Loader().load(context)


def _check_package() -> None:
    """Raise ImportError if another file hides the package `experiment`."""
    spec = importlib.util.find_spec("experiment")
    folders = (spec and spec.submodule_search_locations) or []
    # Not by an import, which would run that file.
    if importlib.machinery.PathFinder.find_spec("experiment.neighbours", folders) is None:
        raise ImportError(
            f"{spec and spec.origin} hides the package 'experiment' of the framework: rename it, "
            "or remove its folder from sys.path"
        )
