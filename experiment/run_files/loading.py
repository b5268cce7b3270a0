"""Reading a run back from its folder, finished or not. Nothing in it is unpickled."""

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
from experiment.run_files.manifest import Manifest, Summary
from experiment.run_files.run_state import RunState
from search.direction import read_direction
from search.errors import InvalidArgument, shown
from search.space.spaces import Space
from spark_jobs.messages import Attempt
from spark_jobs.run_folder.mirror import Mirror
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.session import active_data_settings
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import files_at

T = TypeVar("T")

_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def load(run: str | os.PathLike[str] | Result | Results) -> Result:
    """Return the `Result` of a run as its folder has it, while the search goes on too.

    Args:
        run: The run's folder, `<logdir>/<name>-<UTC time>-<hex>`, on this host or on HDFS, or its
            result.

    Returns:
        All trials; of a run of `search_each`, `.split('group')` has those of each group.

    Raises:
        InvalidArgument: It is no run's folder, cannot be read, or is of a newer version.
        JournalDamaged: Its journal was changed after it was written.
    """
    with opened(run) as reader:
        return read_run(reader.paths).result


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the folder of a run says.

    Attributes:
        paths: Its files.
        manifest: What it is.
        result: The trials that came to an end.
        running: The attempts that were out when it was read; after the end of the search, none.
        lost: Trial and number of each attempt that was given up while its search ran.
        ended: Has the search ended? False while it runs, and where its driver was killed.
    """

    paths: RunPaths
    manifest: Manifest
    result: Result
    running: list[Attempt]
    lost: frozenset[tuple[int, int]]
    ended: bool


def read_manifest(paths: RunPaths) -> Manifest:
    """Return what a run is; errors as `load`."""
    try:
        check_format(_read_json(paths.manifest, _Versioned).format, paths.shown())
        return _read_json(paths.manifest, Manifest)
    except OSError as error:
        raise _unreadable(paths, error) from None
    except _MALFORMED as error:
        raise _unusable(paths, f"whose manifest.json cannot be used: {error}") from None


def read_run(paths: RunPaths) -> Run:
    """Read a run's folder; errors as `load`."""
    return RunReader(paths).read()


class RunReader:
    """Reads a run's folder again and again; each look reads only what is new of its journal.

    Args:
        paths: Of the run.
    """

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._state = StateReader(paths)

    def read(self) -> Run:
        """Return what the folder says by now; errors as `load`."""
        paths = self._paths
        manifest = read_manifest(paths)
        try:
            space = None if manifest.space is None else Space.from_json(manifest.space)
            goal = read_direction(manifest.direction)
        except ValueError as error:
            raise _unusable(paths, f"whose manifest.json cannot be used: {error}") from None
        try:
            # The summary first: it is written after the journal's last line.
            summary = _read_json(paths.result, Summary) if paths.result.exists() else None
            state = self._state.read()
        except OSError as error:
            raise _unreadable(paths, error) from None
        except _MALFORMED as error:
            raise _unusable(paths, f"whose result.json cannot be used: {error}") from None
        result = Result(
            state.results,
            goal,
            paths.shown(),
            objective=state.objective or manifest.optimization_key,
            # Of an executor nobody knew it before.
            total=max(state.total or manifest.trials, len(state.results)),
            problem=None if summary is None else summary.problem,
            space=space,
            target=None if summary is None else summary.target,
        )
        running = [] if summary else list(state.in_flight.values())
        return Run(
            paths=paths,
            manifest=manifest,
            result=result,
            running=running,
            lost=frozenset(state.lost),
            ended=summary is not None,
        )


MANIFEST = r"manifest\.json"
SUMMARY = r"manifest\.json|result\.json|journal/(\d+\.jsonl)?|owners/(\d+\.json)?"
"""What `read_run` and `experiment.run_files.ownership.owner_of` read, for `opened`."""


def files_of_trial(trial: int) -> str:
    """Return the files of a trial that say what it printed and whether it ended, for `opened`."""
    return rf"trials/|trials/{trial:06d}(-\d+)?/((stdout|stderr)\.log|outcome\.json)?"


OUTCOMES = r"trials/|trials/\d+(-\d+)?/(outcome\.json)?"
"""What `ignored_in` reads beside `SUMMARY`, for `opened`."""


def ignored_in(run: Run) -> list[Ignored]:
    """Return the outcomes in the folders of a run's trials that do not count.

    Raises:
        InvalidArgument: They cannot be read.
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
        paths: Its files, on this host.
        refresh: Brings them up to date; OSError where that fails.
    """

    paths: RunPaths
    refresh: Callable[[], None]


@contextlib.contextmanager
def opened(run: object, *parts: str) -> Iterator[Reader]:
    """Open a run for reading. One that is not on this host is copied, and the copy ends with this.

    Args:
        run: As for `load`.
        parts: Patterns of the files that matter; `SUMMARY` when left out.

    Raises:
        InvalidArgument: It is no run's folder.
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
    """Let errors about a run that is read in the block name the argument that it was given as."""
    try:
        yield
    except InvalidArgument as error:
        raise InvalidArgument(argument, error.expected, error.got, error.hint) from None


def find_run(run: object, name: str = "run") -> Location:
    """Return where a run is, without looking there.

    Args:
        run: As for `load`.
        name: Of the argument, for the error.

    Raises:
        InvalidArgument: It cannot be one.
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
    """Return the folders of runs in a folder, the newest last; OSError where there is none."""
    runs = []
    with contextlib.closing(files_at(logdir, active_data_settings().hadoop)) as files:
        for folder in files.listdir(logdir):
            if not folder.is_folder:
                continue
            with contextlib.suppress(FileNotFoundError, PermissionError):  # of somebody else
                manifest = files.status(folder.location.below("manifest.json"))
                runs.append((manifest.modified, str(folder.location), folder.location))
    return [location for *_, location in sorted(runs)]


def is_folder_of_runs(run: object) -> bool:
    """Is this no run's folder, but one that holds such? False where nobody can tell.

    Raises:
        InvalidArgument: It is no path.
    """
    place = find_run(run)
    try:
        with contextlib.closing(files_at(place, active_data_settings().hadoop)) as files:
            files.status(place.below("manifest.json"))
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
    return InvalidArgument("run", RUN, f"{shown(paths.shown(), 300)}, {reason}", hint)


def _unreadable(paths: RunPaths, error: OSError) -> InvalidArgument:
    return _unusable(paths, f"that cannot be read: {error.strerror or error}")


class _Versioned(msgspec.Struct):
    format: int


def _read_json(path: Path, kind: type[T]) -> T:
    return msgspec.json.decode(path.read_bytes(), type=kind)


def records_of(paths: RunPaths) -> Iterator[Record]:
    """Yield the records of a run's journal, as `read_records` does.

    Raises:
        JournalDamaged: It was changed after it was written.
        OSError: It cannot be read.
    """
    lines = read_journal(paths.journal, paths.shown())
    yield from read_records(lines, paths.shown(paths.journal))


class StateReader:
    """Folds a run's journal again and again; each look reads only what is new of it.

    Args:
        paths: Of the run.
    """

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._begin()

    def _begin(self) -> None:
        self._state = RunState(self._paths)
        self._journal = JournalReader(self._paths.journal, self._paths.shown())
        self._records = RecordReader(self._paths.shown(self._paths.journal))

    def read(self) -> RunState:
        """Return where the run is by now, which the next look changes; errors as `records_of`."""
        try:
            try:
                self._take_in()
            except JournalRewritten:
                self._begin()
                self._take_in()
        except BaseException:  # what was read has not been taken in
            self._begin()
            raise
        return self._state

    def _take_in(self) -> None:
        for record in self._records.read(self._journal.new()):
            self._state.apply(record)


def state_of(paths: RunPaths) -> RunState:
    """Return where a run is, by its journal; errors as `records_of`."""
    return StateReader(paths).read()
