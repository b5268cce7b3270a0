"""Runs one attempt of a trial, and stores its files in its folder."""

from __future__ import annotations

import contextlib
import errno
import functools
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from search.trial import Failure, Outcome
from spark_jobs import time_limits
from spark_jobs.channel.reporter import Reporter
from spark_jobs.messages import Attempt, encode, fit
from spark_jobs.run_folder.paths import AttemptPaths, attempt_name
from spark_jobs.run_folder.scratch import temporary_folder
from spark_jobs.run_folder.writing import (
    RunFolder,
    hand_on_checkpoint,
    hide_events,
    run_folder,
    with_patience,
)
from spark_jobs.slot.attempt_folder import FolderChanged, gone, write_below
from spark_jobs.slot.config import SlotConfig
from spark_jobs.slot.driver_watch import Abandoned
from spark_jobs.slot.host import folder_problem, host_name
from spark_jobs.slot.runners import TrialRunner
from spark_jobs.slot.trial_events import columns_of, row_name, write_outcome
from spark_jobs.storage.files import LocalFiles, StoreUnavailable, WritableFiles, check_writable
from spark_jobs.storage.local_files import write_whole
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at
from spark_jobs.trial.events.event_file import EventFile
from spark_jobs.warm.executor import spark_folder
from spark_jobs.zygote.link import RunnerBroken, Tell

# Errors that a change of its folder by a train function explains; others are the storage's.
_OF_A_CHANGE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENOTEMPTY,
    errno.ELOOP,
    errno.EXDEV,
    errno.EACCES,
    errno.EPERM,
)


def _files(config: SlotConfig) -> contextlib.closing[WritableFiles]:
    root = Location.parse(config.root)
    return contextlib.closing(writable_files_at(root, config.program.data.hadoop))


def run_attempt(
    config: SlotConfig,
    attempt: Attempt,
    runner: TrialRunner,
    tell: Callable[[str], None],
    reporter: Reporter,
) -> Outcome:
    """Run a trial and store its files in its folder, TensorBoard's included.

    Args:
        config: The slot's configuration.
        attempt: The attempt to run.
        runner: The runner of the trials.
        tell: Called with warnings for the user.
        reporter: Receives the trial's reports.
    """
    trial, root = attempt.trial, Location.parse(config.root)
    place = root.below(attempt_name(trial.id, attempt.number, attempt.rank))

    def say(trouble: str) -> None:
        tell(f"host {host_name()}: {trouble}")

    try:
        if root.scheme == "file":
            _write(config, Path(root.path), Path(place.path), lambda: None, say)
        with (
            _files(config) as files,
            run_folder(place, config.program.data.hadoop, scratch=spark_folder()) as folder,
            _stored(folder, trial.id, say),
            _scratch_of(attempt) as own,
        ):
            paths = AttemptPaths(folder.path, own)
            try:
                if not attempt.rank:
                    hide_events(files, root, trial.id, attempt.number)
            except OSError as error:  # TensorBoard averages the attempts, no reason to stop
                tell(f"trial {trial.id} shows twice in TensorBoard: {error}")
            with_patience(
                lambda: hand_on_checkpoint(
                    files, root, attempt, paths.checkpoint, from_parent=config.from_parent
                ),
                say,
            )
            if config.echo:  # of other ranks only errors: they print what rank 0 prints
                logs = (paths.stderr,) if attempt.rank else (paths.stdout, paths.stderr)
                reporter.follow(attempt, logs)
            add = functools.partial(reporter.add, attempt)
            outcome = _run(config, attempt, runner, paths, tell=add, say=say)
            # The driver judges a trial by all its reports; and the logs are still on this host.
            reporter.flush(time_limits.LAST_REPORTS)
    except FolderChanged as error:
        return Outcome.failed(trial.id, "user error", f"host {host_name()}: {error}")
    except OSError as error:
        message = f"host {host_name()}: {error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and root.scheme != "file":
            message += "; set spark.local.dir to a larger disk"
        failure = Failure(
            kind="machine",
            message=message,
            traceback=traceback.format_exc(),
            of_store=isinstance(error, StoreUnavailable),
        )
        return Outcome(trial.id, "failed", error=failure)
    return msgspec.structs.replace(outcome, trial=trial.id)


@contextlib.contextmanager
def _stored(folder: RunFolder, trial: int, say: Callable[[str], None]) -> Iterator[None]:
    """Store the files of an attempt after the block, also those of one that this host has ended.

    Args:
        folder: The folder of the attempt.
        trial: The trial's id.
        say: Called with the reason of a delay, and with the folder of files that are not stored.
    """

    def keep(hurry: Callable[[], bool] = lambda: False) -> None:
        try:
            folder.keep(say, hurry)
        except OSError as error:  # its files may be incomplete, but its outcome is known
            say(f"trial {trial}: {error}")

    try:
        yield
    except Abandoned:  # the next attempt, if any, uses the files
        folder.abandon()
        keep()
        raise
    except (FolderChanged, OSError, RunnerBroken):
        keep(hurry=lambda: True)  # its cause may be that the files cannot be stored
        raise
    keep()


def _scratch_of(attempt: Attempt) -> contextlib.AbstractContextManager[Path | None]:
    """Make a folder for the files of a train function that are not kept; None at rank 0.

    TensorBoard would show curves in the folder of a worker as those of one more trial.
    """
    return temporary_folder(spark_folder()) if attempt.rank else contextlib.nullcontext()


def _run(
    config: SlotConfig,
    attempt: Attempt,
    runner: TrialRunner,
    paths: AttemptPaths,
    *,
    tell: Tell,
    say: Callable[[str], None],
) -> Outcome:
    root, trial = Location.parse(config.root), attempt.trial.id
    place = root.below(attempt_name(trial, attempt.number, attempt.rank))
    row = row_name(attempt_name(trial, attempt.number).rpartition("/")[2], root.name)
    top = Path(root.path) if root.scheme == "file" else paths.folder.parent

    def start() -> None:
        write_whole(paths.trial, encode(attempt.without_gang()))
        events.close()
        events.hparams_start(columns_of(attempt.trial, config.as_text), row)

    def end() -> None:
        if gone(paths, events):
            start()
        write_outcome(events, outcome)
        # Last: it shows that all files are there.
        write_whole(paths.outcome, encode(outcome))

    with EventFile(paths.logdir, lag=config.program.clock_lag) as events:
        _write(config, top, paths.folder, start, say)
        outcome = fit(runner.run(attempt, paths, tell))
        lost = gone(paths, events)
        try:
            _write(config, top, paths.folder, end, say)
        except FolderChanged as error:
            counts = "its outcome counts, but could not be written to its folder"
            say(f"trial {trial}: {counts}: {error}")
        else:
            if lost:
                say(
                    f"trial {trial}: {', '.join(lost)} were removed from {place} while it ran, or "
                    "renamed, by a train function; its outcome counts"
                )
    return outcome


def _write(
    config: SlotConfig,
    top: Path,
    folder: Path,
    write: Callable[[], None],
    say: Callable[[str], None],
) -> None:
    """Write to an attempt's folder as `write_below` does; again after a failure that has passed.

    Raises:
        FolderChanged: It fails although this host can write to the run's folder: the cause is a
            train function.
        OSError: It fails, and the cause is this host.
    """
    try:
        write_below(top, folder, write)
    except OSError as error:
        if not _can_write(config, top, say):
            raise
        if error.errno in _OF_A_CHANGE:
            raise FolderChanged(
                f"{error}; this host can write to the run's folder, so a train function has "
                "changed this trial's"
            ) from None
        write_below(top, folder, write)


def _can_write(config: SlotConfig, top: Path, say: Callable[[str], None]) -> bool:
    """Return whether this host can write to the run's folder and the folder of its trials."""
    if folder_problem(Location.parse(config.root), config.program.data.hadoop, say):
        return False
    try:
        check_writable(LocalFiles(), Location("file", "", str(top)))
    except OSError:
        return False
    return True
