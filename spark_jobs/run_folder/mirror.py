"""A local copy of a remote run folder that is kept up to date, to read a run as a local one."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from spark_jobs.run_folder.paths import OUTCOME, WORKERS, only_grows
from spark_jobs.storage.files import PART, Files, FileStatus
from spark_jobs.storage.local_files import make_folder, open_appending, open_new
from spark_jobs.storage.locations import Location


class Mirror:
    """Fetches the changes of a run's folder, round by round.

    Of append-only files, the new part is fetched. A trial's folder with the outcomes of all its
    workers, each uploaded last, is listed again only when a name in it changes.

    Args:
        files: The store of the run.
        source: The run's folder in the store.
        target: An existing folder of this host.
        wanted: Matches the full relative paths to fetch; paths of folders end with "/".
        grows: Returns whether the file of a relative path is append-only.
        takes: Returns whether to fetch a file or folder at all. Default: no links, which may lead
            out of the folder.
    """

    def __init__(
        self,
        files: Files,
        source: Location,
        target: Path,
        wanted: re.Pattern[str],
        grows: Callable[[str], bool] = only_grows,
        *,
        takes: Callable[[FileStatus], bool] = lambda status: not status.is_link,
    ) -> None:
        self._files = files
        self._source = source
        self._target = target
        self._wanted = wanted
        self._grows = grows
        self._takes = takes
        self._fetched: dict[str, FileStatus] = {}
        self._ended: dict[str, str] = {}  # version of each folder with an outcome
        self._changed = False

    def update(self) -> bool:
        """Fetch changed files, and remove deleted ones.

        Returns:
            Whether there were any. If not, the copy is the folder as the last call found it.

        Raises:
            FileNotFoundError: The folder does not exist.
            PermissionError: An entry of the folder may not be read; the others were fetched.
            OSError: The folder cannot be read; the next call continues from here.
        """
        self._changed = False
        self._look_into("", self._files.listdir(self._source))
        return self._changed

    def _look_into(self, folder: str, found: list[FileStatus]) -> None:
        there: set[str] = set()
        refused: PermissionError | None = None
        # The outcome last: with it, a reader may take everything else for complete.
        for status in sorted(found, key=lambda status: status.location.name == OUTCOME):
            name = folder + status.location.name + ("/" if status.is_folder else "")
            if not (self._wanted.fullmatch(name) and self._takes(status)):
                continue
            there.add(name)
            try:
                if status.is_folder:
                    self._fetch_folder(name, status)
                elif self._fetched.get(name) != status:
                    self._changed = True
                    self._fetch(name, status)
                    self._fetched[name] = status
            except FileNotFoundError:  # removed since it was listed
                self._changed = True
                there.discard(name)
            except PermissionError as error:
                if folder:
                    raise
                refused = error  # such as for another user's run in a folder of runs
        for path in (self._target / folder).iterdir():
            name = folder + path.name + ("/" if path.is_dir() else "")
            if name not in there:
                self._remove(name, path)
        if refused is not None:
            raise refused

    def _remove(self, name: str, path: Path) -> None:
        self._changed = True
        below = name.rstrip("/") + "/"
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        for known in (self._fetched, self._ended):
            for key in [key for key in known if key == name or key.startswith(below)]:
                del known[key]

    def _fetch_folder(self, name: str, status: FileStatus) -> None:
        if self._ended.get(name) == status.version:
            return
        make_folder(self._target / name)
        found = self._files.listdir(status.location)
        self._look_into(name, found)
        others = (self._target / name / WORKERS).glob("*")
        workers_ended = all(f"{name}{WORKERS}/{path.name}/" in self._ended for path in others)
        if workers_ended and any(inside.location.name == OUTCOME for inside in found):
            self._ended[name] = status.version

    def _fetch(self, name: str, status: FileStatus) -> None:
        path = self._target / name
        if self._grows(name):
            with os.fdopen(open_appending(path), "ab") as file:
                if file.tell() > status.length:  # another file of the same name
                    file.truncate(0)
                self._files.read(status, file.write, os.fstat(file.fileno()).st_size)
        else:
            beside = path.with_name(f"{PART}mirrored")  # `.x` may be a file, too
            beside.unlink(missing_ok=True)  # of an update that failed
            with open_new(beside) as file:
                self._files.read(status, file.write)
            beside.replace(path)
        os.utime(path, (status.modified, status.modified))
