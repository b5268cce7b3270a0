"""The Experiment tab as TensorBoard loads it."""

from __future__ import annotations

from tensorboard.plugins import base_plugin

from experiment.tab.serving import ExperimentTab

ENTRY_POINT = "spark_tf_experiment_tab"
"""The package in `entry-point/`, which TensorBoard imports where ours are installed."""


class Loader(base_plugin.TBLoader):  # type: ignore[misc]  # TensorBoard ships no types
    """Makes the tab when TensorBoard starts.

    Args:
        kept_at: The location that users know of a folder that TensorBoard reads as a copy; ''.
    """

    def __init__(self, kept_at: str = "") -> None:
        self._kept_at = kept_at

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin:
        """Return the plugin."""
        return ExperimentTab(context.logdir, self._kept_at)
