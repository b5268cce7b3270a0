"""The files that a train function wrote into its trial folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from spark_jobs.run_folder.paths import is_ours
from spark_jobs.session import active_data_settings
from spark_jobs.storage.files import Files
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import files_at


def files_of_trial(folder: str) -> list[str]:
    """Return the files that the train function wrote below a trial folder, sorted.

    Raises:
        OSError: The folder cannot be read.
    """
    location = Location.parse(folder)
    with contextlib.closing(files_at(location, active_data_settings().hadoop)) as files:
        return sorted(
            str(location.below(path)) for path in _below(files, location, "") if not is_ours(path)
        )


def _below(files: Files, folder: Location, prefix: str) -> Iterator[str]:
    """Yield the paths of the files below a folder, each after a prefix."""
    for status in files.listdir(folder):
        if status.is_link:  # its target may be outside the folder
            continue
        path = prefix + status.location.name
        if status.is_folder:
            yield from _below(files, status.location, f"{path}/")
        else:
            yield path
