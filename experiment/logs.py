"""What a trial printed, read while it goes on and shown so that it cannot harm a terminal."""

from __future__ import annotations

import codecs
import contextlib
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from experiment.loading import Reader
from experiment.text import printable
from search.space import LARGEST_INTEGER
from spark_jobs.paths import AttemptPaths, RunPaths

_LOOK_EVERY = 0.5  # seconds between two looks at a log that is followed
_CHUNK = 1 << 16


def copy_logs(reader: Reader, trial: int, *, follow: bool) -> None:
    """Copy the logs of a trial's last attempt to stdout and stderr.

    Args:
        reader: Of the run.
        trial: Its number.
        follow: Go on until the trial, or the search, has ended; with the next attempt where one is
            lost with its executor meanwhile.
    """
    before, attempt = None, last_attempt(reader.paths, trial)
    while attempt is not None and attempt != before:
        _copy_attempt(reader, trial, attempt, follow=follow)
        before, attempt = attempt, last_attempt(reader.paths, trial)


def last_attempt(paths: RunPaths, trial: int) -> AttemptPaths | None:
    """Return the newest attempt at a trial that has a folder."""
    last = None
    if 0 <= trial <= LARGEST_INTEGER:
        for attempt in _attempts(paths, trial):
            last = attempt
    return last


def _attempts(paths: RunPaths, trial: int) -> Iterator[AttemptPaths]:
    number = 1
    while (attempt := paths.attempt(trial, number)).folder.is_dir():
        yield attempt
        number += 1


def _copy_attempt(reader: Reader, trial: int, attempt: AttemptPaths, *, follow: bool) -> None:
    paths = reader.paths
    with (
        _Tail(attempt.stdout, sys.stdout) as output,
        _Tail(attempt.stderr, sys.stderr) as errors,
    ):
        while True:
            # Asked first: what was printed before the end is read after it.
            ended = (
                not follow
                or attempt.outcome.exists()
                or paths.result.exists()
                or last_attempt(paths, trial) != attempt
            )
            output.copy()
            errors.copy()
            if ended:
                return
            time.sleep(_LOOK_EVERY)
            with contextlib.suppress(OSError):  # the next look may find it
                reader.refresh()


class _Tail:
    """Copies what was added to a log, as text that is harmless to a terminal."""

    def __init__(self, path: Path, stream: TextIO) -> None:
        self._path, self._stream = path, stream
        self._file: io.BufferedReader | None = None
        # Carriage returns, as in progress bars, become line ends.
        self._decoder = io.IncrementalNewlineDecoder(
            codecs.getincrementaldecoder("utf-8")("replace"), translate=True
        )
        self._line = ""

    def __enter__(self) -> _Tail:
        return self

    def __exit__(self, *error: object) -> None:
        self._line += self._decoder.decode(b"", final=True)
        if self._line:
            self._write(self._line.removesuffix("\n") + "\n")
        if self._file is not None:
            self._file.close()

    def copy(self) -> None:
        """Copy the whole lines that are new."""
        if self._file is None:
            with contextlib.suppress(FileNotFoundError):
                self._file = self._path.open("rb")
        while self._file is not None and (data := self._file.read(_CHUNK)):
            whole, end, rest = (self._line + self._decoder.decode(data)).rpartition("\n")
            if len(rest) > _CHUNK:  # a line without an end is no reason to keep all of it
                whole, end, rest = whole + end + rest, "", ""
            self._line = rest
            self._write(whole + end)
        self._stream.flush()

    def _write(self, text: str) -> None:
        self._stream.write(printable(text, keep="\n\t"))
