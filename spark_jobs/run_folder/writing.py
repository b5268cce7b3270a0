"""Run folders and trial folders, opened for writing on this host.

A run in a folder that all hosts share is written in place. A run on HDFS is written to a scratch
folder of each host, from which an `Uploader` uploads it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from spark_jobs import time_limits
from spark_jobs.messages import Attempt, ProtocolError, as_json, decode
from spark_jobs.retrying import call_again
from spark_jobs.run_folder.listing import files_below, links_below, make_links
from spark_jobs.run_folder.mirror import Mirror
from spark_jobs.run_folder.paths import (
    CHECKPOINT,
    EPOCHS,
    TRIAL,
    attempt_name,
    attempts_in,
    is_event_file,
)
from spark_jobs.run_folder.renames import finish_renames
from spark_jobs.run_folder.scratch import folder_of_left, move_left, scratch_folder
from spark_jobs.run_folder.uploader import Uploader
from spark_jobs.storage.files import PART, Files, FileStatus, WritableFiles
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.local_files import make_folder, write_whole
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at

T = TypeVar("T")

# Parts of files are left by lost hosts.
_WHOLE_FILES = re.compile(rf"(?!(.*/)?{re.escape(PART)}).*", re.DOTALL)
_TRIES = 5  # at most, to copy a checkpoint folder that is being written to


class RunFolder(Protocol):
    """A folder of a run, open for writing.

    Attributes:
        path: The folder of this host to write to.
    """

    path: Path

    @property
    def trouble(self) -> str | None:
        """Why uploading fails at present; None if it does not."""

    def keep(self, tell: Callable[[str], None], hurry: Callable[[], bool] = lambda: False) -> None:
        """Make sure that everything is stored, with patience.

        Args:
            tell: Called with the reason of a delay.
            hurry: Returns whether there is no time for another try.

        Raises:
            OSError: Not everything is stored; the message names the folder of the rest.
        """

    def remove(self, path: Path) -> None:
        """Remove a file of `path`, if it exists, wherever it is stored."""

    def abandon(self) -> None:
        """Stop uploading: the folder has another owner by now. From any thread."""


@contextlib.contextmanager
def run_folder(
    location: Location,
    hadoop: HadoopSettings,
    every: float = time_limits.UPLOAD,
    scratch: str | None = None,
    *,
    keeps: bool = False,
) -> Iterator[RunFolder]:
    """Open a folder of a run for writing, which is created if it is missing.

    Files that are not uploaded at the end stay on this host, in the folder for temporary files.

    Args:
        location: The folder's location.
        hadoop: The Hadoop settings.
        every: Seconds between two rounds of uploading.
        scratch: The folder for files to upload. Default: the folder for temporary files.
        keeps: Whether uploaded files stay there that are removed from the scratch folder, other
            than by `RunFolder.remove`.

    Raises:
        OSError: The folder cannot be created.
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
        uploaded = _Uploaded(path, location, Uploader(files, path, location, every, keeps=keeps))
        try:
            with uploaded.uploader:
                yield uploaded
        finally:
            if uploaded.kept or files_below(path) == ({}, None):
                shutil.rmtree(path, ignore_errors=True)
            else:
                move_left(path, uploaded.left)


class _InPlace:
    trouble: str | None = None

    def __init__(self, path: Path) -> None:
        self.path = path

    def keep(self, tell: Callable[[str], None], hurry: Callable[[], bool] = lambda: False) -> None:
        """Do nothing: the folder is the run's own."""

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Do nothing: the driver writes no more."""


class _Uploaded:
    def __init__(self, path: Path, location: Location, uploader: Uploader) -> None:
        self.path = path
        self.uploader = uploader
        self.kept = False
        self._abandoned = False
        self._location = location

    @functools.cached_property
    def left(self) -> Path:
        """The folder for what could not be uploaded, made when it is first asked for."""
        return folder_of_left(self.path)

    @property
    def trouble(self) -> str | None:
        """Why the last round of uploading failed; None if it did not."""
        return self.uploader.trouble

    def keep(self, tell: Callable[[str], None], hurry: Callable[[], bool] = lambda: False) -> None:
        """Upload everything, with patience."""
        self.kept = self._abandoned
        if self._abandoned:
            return
        try:
            with_patience(self.uploader.upload, tell, lambda: self._abandoned or hurry())
        except OSError as error:
            if not self._abandoned:  # meanwhile, by another thread
                left = f"not all of {self._location} is uploaded, the rest is in {self.left}"
                raise OSError(f"{left}: {error}") from None
        self.kept = True

    def remove(self, path: Path) -> None:
        """Remove a file, by the next round of uploading from the run's folder, too."""
        path.unlink(missing_ok=True)
        self.uploader.drop(path.relative_to(self.path).as_posix())

    def abandon(self) -> None:
        """Stop uploading."""
        self._abandoned = True
        self.uploader.stop()


def with_patience(
    call: Callable[[], T], tell: Callable[[str], None], hurry: Callable[[], bool] = lambda: False
) -> T:
    """Call until the run's store answers, for at most ten minutes; arguments as for `keep`.

    Raises:
        ConnectionError: The store still does not answer.
    """
    return call_again(
        call,
        after=lambda error: isinstance(error, ConnectionError),
        outage=time_limits.OUTAGE,
        tell=lambda error, seconds: tell(f"{error}; retrying"),
        hurry=hurry,
    )


def hand_on_checkpoint(
    files: WritableFiles,
    root: Location,
    attempt: Attempt,
    to: Path,
    *,
    from_parent: bool = False,
) -> None:
    """Copy the checkpoint folder that an attempt resumes from into its own folder, if any.

    It is that of the last attempt before that has one, with its file of trained epochs; else, or
    with `from_parent`, that of the trial's parent. An attempt with other hyperparameters does not
    count: its number was given again since the journal had lost its end.
    A lost attempt may still run on a host that the driver does not reach: a folder that changes
    while it is copied is copied again, and not used if that does not end.

    Args:
        files: The run's store.
        root: The run's folder.
        attempt: The attempt that is about to start.
        to: Its checkpoint folder.
        from_parent: Whether only the parent's checkpoint counts.

    Raises:
        OSError: A checkpoint cannot be read.
    """
    trial = attempt.trial
    if attempt.number == 1 and trial.parent is None:
        return
    this = root.below(attempt_name(trial.id, attempt.number))
    trials = this.parent
    try:
        there = files.names(trials)
    except FileNotFoundError:  # no attempt has stored anything yet
        return
    own = attempts_in([*there, this.name], trial.id)
    names = [] if from_parent else own[own.index(this.name) + 1 :]
    names += [] if trial.parent is None else attempts_in(there, trial.parent)
    for name in names:
        source = trials.below(f"{name}/{CHECKPOINT}")
        # NotADirectoryError: the train function put a file in the folder's place.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if name in own and _is_of_another(files, trials.below(name), attempt):
                continue
            finish_renames(files, trials.below(name))
            if files.listdir(source):
                part = to.with_name(f"{PART}{to.name}")  # a part must not pass for the whole
                shutil.rmtree(part, ignore_errors=True)
                make_folder(part)
                if _is_copied(files, source, part) and any(p.is_file() for p in part.rglob("*")):
                    if source.scheme != "file":
                        _remove_empty_folders(part)
                    shutil.rmtree(to, ignore_errors=True)
                    part.replace(to)
                    if name in own:
                        _copy_epochs(files, trials.below(name), to.parent)
                    return
                shutil.rmtree(part, ignore_errors=True)


def _remove_empty_folders(top: Path) -> None:
    """Remove folders without files: an upload may have left them, and they are no checkpoints."""
    for parent, _, _ in os.walk(top, topdown=False):
        if parent != str(top) and not os.listdir(parent):
            os.rmdir(parent)


def _is_of_another(files: WritableFiles, folder: Location, attempt: Attempt) -> bool:
    """Return whether the file in an attempt's folder has another trial than this attempt."""
    content = _content(files, folder.below(TRIAL))
    try:
        before = None if content is None else decode(content, Attempt)
    except ProtocolError:  # a train function wrote it
        return False
    return before is not None and as_json(before.trial) != as_json(attempt.trial)


def _is_plain(status: FileStatus) -> bool:
    """Return whether an entry of a folder is a folder or a file: no link, no pipe, no socket."""
    if status.is_link:
        return False
    path = Path(status.location.path)
    return status.is_folder or status.location.scheme != "file" or path.is_file()


def _copy_epochs(files: WritableFiles, attempt: Location, to: Path) -> None:
    """Copy the file of an attempt's trained epochs into another folder, if it can be read."""
    content = _content(files, attempt.below(EPOCHS))
    if content is not None:
        write_whole(to / EPOCHS, content)


def _content(files: WritableFiles, location: Location) -> bytes | None:
    """Return the content of a file; None if it cannot be read.

    Raises:
        ConnectionError: The store does not answer.
    """
    content = bytearray()
    try:
        files.read(files.status(location), content.extend)
    except ConnectionError:
        raise
    except OSError:  # none, or a train function made something else of this name
        return None
    return bytes(content)


def _is_copied(files: Files, source: Location, to: Path) -> bool:
    """Copy a folder until it stays the same meanwhile; return whether it did within some tries.

    Links in it that lead inside are made again: the program may put another link in their place.

    Raises:
        OSError: The folder cannot be read.
    """
    mirror = Mirror(files, source, to, _WHOLE_FILES, lambda name: False, takes=_is_plain)
    for left in reversed(range(_TRIES)):
        # Before the files, so that a copy that did not change has what they lead to.
        links = links_below(Path(source.path)) if source.scheme == "file" else {}
        try:
            changed = mirror.update()
        except ConnectionError:
            raise
        except OSError:  # such as that of a file that became shorter
            if not left:
                raise
        else:
            if not changed:
                make_links(links, to)
                return True
    return False


def hide_events(files: WritableFiles, root: Location, trial: int, number: int) -> None:
    """Hide the attempts before `number` from TensorBoard, which would average them with it.

    TensorBoard reads every file with "tfevents" in its name.

    Raises:
        OSError: A file cannot be renamed.
    """
    for earlier in range(1, number):
        for events in events_in(files, root.below(attempt_name(trial, earlier))):
            hide_event(files, events)


def events_in(files: WritableFiles, folder: Location) -> Iterator[Location]:
    """Yield the files in a folder that TensorBoard reads; none if the folder does not exist.

    Raises:
        OSError: A folder cannot be read.
    """
    try:
        found = files.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):  # an attempt that never started, or no folder
        return
    for status in found:
        if status.is_link:  # it may lead out of the folder
            continue
        if status.is_folder:
            yield from events_in(files, status.location)
        elif is_event_file(status.location.name):
            yield status.location


def hide_event(files: WritableFiles, events: Location) -> None:
    """Hide a file from TensorBoard, if it still exists.

    Raises:
        OSError: The file cannot be renamed.
    """
    hidden = events.parent.below(events.name.replace("tfevents", "lost-events"))
    with contextlib.suppress(FileNotFoundError):
        files.rename(events, hidden)
