"""The entry point of the Experiment tab, for TensorBoard.

Every TensorBoard of an environment imports this module, and ends if that fails: it imports only
TensorBoard and the standard library. An exception of `Loader.load` is logged, and leaves out the
tab.
"""

from __future__ import annotations

from tensorboard.plugins import base_plugin


class Loader(base_plugin.TBLoader):  # type: ignore[misc]  # TensorBoard ships no types
    """Makes the tab when TensorBoard starts.

    Args:
        kept_at: The location that users know of a folder that TensorBoard reads as a copy; ''.
    """

    def __init__(self, kept_at: str = "") -> None:
        self._kept_at = kept_at

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin:
        """Return the plugin.

        Raises:
            ImportError: Another file hides one of our packages, or one that we need is missing.
        """
        from experiment.neighbours import check_neighbours

        check_neighbours()
        from experiment.tab.serving import ExperimentTab

        return ExperimentTab(context.logdir, self._kept_at)
