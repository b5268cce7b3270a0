"""Going on with a run: what it was is compared, what it has done is read back."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiment.results.text import printable
from experiment.run_files.journal import segment_numbers
from experiment.run_files.journal_records import Record
from experiment.run_files.left_outcomes import LeftBehind, look_for_outcomes
from experiment.run_files.loading import (
    MANIFEST,
    SUMMARY,
    opened,
    read_manifest,
    records_of,
    run_given_as,
)
from experiment.run_files.manifest import Manifest
from experiment.run_files.run_state import RunState
from experiment.setup.specification import SearchSpec
from search.errors import InvalidArgument, shown
from search.space.spaces import Space
from search.trial import Trial
from spark_jobs.run_folder.paths import JOURNAL, OWNERS, RESULT, SEARCH, RunPaths
from spark_jobs.run_folder.writing import events_in, hide_event
from spark_jobs.storage.files import PART, WritableFiles
from spark_jobs.storage.locations import Location

_BUDGET = ("generations", "samples")
"""Arguments of algorithms that may be larger than before: the trials so far are the same."""

_LONG = 500  # characters of a value: the paths of a warm start differ at their ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a run has done so far; nothing, if it is new.

    Attributes:
        records: Of its journal.
        left: What trials have left that the journal knows no end of.
        segments: How many its journal has.
        curves: The event files of the search itself.
    """

    records: Sequence[Record] = ()
    left: Sequence[LeftBehind] = ()
    segments: int = 0
    curves: Sequence[Location] = ()


def manifest_of(run: object) -> Manifest:
    """Return what the run is that `resume` names.

    Raises:
        InvalidArgument: It is no run's folder, or cannot be read.
    """
    with run_given_as("resume"), opened(run, MANIFEST) as reader:
        return read_manifest(reader.paths)


def check_same_search(before: Manifest, now: Manifest, run: str) -> list[str]:
    """Make sure that a search may go on with a run.

    Args:
        before: What the run is.
        now: What was called.
        run: What users call the run.

    Returns:
        What the user should know.

    Raises:
        InvalidArgument: It is another search; the message says what differs.
    """
    differences = list(_differences(before, now))
    if differences:
        raise _other_search(run, "; ".join(differences))
    warnings = []
    if before.function != now.function:
        warnings.append(
            f"the train function {now.train!r} is not what {run!r} was started with; trials that "
            "have ended keep what the old one returned"
        )
    if before.constraint != now.constraint:
        warnings.append(
            f"the constraint is not what {run!r} was started with; trials that it would not allow "
            "now stay, and where it would have made others the run cannot go on"
        )
    return warnings


def _other_search(run: str, difference: str) -> InvalidArgument:
    got = f"another one: {printable(difference)}"
    return InvalidArgument("resume", f"the search of {run!r}", got)


def _differences(before: Manifest, now: Manifest) -> Iterator[str]:
    for what in ("call", "direction", "optimization_key", "seed"):
        was, is_now = getattr(before, what), getattr(now, what)
        if repr(was) != repr(is_now):  # several objectives have an order
            yield f"{what} was {was!r}, is {is_now!r}"
    spaces = [_domains(manifest.space) for manifest in (before, now)]
    yield from space_differences(*spaces)
    if list(spaces[0]) != list(spaces[1]) and set(spaces[0]) == set(spaces[1]):
        yield f"the order of the space was {list(spaces[0])}, is {list(spaces[1])}"
    yield from _changed("", *_without_budgets(before.algorithm, now.algorithm))


def _without_budgets(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what algorithms say of themselves without budgets that are no smaller than before."""
    was, is_now = dict(before), dict(now)
    for name in _BUDGET:
        if was.get(name, 0) <= is_now.get(name, 0):
            was.pop(name, None)
            is_now.pop(name, None)
    match was, is_now:
        case {"searcher": dict(one)}, {"searcher": dict(other)}:  # of `search_each`
            was["searcher"], is_now["searcher"] = _without_budgets(one, other)
    return was, is_now


def space_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Say what hyperparameters differ between two spaces, each in words; not their order."""
    yield from _changed("space of", before, now)


def _changed(what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in {**before, **now}:
        subject = f"{what} {name!r}" if what else name
        if name not in now:
            yield f"{subject} was {shown(before[name], _LONG)}, is left out"
        elif name not in before:
            yield f"{subject} is new: {shown(now[name], _LONG)}"
        elif before[name] != now[name]:
            yield f"{subject} was {shown(before[name], _LONG)}, is {shown(now[name], _LONG)}"


def _domains(space: dict[str, Any] | None) -> dict[str, Any]:
    return {} if space is None else dict(Space.from_json(space))


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage while a run is read back: there is none, and it takes as long again."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@uncollected()
def read_past(files: WritableFiles, root: Location, spec: SearchSpec) -> Past:
    """Read what a run has done so far. Nobody else may run it meanwhile.

    Args:
        files: Of the run.
        root: The run's folder.
        spec: The search that is to go on.

    Raises:
        JournalDamaged: Its journal was changed after it was written.
        InvalidArgument: It cannot be read, it has got more trials since it was begun than the
            search has, or its points were others.
        OSError: The trials' folders cannot be read.
    """
    with run_given_as("resume"), opened(str(root), SUMMARY) as reader:
        records = list(records_of(reader.paths))
        segments = len(segment_numbers(reader.paths.journal))
    state, total = RunState(RunPaths(Path(root.path), str(root))), spec.searcher.total
    for record in records:
        state.apply(record)
    if spec.points:
        for trial in state.trials.values():
            _check_point(trial, spec.points, str(root))
    if state.total is not None and state.total > total:
        raise _other_search(str(root), f"its trials were {state.total}, are {total}")
    ended = {result.id for result in state.results if result.status != "cancelled"}
    left = list(look_for_outcomes(files, root, ended, state.lost))
    return Past(
        records=records,
        left=left,
        segments=segments,
        curves=list(events_in(files, root.below(SEARCH))),
    )


def _check_point(trial: Trial, points: Sequence[Mapping[str, Any]], run: str) -> None:
    point = dict(points[trial.id]) if trial.id < len(points) else None
    if point != dict(trial.params):
        raise _other_search(run, f"point {trial.id} was {shown(trial.params)}, is {shown(point)}")


def reopen(files: WritableFiles, root: Location, past: Past) -> None:
    """Take away what says that a run has ended; the search's own curves have begun anew.

    What the driver before was writing when it was killed goes, too.

    Raises:
        OSError: The folder cannot be written to.
    """
    files.remove(root.below(RESULT))
    for events in past.curves:
        hide_event(files, events)
    for folder in (root, *map(root.below, (JOURNAL, SEARCH, OWNERS))):
        with contextlib.suppress(FileNotFoundError):  # a run that has not come so far
            for name in files.names(folder):
                if name.startswith(PART):
                    files.remove(folder.below(name))
