"""The Experiment tab as TensorBoard loads it."""

from __future__ import annotations

from tensorboard.plugins import base_plugin

from experiment.tab.serving import ExperimentTab
from experiment.tab.trial_files import LocalTrialFiles, RemoteTrialFiles, TrialFiles
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.files import Files
from spark_jobs.storage.locations import Location

ENTRY_POINT = "spark_tf_experiment_tab"
"""The package in `entry-point/`, which TensorBoard imports where ours are installed."""


class Loader(base_plugin.TBLoader):  # type: ignore[misc]  # TensorBoard ships no types
    """Makes the tab when TensorBoard starts.

    Args:
        kept_at: The folder's location as users know it, if this is a copy of it; else ''.
        store: The store of that location, which has the output and the files of trials; None for a
            folder that is no copy.
    """

    def __init__(self, kept_at: str = "", store: Files | None = None) -> None:
        self._kept_at = kept_at
        self._store = store

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin:
        """Return the plugin."""
        return ExperimentTab(context.logdir, self._kept_at, self._files_of)

    def _files_of(self, paths: RunPaths) -> TrialFiles:
        if self._store is None:
            return LocalTrialFiles(paths.root)
        return RemoteTrialFiles(self._store, Location.parse(paths.kept_at))
