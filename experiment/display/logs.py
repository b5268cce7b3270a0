"""The output of a trial, read while it runs and shown without control characters."""

from __future__ import annotations

import codecs
import contextlib
import io
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TextIO

from experiment.results.text import printable
from experiment.run_files.loading import Reader
from search.errors import InvalidArgument, shown
from spark_jobs import time_limits
from spark_jobs.run_folder.paths import (
    WORKERS,
    AttemptPaths,
    RunPaths,
    attempts_in,
    parse_attempt_name,
)
from spark_jobs.storage.local_files import open_regular

_POLL = 0.5  # seconds between two reads of a log that is followed
_CHUNK = 1 << 16


def copy_logs(
    reader: Reader,
    trial: int,
    *,
    worker: int = 0,
    until: Callable[[int, Path], bool] | None = None,
) -> None:
    """Copy the logs of all attempts of a trial to stdout and stderr, the newest last.

    Args:
        reader: The reader of the run.
        trial: The trial's id.
        worker: The rank of the worker whose logs are meant.
        until: Returns whether the trial has ended, from the number of its newest attempt and that
            attempt's outcome file. With it, copying continues until the trial, or the search, has
            ended, through the attempts that follow failures. Default: copy what is there.

    Raises:
        InvalidArgument: A log cannot be read, or is no regular file.
    """
    shown: list[AttemptPaths] = []
    while new := [attempt for attempt in attempts_at(reader.paths, trial) if attempt not in shown]:
        for attempt in new:
            shown.append(attempt)
            _, number = parse_attempt_name(attempt.folder.name)
            if number > 1 or len(new) > 1:
                print(f"--- trial {trial}, attempt {number} ---", flush=True)
            _copy_attempt(reader, trial, attempt, worker=worker, until=until)


def last_attempt(paths: RunPaths, trial: int) -> AttemptPaths | None:
    """Return the newest attempt of a trial that has a folder."""
    return next(reversed(attempts_at(paths, trial)), None)


def attempts_at(paths: RunPaths, trial: int) -> list[AttemptPaths]:
    """Return the attempts of a trial that have a folder, the newest last."""
    try:
        names = [path.name for path in paths.trials.iterdir() if path.is_dir()]
    except FileNotFoundError:  # no trial has started
        return []
    return [AttemptPaths(paths.trials / name) for name in reversed(attempts_in(names, trial))]


def has_worker(paths: RunPaths, trial: int, worker: int) -> bool:
    """Return whether any attempt of a trial has files of a worker."""
    return any(_of_worker(attempt, worker).folder.is_dir() for attempt in attempts_at(paths, trial))


def _of_worker(attempt: AttemptPaths, worker: int) -> AttemptPaths:
    return AttemptPaths(attempt.folder / WORKERS / str(worker)) if worker else attempt


def _copy_attempt(
    reader: Reader,
    trial: int,
    attempt: AttemptPaths,
    *,
    worker: int,
    until: Callable[[int, Path], bool] | None,
) -> None:
    paths, own = reader.paths, _of_worker(attempt, worker)
    # The value of rank 0 ends a trial, while its other workers may still run.
    patience = time_limits.GANG_END if worker else 0.0
    over_since = math.inf
    with (
        _Tail(paths, own.stdout, sys.stdout) as output,
        _Tail(paths, own.stderr, sys.stderr) as errors,
    ):
        while True:
            # Checked first, so that all output before the end is read after it.
            now = time.monotonic()
            number = parse_attempt_name(attempt.folder.name)[1]
            is_over = until is not None and (paths.result.exists() or until(number, own.outcome))
            if is_over:
                over_since = min(over_since, now)
            ended = (
                until is None
                or last_attempt(paths, trial) != attempt
                or (is_over and own.outcome.exists())
                or now - over_since >= patience
            )
            output.copy()
            errors.copy()
            if ended:
                return
            time.sleep(_POLL)
            with contextlib.suppress(OSError):  # the next read may succeed
                reader.refresh()


class _Tail:
    """Copies the text added to a log, without control characters."""

    def __init__(self, paths: RunPaths, path: Path, stream: TextIO) -> None:
        self._paths = paths
        self._path = path
        self._stream = stream
        self._file: IO[bytes] | None = None
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
        """Copy the new whole lines."""
        if self._file is None:
            self._file = self._opened()
        while self._file is not None and (data := self._file.read(_CHUNK)):
            whole, end, rest = (self._line + self._decoder.decode(data)).rpartition("\n")
            if len(rest) > _CHUNK:  # a line without end is not kept in memory
                whole, end, rest = whole + end + rest, "", ""
            self._line = rest
            self._write(whole + end)
        self._stream.flush()

    def _opened(self) -> IO[bytes] | None:
        try:
            return open_regular(self._path)
        except FileNotFoundError:
            return None
        except OSError as error:
            place = shown(self._paths.shown(self._path), 300)
            got = f"{place}, which cannot be read: {error.strerror or error}"
            raise InvalidArgument("trial", "a trial whose output can be read", got) from None

    def _write(self, text: str) -> None:
        self._stream.write(printable(text, keep="\n\t"))
