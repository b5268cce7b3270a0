"""Reads a run from its folder, finished or not. Nothing in it is unpickled."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from experiment.results.result import Result, Results
from experiment.results.text import count
from experiment.run_files.format import RUN, check_format
from experiment.run_files.journal import JournalReader, JournalRewritten, read_journal
from experiment.run_files.journal_records import Record, RecordReader, read_records
from experiment.run_files.left_outcomes import Ignored, ignored_outcomes
from experiment.run_files.manifest import Manifest, Summary, started_at
from experiment.run_files.run_state import RunState
from search.direction import read_direction
from search.errors import InvalidArgument, shown
from search.grouped import spaces_of_groups
from search.space.spaces import Space
from search.values import decode_hook
from spark_jobs.messages import Attempt
from spark_jobs.run_folder.mirror import Mirror
from spark_jobs.run_folder.paths import MANIFEST, RunPaths
from spark_jobs.session import active_data_settings
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.local_files import open_regular
from spark_jobs.storage.locations import Location
from spark_jobs.storage.refusals import refused
from spark_jobs.storage.stores import files_at

T = TypeVar("T")

_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def load(run: str | os.PathLike[str] | Result | Results) -> Result:
    """Return the `Result` of a run from its folder, also while the search runs.

    Args:
        run: The run's folder, `<logdir>/<name>-<UTC time>-<hex>`, on this host or on HDFS, or its
            result.

    Returns:
        All trials; for a run of `search_each`, `.split('group')` returns those of each group.

    Raises:
        InvalidArgument: Not a run's folder, unreadable, or of a newer version.
        JournalDamaged: Its journal was changed after it was written.
    """
    with opened(run) as reader:
        return read_run(reader.paths).result


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as its folder has it.

    Attributes:
        paths: The run's paths.
        manifest: The run's manifest.
        result: The trials with an outcome.
        running: The attempts in flight; none after the end of the search.
        waiting: The next attempts of trials that are waiting to run again; likewise.
        lost: Trial and number of each attempt that was given up while its search ran.
        ended: Whether the search has ended; False while it runs, and if its driver was killed.
    """

    paths: RunPaths
    manifest: Manifest
    result: Result
    running: list[Attempt]
    waiting: list[Attempt]
    lost: frozenset[tuple[int, int]]
    ended: bool


def read_manifest(paths: RunPaths) -> Manifest:
    """Return the manifest of a run; errors as `load`."""
    try:
        return _read_json(paths, paths.manifest, Manifest)
    except OSError as error:
        raise _unreadable(paths, error) from None
    except _MALFORMED as error:
        raise _unusable(paths, f"whose manifest.json cannot be used: {error}") from None


def read_summary(paths: RunPaths) -> Summary | None:
    """Return the summary of a run; None before its end; errors as `load`."""
    try:
        return _read_json(paths, paths.result, Summary)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(paths, error) from None
    except _MALFORMED as error:
        raise _unusable(paths, f"whose result.json cannot be used: {error}") from None


def read_run(paths: RunPaths) -> Run:
    """Read a run's folder; errors as `load`."""
    return RunReader(paths).read()


class RunReader:
    """Reads a run's folder repeatedly; each time only the new records of its journal.

    Args:
        paths: The run's paths.
        make_state: Returns a state before the first record, to which the records are applied.
    """

    def __init__(
        self, paths: RunPaths, make_state: Callable[[RunPaths], RunState] = RunState
    ) -> None:
        self._paths = paths
        self._make_state = make_state
        self._begin()

    def _begin(self) -> None:
        self._state = self._make_state(self._paths)
        self._journal = JournalReader(self._paths.journal, self._paths.shown())
        self._records = RecordReader(self._paths.shown(self._paths.journal))

    def read(self) -> Run:
        """Return the current state of the run's folder; errors as `load`."""
        paths = self._paths
        manifest = read_manifest(paths)
        try:
            space = None if manifest.space is None else Space.from_json(manifest.space)
            goal = read_direction(manifest.direction)
            group_spaces = spaces_of_groups(manifest.algorithm)
        except ValueError as error:
            raise _unusable(paths, f"whose manifest.json cannot be used: {error}") from None
        summary = read_summary(paths)  # first: it is written after the journal's last line
        try:
            state = self.state()
        except OSError as error:
            raise _unreadable(paths, error) from None
        exhausted = manifest.exhausted if summary is None else summary.exhausted
        # An executor gets more calls as it runs.
        total = max(state.total or manifest.trials, len(state.results))
        if exhausted and not manifest.exhausted:  # it showed only at the end
            total = len(state.results)
        if summary is not None and summary.total is not None:  # fewer than at first after failures
            total = max(summary.total, len(state.results))
        result = Result(
            state.results,
            goal,
            paths.shown(),
            objective=state.objective or manifest.optimization_key,
            total=total,
            problem=None if summary is None else summary.problem,
            space=space,
            target=None if summary is None else summary.target,
            times=state.times,
            exhausted=exhausted,
            group_spaces=group_spaces,
        )
        return Run(
            paths=paths,
            manifest=manifest,
            result=result,
            running=[] if summary else list(state.in_flight.values()),
            waiting=[] if summary else list(state.waiting.values()),
            lost=frozenset(state.lost),
            ended=summary is not None,
        )

    def state(self) -> RunState:
        """Return the run's state, which the next call changes; errors as `records_of`."""
        try:
            try:
                self._apply_new()
            except JournalRewritten:
                self._begin()
                self._apply_new()
        except BaseException:  # some records were read but not applied
            self._begin()
            raise
        return self._state

    def _apply_new(self) -> None:
        for record in self._records.read(self._journal.new()):
            self._state.apply(record)


SUMMARY = r"manifest\.json|result\.json|journal/(\d+\.jsonl)?|owners/(\d+\.json)?"
"""The files that `read_run` and `experiment.run_files.ownership.owner_of` read, for `opened`."""


def pattern_of_trial(trial: int) -> str:
    """Return the pattern of a trial's output and outcome files, for `opened`."""
    files = r"((stdout|stderr)\.log|outcome\.json)?"
    return rf"trials/|trials/{trial:06d}(-\d+)?/(workers/(\d+/)?)?{files}"


OUTCOMES = r"trials/|trials/\d+(-\d+)?/(outcome\.json)?"
"""The files that `ignored_in` reads beside `SUMMARY`, for `opened`."""


def ignored_in(run: Run) -> list[Ignored]:
    """Return the outcomes in the trial folders of a run that do not count.

    Raises:
        InvalidArgument: The trial folders cannot be read.
    """
    counted = {t.id: t.attempt for t in run.result.trials if t.status != "cancelled"}
    try:
        root = Location.parse(run.paths.root)
        return list(ignored_outcomes(LocalFiles(), root, counted, run.lost))
    except OSError as error:
        raise _unreadable(run.paths, error) from None


@dataclass(frozen=True, slots=True)
class Reader:
    """A run that is open for reading.

    Attributes:
        paths: The paths of its files on this host.
        refresh: Updates these files; OSError if that fails.
    """

    paths: RunPaths
    refresh: Callable[[], object]


@contextlib.contextmanager
def opened(run: object, *parts: str) -> Iterator[Reader]:
    """Open a run for reading. A remote run is copied, and the copy is removed at the end.

    Args:
        run: The run, as for `load`.
        parts: Patterns of the files to copy; by default `SUMMARY`.

    Raises:
        InvalidArgument: Not a run's folder.
    """
    location = find_run(run)
    if location.scheme == "file":
        paths = RunPaths(Path(location.path))
        _check_run(paths)
        yield Reader(paths, lambda: None)
        return
    with tempfile.TemporaryDirectory(prefix="experiment-") as copy, contextlib.ExitStack() as open_:
        paths = RunPaths(Path(copy), str(location))
        try:
            files = files_at(location, active_data_settings().hadoop)
            open_.callback(files.close)
            mirror = Mirror(files, location, paths.root, re.compile("|".join(parts or (SUMMARY,))))
            mirror.update()
        except FileNotFoundError:
            raise _unusable(paths, "which is no folder") from None
        except OSError as error:
            raise _unreadable(paths, error) from None
        _check_run(paths)
        yield Reader(paths, mirror.update)


@contextlib.contextmanager
def run_given_as(argument: str) -> Iterator[None]:
    """Let errors about a run, raised in the block, name the user's argument."""
    try:
        yield
    except InvalidArgument as error:
        raise type(error)(argument, error.expected, error.got, error.hint) from None


def find_run(run: object, name: str = "run") -> Location:
    """Return the location of a run, without access to it.

    Args:
        run: The run, as for `load`.
        name: The argument's name, for the error.

    Raises:
        InvalidArgument: Neither a path nor a result.
    """
    if isinstance(run, Result | Results):
        run = run.logdir
    if not isinstance(run, str | os.PathLike) or not os.fspath(run):
        raise InvalidArgument(name, RUN, shown(run))
    text = os.fspath(run)
    if isinstance(text, bytes):
        raise InvalidArgument(name, RUN, shown(text))
    if "\0" in text:
        raise InvalidArgument(name, RUN, f"{shown(text)}, which is no folder")
    location = Location.parse(text, name)
    return location.at(location.path.rstrip("/") or "/")


def _check_run(paths: RunPaths) -> None:
    try:
        there, known = paths.root.is_dir(), paths.manifest.exists()
    except OSError as error:
        raise _unreadable(paths, error) from None
    if not there:
        raise _unusable(paths, "which is no folder")
    if not known:
        raise _no_manifest(paths)


def find_runs(logdir: Location) -> list[Location]:
    """Return the run folders in a folder, the newest last; OSError if it is missing."""
    runs = []
    with contextlib.closing(files_at(logdir, active_data_settings().hadoop)) as files:
        for folder in files.listdir(logdir):
            if not folder.is_folder:
                continue
            with contextlib.suppress(FileNotFoundError, PermissionError):  # of another user
                manifest = files.status(folder.location.below(MANIFEST))
                started = started_at(folder.location.name, otherwise=manifest.modified)
                runs.append((started, manifest.modified, str(folder.location), folder.location))
    return [location for *_, location in sorted(runs)]


def is_folder_of_runs(run: object) -> bool:
    """Return whether this is not a run folder but contains some; False if it cannot be read.

    Raises:
        InvalidArgument: Not a path.
    """
    place = find_run(run)
    try:
        with contextlib.closing(files_at(place, active_data_settings().hadoop)) as files:
            files.status(place.below(MANIFEST))
            return False
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            return bool(find_runs(place))
    except OSError:
        pass
    return False


def _no_manifest(paths: RunPaths) -> InvalidArgument:
    try:
        runs = find_runs(Location.parse(paths.shown()))
    except OSError as error:
        return _unreadable(paths, error)
    if runs:
        hint = f"it holds {count(len(runs), 'run')}, the newest is {str(runs[-1])!r}"
        return _unusable(paths, "which is a folder of runs", hint)
    return _unusable(paths, "without a manifest.json", "no search has started to write there")


def _unusable(paths: RunPaths, reason: str, hint: str = "") -> InvalidArgument:
    return InvalidArgument("run", RUN, _got(paths, reason), hint)


def _unreadable(paths: RunPaths, error: OSError) -> InvalidArgument:
    reason = f"that cannot be read: {error.strerror or error}"
    return refused(error, "run", RUN, _got(paths, reason))


def _got(paths: RunPaths, reason: str) -> str:
    return f"{shown(paths.shown(), 300)}, {reason}"


class _Versioned(msgspec.Struct):
    format: int


def _read_json(paths: RunPaths, path: Path, kind: type[T]) -> T:
    with open_regular(path) as file:
        data = file.read()
    check_format(msgspec.json.decode(data, type=_Versioned).format, paths.shown())
    return msgspec.json.decode(data, type=kind, dec_hook=decode_hook)


def records_of(paths: RunPaths) -> Iterator[Record]:
    """Yield the records of a run's journal, as `read_records` does.

    Raises:
        JournalDamaged: The journal was changed after it was written.
        OSError: The journal cannot be read.
    """
    lines = read_journal(paths.journal, paths.shown())
    yield from read_records(lines, paths.shown(paths.journal))
