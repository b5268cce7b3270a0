"""The runs in the folder that TensorBoard was given."""

from __future__ import annotations

import os
from pathlib import Path

from search.values import as_unicode
from spark_jobs.run_folder.paths import MANIFEST, RunPaths


def folders_of_runs(logdir: str, kept_at: str = "") -> dict[str, RunPaths]:
    """Return the runs in a folder by name: the folder itself, or those directly in it.

    A name that UTF-8, and so a request, cannot hold has escapes.

    Args:
        logdir: TensorBoard's `--logdir` as typed; '' and URLs have no runs.
        kept_at: The folder's location as users know it, if this is a copy of it; else ''.
    """
    if not logdir or "://" in logdir:
        return {}
    folder = Path(logdir).expanduser().absolute()
    # `Path.is_file` raises for a folder that only another user may read.
    if os.path.isfile(folder / MANIFEST):
        name = (kept_at.rstrip("/") or folder.name).rpartition("/")[2]
        return {as_unicode(name): RunPaths(folder, kept_at)}
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return {}
    runs = {name: RunPaths(folder / name, kept_at and f"{kept_at}/{name}") for name in names}
    return {
        as_unicode(name): paths for name, paths in runs.items() if os.path.isfile(paths.manifest)
    }
