"""The runs in the folder that TensorBoard was given."""

from __future__ import annotations

import os
from pathlib import Path

from spark_jobs.run_folder.paths import RunPaths


def folders_of_runs(logdir: str) -> dict[str, RunPaths]:
    """Return the runs in a folder by name: the folder itself, or those directly in it.

    Args:
        logdir: TensorBoard's `--logdir` as typed; '' and URLs have no runs.
    """
    if not logdir or "://" in logdir:
        return {}
    folder = Path(logdir).expanduser().absolute()
    if (folder / "manifest.json").is_file():
        return {folder.name: RunPaths(folder)}
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return {}
    runs = {name: RunPaths(folder / name) for name in names}
    return {name: paths for name, paths in runs.items() if paths.manifest.is_file()}
