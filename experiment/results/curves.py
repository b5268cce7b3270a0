"""The curves that the trials of a result wrote, from their event files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiment.results.trial_result import TrialResult
from spark_jobs.run_folder.paths import is_event_file
from spark_jobs.session import active_data_settings
from spark_jobs.storage.files import Files, FileStatus
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import files_at


class CurvePoint(NamedTuple):
    """A point of a trial's curve: a row of `Result.curves`."""

    trial: int
    step: int
    metric: str
    value: float


def curves_of(trials: Sequence[TrialResult]) -> Iterator[CurvePoint]:
    """Yield the points of the curves of trials, by trial, in the order in which they were written.

    Raises:
        OSError: A trial folder cannot be read.
    """
    # Here, since tensorboard takes long to import.
    from spark_jobs.slot.trial_events import is_reported
    from spark_jobs.trial.events.event_scalars import scalars_in

    for trial, content in _event_files(trials):
        for point in scalars_in(content):
            if is_reported(point.tag):
                yield CurvePoint(trial, point.step, point.tag, point.value)


def _event_files(trials: Sequence[TrialResult]) -> Iterator[tuple[int, bytes]]:
    """Yield the content of each event file of trials, with the trial's id."""
    if not trials:
        return
    # All are in one store.
    store = files_at(Location.parse(trials[0].logdir), active_data_settings().hadoop)
    with contextlib.closing(store) as files:
        for trial in trials:
            for status in _listed(files, Location.parse(trial.logdir)):
                if is_event_file(status.location.name) and not status.is_folder:
                    content = bytearray()
                    files.read(status, content.extend)
                    yield trial.id, bytes(content)


def _listed(files: Files, folder: Location) -> list[FileStatus]:
    """Return what is in a folder, sorted; nothing if it was removed."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(files.listdir(folder), key=lambda status: status.location.name)
    return []
