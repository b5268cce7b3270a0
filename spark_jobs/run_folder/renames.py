"""Files that get their names together, also if the host that renames them is lost meanwhile.

The files of a checkpoint are renamed one by one. Where that stops halfway, some are of the former
checkpoint and some of the new one. By a list of the renames the next attempt does the others.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection
from pathlib import PurePosixPath

import msgspec

from spark_jobs.run_folder.listing import CHECKPOINTS
from spark_jobs.run_folder.paths import CHECKPOINT
from spark_jobs.storage.files import PART, WritableFiles, content_of
from spark_jobs.storage.locations import Location

PARTS = f"{PART}{CHECKPOINT}"
"""Name of the folder, in an attempt's, of checkpoints that do not have their names yet."""

LIST = "renames.json"
"""Name of the list in it: of each part's name, and its place in the attempt's folder."""


_LONGEST = 255  # bytes of a file's name


class Renames:
    """The renames of the files of an attempt, which are sent as parts.

    Args:
        files: The store.
        attempt: The attempt's folder.
    """

    def __init__(self, files: WritableFiles, attempt: Location) -> None:
        self._files = files
        self._attempt = attempt
        self._parts: dict[str, Location] = {}
        # No number is used again: whoever follows an old list moves no part of a later checkpoint.
        self._numbers = itertools.count()
        self._is_listed = False
        self._unanswered = ""  # what may have got its name, though there was no answer

    def part_of(self, name: str) -> Location:
        """Return where a file is sent to."""
        if name not in self._parts:
            part = f"{next(self._numbers)}-{PurePosixPath(name).name}".encode()
            short = part[:_LONGEST].decode(errors="ignore")
            self._parts[name] = self._attempt.below(f"{PARTS}/{short}")
        return self._parts[name]

    def write_list(self, names: Collection[str]) -> None:
        """Write the list, unless it is there; a single file needs none."""
        if len(names) > 1 and not self._is_listed:
            renames = {self._parts[name].name: name for name in names}
            listed = self._attempt.below(f"{PARTS}/{LIST}")
            self._files.write(listed, msgspec.json.encode(renames))
            self._is_listed = True

    def move(self, name: str) -> None:
        """Move a part to its place, to which an earlier call may have moved it."""
        try:
            self._files.rename(self._parts[name], self._attempt.below(name))
        except FileNotFoundError:
            if name != self._unanswered:
                raise
        except ConnectionError:
            self._unanswered = name
            raise
        self._unanswered = ""

    def remove(self) -> None:
        """Remove all parts, and the list."""
        self._files.remove(self._attempt.below(PARTS))
        self._parts.clear()
        self._is_listed = False


def finish_renames(files: WritableFiles, attempt: Location) -> None:
    """Finish the renames that an attempt has listed in its folder, if there are any.

    If the attempt is not lost after all, it may be doing them at the same time.

    Raises:
        OSError: A file cannot be renamed.
    """
    parts = attempt.below(PARTS)
    listed = parts.below(LIST)
    try:
        renames = msgspec.json.decode(content_of(files, files.status(listed)), type=dict[str, str])
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, UnicodeDecodeError):
        return  # none, or a train function's own
    for part, name in renames.items():
        if "/" not in part and name.startswith(CHECKPOINTS) and ".." not in name.split("/"):
            with contextlib.suppress(FileNotFoundError):
                files.rename(parts.below(part), attempt.below(name))
