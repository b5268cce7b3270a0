"""Resuming a run: checks that it is the same search, and reads its past."""

from __future__ import annotations

import contextlib
import gc
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from experiment.results.text import printable
from experiment.results.trial_result import TrialResult
from experiment.run_files.journal import segment_numbers
from experiment.run_files.journal_records import Record
from experiment.run_files.left_outcomes import LeftBehind, look_for_outcomes
from experiment.run_files.loading import (
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
from search.searcher import why_exhausted
from search.space.spaces import Space
from search.trial import Trial
from search.values import identity
from spark_jobs.run_folder.paths import JOURNAL, MANIFEST, OWNERS, RESULT, SEARCH, RunPaths
from spark_jobs.run_folder.writing import events_in, hide_event
from spark_jobs.storage.files import PART, WritableFiles
from spark_jobs.storage.locations import Location

_BUDGET = ("generations", "samples")
"""Arguments of algorithms that may grow: the trials so far are the same."""

_CANDIDATES = {"differential evolution": 5, "NSGA-II": 1}
"""The `candidates` of algorithms before runs recorded them, without a barrier."""

_LONG = 500  # maximum characters of a value: the paths of a warm start differ at their ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The past of a run; empty if the run is new.

    Attributes:
        records: The records of its journal.
        left: Outcomes in trial folders that the journal lacks.
        segments: Number of segments of its journal.
        curves: The event files of the search itself.
    """

    records: Sequence[Record] = ()
    left: Sequence[LeftBehind] = ()
    segments: int = 0
    curves: Sequence[Location] = ()


def manifest_of(run: object) -> Manifest:
    """Return the manifest of the run to resume.

    Raises:
        InvalidArgument: Not a run's folder, or it cannot be read.
    """
    with run_given_as("resume"), opened(run, re.escape(MANIFEST)) as reader:
        return read_manifest(reader.paths)


def recorded_argument(run: object, name: str) -> Any:
    """Return an argument of the algorithm of the run to resume, by its present name.

    Args:
        run: The run, as for `manifest_of`.
        name: The argument's name.

    Returns:
        Its value; None if the algorithm has no such argument.

    Raises:
        InvalidArgument: As for `manifest_of`.
    """
    return _in_present_terms(manifest_of(run).algorithm).get(name)


def check_same_search(before: Manifest, now: Manifest, run: str) -> list[str]:
    """Check that a search may resume a run.

    Args:
        before: The run's manifest.
        now: The manifest of the call.
        run: The run's name for users.

    Returns:
        Warnings for the user.

    Raises:
        InvalidArgument: The run is of another search; the message has the differences.
    """
    differences = list(_differences(before, now))
    if differences:
        raise _other_search(run, "; ".join(differences))
    warnings = []
    workers = before.workers_per_trial, now.workers_per_trial
    strategy = () if 1 in workers else ("strategy",)
    for name in ("workers_per_trial", *strategy, "precision"):
        was, is_now = getattr(before, name), getattr(now, name)
        if was != is_now:
            warnings.append(f"{name} was {was} when {run!r} was started, is {is_now}")
    if before.function != now.function:
        warnings.append(
            f"the train function {now.train!r} has changed since {run!r} was started; trials that "
            "have ended keep their outcomes"
        )
    if before.constraint != now.constraint:
        warnings.append(
            f"the constraint has changed since {run!r} was started; trials that it no longer "
            "allows are kept, and if it leads to other trials the run cannot be resumed"
        )
    return warnings


def _other_search(run: str, difference: str) -> InvalidArgument:
    got = f"another one: {printable(difference)}"
    return InvalidArgument("resume", f"the search of {run!r}", got)


def _differences(before: Manifest, now: Manifest) -> Iterator[str]:
    for what in ("call", "direction", "optimization_key", "seed", "repeats"):
        was, is_now = getattr(before, what), getattr(now, what)
        if repr(was) != repr(is_now):  # several objectives have an order
            yield f"{what} was {was!r}, is {is_now!r}"
    spaces = [_domains(manifest.space) for manifest in (before, now)]
    yield from space_differences(*spaces)
    if list(spaces[0]) != list(spaces[1]) and set(spaces[0]) == set(spaces[1]):
        yield f"the order of the space was {list(spaces[0])}, is {list(spaces[1])}"
    yield from _changed("", *_without_budgets(_in_present_terms(before.algorithm), now.algorithm))


def _in_present_terms(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded algorithm's arguments by their present names, with those added since."""
    arguments = dict(algorithm)
    kind = algorithm.get("type")
    if kind == "differential evolution" and "strategy" in arguments:
        arguments["variant"] = arguments.pop("strategy")
    if kind in _CANDIDATES and arguments.get("generational") is False:
        arguments.setdefault("candidates", _CANDIDATES[kind])
    if isinstance(searcher := arguments.get("searcher"), dict):  # `search_each`
        arguments["searcher"] = _in_present_terms(searcher)
    return arguments


def _without_budgets(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of algorithms without budgets that are no smaller than before."""
    was, is_now = dict(before), dict(now)
    for name in _BUDGET:
        old, new = was.get(name, 0), is_now.get(name, 0)
        # An argument of a user's algorithm may be of any type, such as None for no limit.
        if isinstance(old, Real) and isinstance(new, Real) and old <= new:
            was.pop(name, None)
            is_now.pop(name, None)
    match was, is_now:
        case {"searcher": dict(one)}, {"searcher": dict(other)}:  # `search_each`
            was["searcher"], is_now["searcher"] = _without_budgets(one, other)
    return was, is_now


def space_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each hyperparameter that differs between two spaces, in any order."""
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
    """Turn the garbage collector off while a run is read, which halves the time."""
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
    """Read the past of a run, which this driver must own.

    Args:
        files: The run's store.
        root: The run's folder.
        spec: The search that resumes it.

    Raises:
        JournalDamaged: Its journal was changed after it was written.
        InvalidArgument: The run cannot be read, has more trials than the search, or had other
            configurations.
        OSError: The trial folders cannot be read.
    """
    with run_given_as("resume"), opened(str(root), SUMMARY) as reader:
        records = list(records_of(reader.paths))
        segments = len(segment_numbers(reader.paths.journal))
    state, total = RunState(RunPaths(Path(root.path), str(root))), spec.searcher.total
    for record in records:
        state.apply(record)
    if spec.points:
        for trial in itertools.chain[Trial | TrialResult](state.trials.values(), state.results):
            _check_point(trial, spec.points, str(root))
    # A space that is used up lowers the total; fewer samples were refused by the manifest.
    lower = state.total is not None and state.total > total
    if lower and why_exhausted(spec.searcher) is None:
        raise _other_search(str(root), f"its trials were {state.total}, are {total}")
    ended = {result.id for result in state.results if result.status != "cancelled"}
    not_failed = state.lost | state.in_gangs
    left = list(look_for_outcomes(files, root, ended, not_failed))
    return Past(
        records=records,
        left=left,
        segments=segments,
        curves=list(events_in(files, root.below(SEARCH))),
    )


def _check_point(trial: Trial | TrialResult, points: Sequence[Mapping[str, Any]], run: str) -> None:
    point = dict(points[trial.id]) if trial.id < len(points) else None
    if identity(point) != identity(dict(trial.params)):  # NaN equals NaN
        raise _other_search(run, f"point {trial.id} was {shown(trial.params)}, is {shown(point)}")


def reopen(files: WritableFiles, root: Location, past: Past) -> None:
    """Remove the summary of a run, hide the old curves of the search, and remove partial files.

    A driver that was killed may have left partial files.

    Raises:
        OSError: The folder cannot be written to.
    """
    files.remove(root.below(RESULT))
    for events in past.curves:
        hide_event(files, events)
    for folder in (root, *map(root.below, (JOURNAL, SEARCH, OWNERS))):
        with contextlib.suppress(FileNotFoundError):  # not every run has all of them
            for name in files.names(folder):
                if name.startswith(PART):
                    files.remove(folder.below(name))
