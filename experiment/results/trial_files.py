"""The files that a train function wrote into its trial folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from spark_jobs.run_folder.paths import WORKERS, is_ours
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
        return sorted(str(found) for found in _below(files, location) if not _ours(location, found))


def _below(files: Files, folder: Location) -> Iterator[Location]:
    for status in files.listdir(folder):
        if status.is_link:  # its target may be outside the folder
            continue
        if status.is_folder:
            yield from _below(files, status.location)
        else:
            yield status.location


def _ours(folder: Location, file: Location) -> bool:
    place = file.parent
    of_worker = place.name.isdecimal() and place.parent == folder.below(WORKERS)
    return is_ours(file.name) and (place == folder or of_worker)
