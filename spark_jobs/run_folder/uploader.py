"""Uploads a folder of this host to a run's folder while it is being written to.

Each host writes its files of a run to its own disk and uploads them every few seconds, in few large
pieces: a small file costs HDFS nearly a tenth of a second, and an append a third of that.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Self, TypeVar

from search.values import is_unicode
from spark_jobs import time_limits
from spark_jobs.run_folder.listing import (
    CHECKPOINTS,
    GONE,
    age,
    checkpoints_in,
    files_below,
    unit_of,
)
from spark_jobs.run_folder.paths import is_event_file, only_grows
from spark_jobs.run_folder.renames import PARTS, Renames
from spark_jobs.storage.files import CHANGED, WritableFiles
from spark_jobs.storage.local_files import Look, look_of, open_regular
from spark_jobs.storage.locations import Location
from spark_jobs.threads import start_thread

_PIECE = 16 << 20  # maximum bytes of an append
_CHANGES = 4  # rounds in a row in which a file may change before it is uploaded nevertheless
_LISTS = 5  # of the folder for checkpoints in one round, while it changes
# After a file was sent whole, since it could not be appended to: so many times the seconds that it
# took, but at most a minute, since it may have waited for the store.
_REST = 9
_LONGEST_REST = 60.0
_END = 1 << 12  # last uploaded bytes, by which an append-only file is recognised

T = TypeVar("T")


class Uploader:
    """Keeps a remote folder equal to a folder of this host. A context manager, with a thread.

    Append-only files (logs, event files, journals) are appended to; any other file is uploaded
    whole, once it has not changed for a round, or has changed in several in a row, and unless it
    changes meanwhile. The files of the folder for checkpoints get their names together, once all of
    them are sent: a part of them must not pass for the last checkpoint, also if this host is lost
    meanwhile, see `renames`. Files that are removed here are removed there. Links and special files
    are not uploaded: they may lead out of the folder. A link among checkpoints that leads to
    another checkpoint is uploaded as a copy of it.

    Args:
        files: The store to upload to; used by one thread at a time.
        source: The folder of this host.
        target: The remote folder, created by the first round.
        every: Seconds between two rounds.
        keeps: Whether files that are removed here stay there, but for those that are dropped.

    Attributes:
        trouble: Why the thread's last round failed; None if it did not.
    """

    def __init__(
        self,
        files: WritableFiles,
        source: Path,
        target: Location,
        every: float = time_limits.UPLOAD,
        *,
        keeps: bool = False,
    ) -> None:
        self._files = files
        self._source = source
        self._target = target
        self._every = every
        self._keeps = keeps
        self._uploaded: dict[str, Look] = {}
        self._seen: dict[str, Look] = {}  # by the last round
        self._changes: dict[str, int] = {}  # rounds in a row in which a unit has changed
        self._ends: dict[str, bytes] = {}  # last uploaded bytes of append-only files
        self._folders: set[str] = set()
        # Files and folders that may exist there: created, or the answer was lost.
        self._there: set[str] = set()
        self._folders_there: set[str] = set()
        self._given_up: set[str] = set()
        self._dropped: set[str] = set()
        self._sent_whole: set[str] = set()  # files that could not be appended to the last time
        self._rests: dict[str, float] = {}  # until when files are not sent
        self._refused: dict[str, tuple[Look, OSError]] = {}  # whole files, and why
        self._renames = Renames(files, target)
        self._sent: dict[str, Look] = {}  # checkpoints that have no name yet
        self._listed: dict[str, Look] = {}  # those that are getting their names
        self.trouble: str | None = None
        self._round = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._upload_regularly, name="experiment-uploader", daemon=True
        )

    def __enter__(self) -> Self:
        start_thread(self._thread)
        return self

    def __exit__(self, *error: object) -> None:
        """End the thread; files that were not uploaded stay here."""
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        """End the thread, and each call of `upload`, after the current file. From any thread."""
        self._closing.set()

    def drop(self, name: str) -> None:
        """Let the next round remove a file that is removed here, also with `keeps`."""
        self._dropped.add(name)

    def upload(self, *, everything: bool = True) -> None:
        """Upload all changes, in the order of their last modification; none after `stop`.

        Args:
            everything: Whether to upload files that may still be written to.

        Raises:
            ConnectionError: The store does not answer; the next call continues from here.
            OSError: The store refused some files, or a folder here cannot be listed; then no file
                counts as removed.
        """
        with self._round:
            found, unlisted = files_below(self._source)
            refused = [] if unlisted is None else [unlisted]
            self._count_changes(found)
            if self._listed and not self._closing.is_set():
                with _collected(refused):
                    self._name_listed()
            self._make_way(found)
            self._make_folder("")
            checkpoints = None
            with _collected(refused):
                checkpoints = self._upload_checkpoints(found, everything=everything)
            others = [item for item in found.items() if unit_of(item[0]) != CHECKPOINTS]
            for name, look in self._until_stopped(sorted(others, key=age)):
                if self._uploaded.get(name) != look and name not in self._given_up:
                    with _collected(refused):
                        self._upload_file(name, look, everything=everything)
            # What is in a folder that cannot be listed is unknown.
            gone = self._there - found.keys() if unlisted is None else set()
            if self._keeps:
                gone = {name for name in gone if name in self._dropped or _is_unfinished(name)}
            for name in self._until_stopped(gone - (checkpoints or {}).keys()):
                if checkpoints is not None or unit_of(name) != CHECKPOINTS:
                    self._forget(name)
                    with _collected(refused):
                        self._files.remove(self._target.below(name))
                    self._there.discard(name)
            if unlisted is None and checkpoints is not None:
                for folder in self._until_stopped(self._removed_folders()):
                    with _collected(refused):
                        self._remove_folder(folder)
        if refused:
            raise refused[0]

    def _until_stopped(self, items: Iterable[T]) -> Iterator[T]:
        return itertools.takewhile(lambda _: not self._closing.is_set(), items)

    def _upload_file(self, name: str, look: Look, *, everything: bool) -> None:
        if not everything:
            self._check_not_refused(name, look)
            if not only_grows(name) and not self._is_due(name):
                return
            if time.monotonic() < self._rests.get(name, 0.0):
                return
        self._changes.pop(name, None)  # also if it fails: the file may be large
        source = self._source / name
        with self._noted(name, look):
            try:
                self._make_folder(_parent(name))
                if name in self._ends:
                    self._continue(name, look)
                else:
                    self._write(name, look)
            except FileNotFoundError as error:
                if not _is_of(error, source) and source.exists():
                    raise
            else:
                self._uploaded[name] = look

    def _upload_checkpoints(
        self, found: dict[str, Look], *, everything: bool
    ) -> dict[str, Look] | None:
        """Upload the folder for checkpoints, unless it may still be written to.

        If the folder has not changed for a round, no save was under way when it was listed, so the
        files that are sent are a whole checkpoint. Otherwise a save may have been under way: the
        folder is listed again once they are sent, and what is new is sent, too.

        Returns:
            The files of the folder, if all of them are there; until then, none of them is removed.
        """
        if self._listed:  # parts that are sent now would be taken for those on the list
            return None
        checkpoints = checkpoints_in(found)
        changed = self._changed(checkpoints)
        quiet = CHECKPOINTS not in self._changes
        if not everything:
            for name, look in changed:
                self._check_not_refused(name, look)
            if not self._is_due(CHECKPOINTS):
                return None
        self._changes.pop(CHECKPOINTS, None)
        if not (quiet or everything or changed):  # the next checkpoint may be about to be saved
            return None
        try:
            sent = self._send_all(checkpoints, quiet=quiet)
            if sent is None:
                return None
            self._give_names(self._changed(sent))
        except ConnectionError:
            raise
        except OSError:
            now = checkpoints_in(files_below(self._source)[0])
            if any(itertools.starmap(self._why_refused, now.items())):  # as above a quota
                self._remove_parts()  # they take up room for other files
            raise
        return sent

    def _send_all(self, checkpoints: dict[str, Look], *, quiet: bool) -> dict[str, Look] | None:
        """Send the files of the folder for checkpoints, and those that come meanwhile.

        Returns:
            The files; None after `stop`.

        Raises:
            OSError: The store refuses a file, or the folder changes again and again.
        """
        for _ in range(_LISTS):
            for name, look in self._until_stopped(self._changed(checkpoints)):
                if self._sent.get(name) != look:
                    self._send(name, look)
            if self._closing.is_set():
                return None
            listed = checkpoints
            if quiet:
                return listed
            checkpoints = checkpoints_in(files_below(self._source)[0])
            if checkpoints == listed:
                return listed
            if not self._changed(checkpoints):  # the next one may be about to be saved
                break
        raise OSError(f"{self._source / CHECKPOINTS}: {CHANGED}")

    def _changed(self, checkpoints: dict[str, Look]) -> list[tuple[str, Look]]:
        """Return what is not there as it is here, the oldest first."""
        aged = sorted(checkpoints.items(), key=age)
        return [(name, look) for name, look in aged if self._uploaded.get(name) != look]

    def _send(self, name: str, look: Look) -> None:
        """Send a checkpoint, which gets its name later, if the store does not refuse the name."""
        self._sent.pop(name, None)
        with self._noted(name, look):
            self._make_folder(PARTS)
            self._write_whole(name, look, self._renames.part_of(name))
        if not self._is_still(name, look):  # a file in its place may have been sent
            raise OSError(f"{self._source / name}: {CHANGED}")
        self._sent[name] = look

    def _give_names(self, sent: list[tuple[str, Look]]) -> None:
        """Move checkpoints to their places, once the store has taken the names of all folders."""
        for name, look in sent:
            with self._noted(name, look):
                self._make_folder(_parent(name))
        self._listed = dict(sent)
        self._name_listed()

    def _name_listed(self) -> None:
        """Move checkpoints to their places by a list, which an earlier round may have begun."""
        try:
            for name, look in self._listed.items():
                if self._uploaded.get(name) != look:
                    self._there.add(name)
                    with self._noted(name, look):
                        self._renames.write_list(self._listed)
                        self._renames.move(name)
                    self._uploaded[name] = look
        except ConnectionError:
            raise
        except OSError:
            self._remove_parts()
            raise
        self._remove_parts()

    def _remove_parts(self) -> None:
        if PARTS in self._folders_there:
            self._folders.discard(PARTS)  # also if there is no answer
            self._sent.clear()
            self._renames.remove()
            self._folders_there.discard(PARTS)
            self._listed.clear()

    def _is_still(self, name: str, look: Look) -> bool:
        try:
            return look_of((self._source / name).stat()) == look
        except GONE:
            return False

    @contextlib.contextmanager
    def _noted(self, name: str, look: Look) -> Iterator[None]:
        """Note that the store refuses a file, unless the file has changed."""
        try:
            if not is_unicode(name):
                raise OSError(f"{str(self._source / name)!a}: a name that UTF-8 cannot hold")
            yield
        except ConnectionError:
            raise
        except OSError as error:  # this file's only, such as one too large for a quota
            if self._is_still(name, look):
                self._refused[name] = look, error
            raise

    def _check_not_refused(self, name: str, look: Look) -> None:
        """Raise the error of a refused file, which may be large: it is sent again at the end."""
        if why := self._why_refused(name, look):
            raise why

    def _why_refused(self, name: str, look: Look) -> OSError | None:
        before, why = self._refused.get(name, (None, None))
        return why if before == look else None

    def _count_changes(self, found: dict[str, Look]) -> None:
        """Note what has changed since the last round."""
        changed = {unit_of(name) for name, _ in found.items() ^ self._seen.items()}
        self._changes = {unit: self._changes.get(unit, 0) + 1 for unit in changed}
        self._seen = found

    def _is_due(self, unit: str) -> bool:
        """Return whether to upload what may still be written to."""
        changes = self._changes.get(unit, 0)
        return changes == 0 or changes > _CHANGES

    def _write(self, name: str, look: Look) -> None:
        source, to = self._source / name, self._target.below(name)
        self._ends.pop(name, None)
        if not only_grows(name):
            self._there.add(name)
            self._write_whole(name, look, to)
            return
        with open_regular(source) as file:
            end = _before(file, look.size)  # first, so that a replaced file is noticed
        self._there.add(name)
        self._files.write(to, source, look.size)
        self._ends[name] = end

    def _write_whole(self, name: str, look: Look, to: Location) -> None:
        source = self._source / name
        with open_regular(source) as file:
            if look_of(os.fstat(file.fileno())) != look:
                raise OSError(f"{source}: {CHANGED}")
        self._files.write(to, source)

    def _continue(self, name: str, look: Look) -> None:
        try:
            self._append(name, look)
        except FileNotFoundError as error:
            source = self._source / name
            if _is_of(error, source) or not source.exists():
                raise
            if is_event_file(name):  # hidden, as those of an abandoned attempt
                self._given_up.add(name)
            else:
                self._write(name, look)
        except ConnectionError:
            raise
        except OSError:  # such as a lease that a dead DataNode holds; a new file has none
            began = time.monotonic()
            self._write(name, look)
            ended = time.monotonic()
            if name in self._sent_whole:  # an erasure-coded folder refuses each append
                self._rests[name] = ended + min(_REST * (ended - began), _LONGEST_REST)
            self._sent_whole.add(name)
        else:
            self._sent_whole.discard(name)

    def _append(self, name: str, look: Look) -> None:
        source, uploaded = self._source / name, self._uploaded[name]
        with open_regular(source) as file:
            same = uploaded.inode == look.inode and uploaded.size <= look.size
            if not same or _before(file, uploaded.size) != self._ends[name]:
                raise OSError(f"{source}: {CHANGED}")
            end = self._ends[name]
            while (at := file.tell()) < look.size:
                data = file.read(min(_PIECE, look.size - at))
                if not data:
                    raise OSError(f"{source}: {CHANGED}")
                self._files.append(self._target.below(name), data, at)
                end = (end + data[-_END:])[-_END:]
            self._ends[name] = end

    def _make_way(self, found: dict[str, Look]) -> None:
        """Remove remote files that are folders here by now, and the other way round."""
        folders = {parent.as_posix() for name in found for parent in PurePosixPath(name).parents}
        for name in (folders & self._there) | (self._folders_there & found.keys()):
            below = [f for f in self._folders_there if f"{f}/".startswith(f"{name}/")]
            gone = [n for n in self._there if f"{n}/".startswith(f"{name}/")]
            self._folders.difference_update(below)
            for file in gone:
                self._forget(file)
            self._files.remove(self._target.below(name))
            self._folders_there.difference_update(below)
            self._there.difference_update(gone)

    def _removed_folders(self) -> Iterator[str]:
        """Yield the topmost folders of checkpoints there that do not exist here.

        Without files they would pass for checkpoints.
        """
        there = {
            parent
            for folder in map(PurePosixPath, self._folders_there)
            for parent in (folder, *folder.parents)
            if unit_of(parent.as_posix()) == CHECKPOINTS
        }
        # One that is empty here by now may be about to get the next checkpoint.
        kept = {parent for name in self._there for parent in PurePosixPath(name).parents}
        for folder in there - kept:
            here = self._source / folder
            if here.parent.is_dir() and not here.is_dir():
                yield folder.as_posix()

    def _remove_folder(self, folder: str) -> None:
        below = {f for f in self._folders_there if f"{f}/".startswith(f"{folder}/")}
        self._folders -= below  # also if there is no answer
        self._files.remove(self._target.below(folder))
        self._folders_there -= below

    def _forget(self, name: str) -> None:
        """Let a file be uploaded whole, before it is removed: the answer may be lost."""
        self._sent_whole.discard(name)
        for known in (self._uploaded, self._ends, self._rests):
            known.pop(name, None)

    def _make_folder(self, folder: str) -> None:
        if folder not in self._folders:
            self._folders_there.add(folder)
            self._files.make_folder(self._target.below(folder) if folder else self._target)
            self._folders.add(folder)

    def _upload_regularly(self) -> None:
        while not self._closing.wait(self._every):
            try:
                self.upload(everything=False)
                self.trouble = None
            except OSError as error:  # the next round, or the last one, retries
                self.trouble = str(error)


@contextlib.contextmanager
def _collected(errors: list[OSError]) -> Iterator[None]:
    """Add the store's error of one file to the others; not that of a store that is away."""
    try:
        yield
    except ConnectionError:
        raise
    except OSError as error:
        errors.append(error)


def _is_unfinished(name: str) -> bool:
    """Return whether a file is one of `write_whole`, which gets another name."""
    return PurePosixPath(name).name.startswith(".")


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _is_of(error: FileNotFoundError, source: Path) -> bool:
    """Return whether the missing file is the one of this host, which may exist again by now."""
    return error.filename is not None and Path(error.filename) == source


def _before(file: IO[bytes], position: int) -> bytes:
    """Return some bytes before a position, and seek to it."""
    start = max(0, position - _END)
    file.seek(start)
    return file.read(position - start)
