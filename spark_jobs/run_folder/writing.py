"""A folder of a run: written to on this host, kept where the run is.

That is the folder itself where the run lies in a folder that all hosts see. A run on HDFS is
written to a scratch folder of each host, from which a `Uploader` uploads it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from spark_jobs import time_limits
from spark_jobs.messages import Attempt
from spark_jobs.retrying import call_again
from spark_jobs.run_folder.mirror import Mirror
from spark_jobs.run_folder.paths import CHECKPOINT, attempt_name, attempts_in
from spark_jobs.run_folder.scratch import name_of_left, scratch_folder
from spark_jobs.run_folder.uploader import Uploader
from spark_jobs.storage.files import PART, WritableFiles
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.local_files import make_folder
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at

T = TypeVar("T")

# Parts of files are of a host that was lost.
_WHOLE_FILES = re.compile(rf"(?!(.*/)?{re.escape(PART)}).*", re.DOTALL)


class RunFolder(Protocol):
    """A folder of a run.

    Attributes:
        path: Of this host, to write to.
    """

    path: Path

    @property
    def trouble(self) -> str | None:
        """Why what is written here is not kept for now, or None."""

    def keep(self, tell: Callable[[str], None], hurry: Callable[[], bool] = lambda: False) -> None:
        """Make sure that everything is kept, with patience.

        Args:
            tell: Told why it takes so long.
            hurry: Is there no time for another try?

        Raises:
            OSError: Not all of it is, and the message says where the rest will be.
        """

    def abandon(self) -> None:
        """Keep nothing more: the folder is somebody else's by now. From any thread."""


@contextlib.contextmanager
def run_folder(
    location: Location,
    hadoop: HadoopSettings,
    every: float = time_limits.UPLOAD,
    scratch: str | None = None,
) -> Iterator[RunFolder]:
    """Open a folder of a run for writing; made where it is missing.

    What was not kept by then stays on this host, in the folder for temporary files.

    Args:
        location: Where it is kept.
        hadoop: Where HDFS is.
        every: Seconds between two rounds of uploading.
        scratch: Where to write meanwhile; the folder for temporary files when left out.

    Raises:
        OSError: It cannot be made.
    """
    if location.scheme == "file":
        path = Path(location.path)
        make_folder(path)
        yield _InPlace(path)
        return
    with (
        contextlib.closing(writable_files_at(location, hadoop)) as files,
        scratch_folder(scratch) as path,
    ):
        uploaded = _Uploaded(path, location, Uploader(files, path, location, every))
        try:
            with uploaded.uploader:
                yield uploaded
        finally:
            if uploaded.kept or not any(found.is_file() for found in path.rglob("*")):
                shutil.rmtree(path, ignore_errors=True)
            else:
                shutil.move(path, uploaded.left)


class _InPlace:
    trouble: str | None = None

    def __init__(self, path: Path) -> None:
        self.path = path

    def keep(self, tell: Callable[[str], None], hurry: Callable[[], bool] = lambda: False) -> None:
        """See `RunFolder`."""

    def abandon(self) -> None:
        """See `RunFolder`."""


class _Uploaded:
    def __init__(self, path: Path, location: Location, uploader: Uploader) -> None:
        self.path = path
        self.uploader = uploader
        self.kept = False
        self._abandoned = False
        # Where it will be if it is not kept.
        self.left = Path(tempfile.gettempdir(), name_of_left(path))
        self._location = location

    @property
    def trouble(self) -> str | None:
        """See `RunFolder`."""
        return self.uploader.trouble

    def keep(self, tell: Callable[[str], None], hurry: Callable[[], bool] = lambda: False) -> None:
        """See `RunFolder`."""
        self.kept = self._abandoned
        if self._abandoned:
            return
        try:
            with_patience(self.uploader.upload, tell, hurry)
        except OSError as error:
            left = f"not all of {self._location} is there, the rest is in {self.left}"
            raise OSError(f"{left}: {error}") from None
        self.kept = True

    def abandon(self) -> None:
        """See `RunFolder`."""
        self._abandoned = True
        self.uploader.stop()


def with_patience(
    call: Callable[[], T], tell: Callable[[str], None], hurry: Callable[[], bool] = lambda: False
) -> T:
    """Call until the place of a run answers, for ten minutes; arguments as for `keep`.

    Raises:
        ConnectionError: It still does not.
    """
    return call_again(
        call,
        after=lambda error: isinstance(error, ConnectionError),
        outage=time_limits.OUTAGE,
        tell=lambda error, seconds: tell(f"{error}; it is tried again"),
        hurry=hurry,
    )


def hand_on_checkpoint(files: WritableFiles, root: Location, attempt: Attempt, to: Path) -> None:
    """Copy the last checkpoint that an attempt may go on from into its folder, if there is one.

    That is the last one of the attempts before it, else that of its trial's parent.

    Args:
        files: Of the run.
        root: The run's folder.
        attempt: That is about to start.
        to: Its folder for checkpoints.

    Raises:
        OSError: One is there that cannot be read.
    """
    trial = attempt.trial
    if attempt.number == 1 and trial.parent is None:
        return
    this = root.below(attempt_name(trial.id, attempt.number))
    trials = this.parent
    try:
        there = files.names(trials)
    except FileNotFoundError:  # nothing was kept yet
        return
    own = attempts_in([*there, this.name], trial.id)
    names = own[own.index(this.name) + 1 :]
    names += [] if trial.parent is None else attempts_in(there, trial.parent)
    for name in names:
        source = trials.below(f"{name}/{CHECKPOINT}")
        # NotADirectoryError: a train function put something else into the folder's place.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if files.listdir(source):
                part = to.with_name(f"{PART}{to.name}")  # half of one would be taken for a whole
                shutil.rmtree(part, ignore_errors=True)
                make_folder(part)
                Mirror(files, source, part, _WHOLE_FILES).update()
                if any(path.is_file() for path in part.rglob("*")):
                    shutil.rmtree(to, ignore_errors=True)
                    part.replace(to)
                    return


def hide_events(files: WritableFiles, root: Location, trial: int, number: int) -> None:
    """Take the attempts before `number` out of TensorBoard, which would average them with it.

    TensorBoard reads every file with "tfevents" in its name.

    Raises:
        OSError: One of them cannot be renamed.
    """
    for earlier in range(1, number):
        hide_events_in(files, root.below(attempt_name(trial, earlier)))


def hide_events_in(files: WritableFiles, folder: Location) -> None:
    """Take what is in a folder out of TensorBoard; fine where nothing is.

    Raises:
        OSError: A file cannot be renamed.
    """
    for events in events_in(files, folder):
        hide_event(files, events)


def events_in(files: WritableFiles, folder: Location) -> Iterator[Location]:
    """Yield the files in a folder that TensorBoard reads; none where there is no folder.

    Raises:
        OSError: A folder cannot be read.
    """
    try:
        found = files.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):  # an attempt that never began, or is no folder
        return
    for status in found:
        if status.is_link:  # what lies outside of the folder is nobody's business
            continue
        if status.is_folder:
            yield from events_in(files, status.location)
        elif "tfevents" in status.location.name:
            yield status.location


def hide_event(files: WritableFiles, events: Location) -> None:
    """Take a file out of TensorBoard; fine where it is gone.

    Raises:
        OSError: It cannot be renamed.
    """
    hidden = events.parent.below(events.name.replace("tfevents", "lost-events"))
    with contextlib.suppress(FileNotFoundError):
        files.rename(events, hidden)
