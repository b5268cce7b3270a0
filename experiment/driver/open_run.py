"""The run folder while its search runs: created or read, uploaded, and released."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from experiment.driver.control import stopped_by_file
from experiment.driver.interrupts import Interrupts
from experiment.results.warned import note
from experiment.run_files.journal import Journal
from experiment.run_files.manifest import write_manifest
from experiment.run_files.ownership import Owned, owned
from experiment.setup.preparation import Prepared
from experiment.setup.resuming import Past, read_past
from experiment.setup.resuming import reopen as reopen_run
from experiment.setup.warm_start import write_known
from search.errors import InvalidArgument
from spark_jobs.run_folder.paths import STOP, RunPaths
from spark_jobs.run_folder.scratch import remove_left
from spark_jobs.run_folder.writing import RunFolder, run_folder
from spark_jobs.storage.files import WritableFiles
from spark_jobs.storage.local_files import make_folder
from spark_jobs.storage.locations import Location
from spark_jobs.storage.refusals import refused
from spark_jobs.storage.stores import writable_files_at

_UPLOAD_EVERY = 1.0  # seconds; outcomes that arrive within them share one append of the journal


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """A run that this driver owns.

    Attributes:
        folder: The run folder, as this driver writes it.
        paths: The paths of its files.
        past: The run's past.
        journal: The journal, with a segment of this driver.
        owned: The mark of this driver, and the last owner.
        reopen: Called once the past is known to be of this search.
    """

    folder: RunFolder
    paths: RunPaths
    past: Past
    journal: Journal
    owned: Owned
    reopen: Callable[[], None]


@contextlib.contextmanager
def open_run(prepared: Prepared, interrupts: Interrupts) -> Iterator[OpenRun]:
    """Create the run's folder, or read its past; close and upload all files at the end.

    Args:
        prepared: The search.
        interrupts: Ctrl-C and SIGTERM, which end the wait for the upload; their control ends the
            search if another driver takes over the run, or a user stops it by a file.

    Raises:
        InvalidArgument: Another driver owns the run, or it cannot be read or written to.
        JournalDamaged: Its journal was changed after it was written.
    """

    def give_way(reason: str) -> None:
        folder.abandon()
        interrupts.control.give_way(reason)

    root, hadoop = prepared.root, prepared.data.hadoop
    resumes = prepared.spec.settings.resume is not None
    remove_left()
    with (
        # A program that cleans the folder for temporary files must not empty the run's.
        run_folder(root, hadoop, every=_UPLOAD_EVERY, keeps=True) as folder,
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
        paths, past, reopen = RunPaths(folder.path, str(root)), Past(), lambda: None
        make_folder(paths.trials)  # executors check that it exists
        if resumes:
            with _resumed_from(root):
                # First: the past may take minutes to read, and later requests are for this driver.
                files.remove(root.below(STOP))
                past = read_past(files, root, prepared.spec)
            reopen = functools.partial(_reopen, files, root, past)
        else:
            write_known(paths, prepared.spec.known)
            write_manifest(paths, prepared.manifest)
        folder.keep(note)
        try:
            with (
                stopped_by_file(root.below(STOP), hadoop, interrupts.control),
                open_journal(paths, past) as journal,
            ):
                yield OpenRun(
                    folder=folder,
                    paths=paths,
                    past=past,
                    journal=journal,
                    owned=ours,
                    reopen=reopen,
                )
        finally:
            # A user who interrupts the wait is told where the remaining files are.
            keep(lambda: folder.keep(note, lambda: interrupts.noted or interrupts.terminated))


@contextlib.contextmanager
def open_journal(paths: RunPaths, past: Past) -> Iterator[Journal]:
    """Start a segment of a run's journal, and close it at the end."""
    journal = Journal(paths.journal, past.segments + 1)
    try:
        yield journal
    finally:
        keep(journal.close)


def keep(step: Callable[[], None]) -> None:
    """Call a step whose OSError, as on a full disk, must not lose the result of a search."""
    try:
        step()
    except OSError as error:
        note(f"the end of the run is not written: {error}")


def not_resumable(root: str, error: OSError) -> InvalidArgument:
    """Return the error for a run to resume whose folder fails.

    Args:
        root: The folder's name for users.
        error: The folder's error.
    """
    expected = "a run that can be read and written to"
    return refused(error, "resume", expected, f"{root!r}: {error}")


@contextlib.contextmanager
def _resumed_from(root: Location) -> Iterator[None]:
    """Name the argument `resume` in errors of the run folder."""
    try:
        yield
    except OSError as error:
        raise not_resumable(str(root), error) from None


def _reopen(files: WritableFiles, root: Location, past: Past) -> None:
    with _resumed_from(root):
        reopen_run(files, root, past)
