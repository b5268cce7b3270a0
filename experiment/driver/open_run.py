"""The folder of a run while its search runs: made or read back, kept, and given back."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from experiment.driver.control import Control
from experiment.driver.interrupts import Interrupts
from experiment.results.warned import note
from experiment.run_files.journal import Journal
from experiment.run_files.manifest import write_manifest
from experiment.run_files.ownership import Owned, owned
from experiment.setup.preparation import Prepared
from experiment.setup.resuming import Past, read_past, reopen
from experiment.setup.warm_start import write_known
from search.errors import InvalidArgument
from spark_jobs.run_folder.paths import STOP, RunPaths
from spark_jobs.run_folder.scratch import remove_left
from spark_jobs.run_folder.writing import RunFolder, run_folder
from spark_jobs.storage.files import WritableFiles
from spark_jobs.storage.local_files import make_folder
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at

_UPLOAD_EVERY = 1.0  # seconds; outcomes that arrive within them share one append of the journal


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """A run that this driver owns.

    Attributes:
        folder: Its folder as it is written here.
        paths: The files in it.
        past: What it has done so far.
        owned: The mark of this driver, and the owner before.
        go_on: Called once the past has turned out to be this search's.
    """

    folder: RunFolder
    paths: RunPaths
    past: Past
    owned: Owned
    go_on: Callable[[], None]


@contextlib.contextmanager
def open_run(prepared: Prepared, control: Control, interrupts: Interrupts) -> Iterator[OpenRun]:
    """Make the run's folder, or read what was done in it; see to it that all is kept.

    Args:
        prepared: The search.
        control: Ends it where another driver takes the run over.
        interrupts: Say whether the user has the patience to wait until all is kept.

    Raises:
        InvalidArgument: Somebody else owns the run, or it cannot be read or written to.
        JournalDamaged: Its journal was changed after it was written.
    """

    def give_way(reason: str) -> None:
        folder.abandon()
        control.give_way(reason)

    root, hadoop = prepared.root, prepared.data.hadoop
    resumes = prepared.spec.settings.resume is not None
    remove_left()
    with (
        run_folder(root, hadoop, every=_UPLOAD_EVERY) as folder,
        owned(
            root,
            hadoop,
            prepared.manifest.application,
            taken=give_way,
            tell=note,
            argument="resume" if resumes else "logdir",
        ) as ours,
        contextlib.closing(writable_files_at(root, hadoop)) as files,
    ):
        paths, past, go_on = RunPaths(folder.path, str(root)), Past(), _nothing
        make_folder(paths.trials)  # executors look for it
        if resumes:
            with _resumed_from(root):
                past = read_past(files, root, prepared.spec)
                files.remove(root.below(STOP))
            go_on = functools.partial(_reopen, files, root, past)
        else:
            write_known(paths, prepared.spec.known)
            write_manifest(paths, prepared.manifest)
        folder.keep(note)
        try:
            yield OpenRun(folder=folder, paths=paths, past=past, owned=ours, go_on=go_on)
        finally:
            # Who has no patience, and interrupts, is told where the rest is.
            keep(lambda: folder.keep(note, lambda: interrupts.noted or interrupts.terminated))


@contextlib.contextmanager
def open_journal(run: OpenRun) -> Iterator[Journal]:
    """Begin a segment of the run's journal, and close it."""
    journal = Journal(run.paths.journal, run.past.segments + 1)
    try:
        yield journal
    finally:
        keep(journal.close)


def keep(step: Callable[[], None]) -> None:
    """Take a step whose failure, as on a full disk, must not cost the result of a search."""
    try:
        step()
    except OSError as error:
        note(f"the end of the run is not written: {error}")


def not_resumable(root: str, error: OSError) -> InvalidArgument:
    """Return the error of a run to resume whose folder is in trouble.

    Args:
        root: The folder, as users call it.
        error: The trouble.
    """
    expected = "a run that can be read and written to"
    return InvalidArgument("resume", expected, f"{root!r}: {error}")


@contextlib.contextmanager
def _resumed_from(root: Location) -> Iterator[None]:
    """Name the argument where the folder of a run to resume is in trouble."""
    try:
        yield
    except OSError as error:
        raise not_resumable(str(root), error) from None


def _reopen(files: WritableFiles, root: Location, past: Past) -> None:
    with _resumed_from(root):
        reopen(files, root, past)


def _nothing() -> None:
    """Of a new run nothing is to be taken away."""
