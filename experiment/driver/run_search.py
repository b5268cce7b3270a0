"""One search from its first check to its `Result`: the order in which the parts are put to work."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from experiment.display.board import Board
from experiment.display.progress import Progress
from experiment.driver.control import Control, own_control, stopped_by_file
from experiment.driver.coordinator import Coordinator
from experiment.driver.interrupts import Interrupts
from experiment.driver.slot_jobs import Leaving, SlotJobs, cannot_go_on
from experiment.results.result import Result, SearchFailed
from experiment.results.status import Status
from experiment.results.text import count, how_to_resume, printable
from experiment.results.warned import users_line, warn_at
from experiment.run_files.journal import Journal
from experiment.run_files.journal_records import Resumed
from experiment.run_files.manifest import Manifest, write_manifest, write_result
from experiment.run_files.ownership import Owned, owned
from experiment.setup.preparation import prepare
from experiment.setup.resuming import Past, read_past, reopen, uncollected
from experiment.setup.settings import Settings
from experiment.setup.slot_count import slot_count
from experiment.setup.specification import Search
from experiment.setup.warm_start import write_known
from search.errors import InvalidArgument
from search.space.spaces import Float, Space
from search.stopping import read_rules
from search.trial import Failure
from spark_jobs.run_folder.paths import STOP, RunPaths
from spark_jobs.run_folder.scratch import remove_left
from spark_jobs.run_folder.writing import RunFolder, run_folder
from spark_jobs.session.session import Session
from spark_jobs.storage.files import WritableFiles
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.local_files import make_folder
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at
from spark_jobs.trial.context import DataSettings
from spark_jobs.trial.trial_process import Program

_LOGGER = logging.getLogger("experiment")
_CARRY_EVERY = 1.0  # seconds; outcomes that arrive within them share one append of the journal


def run_search(
    spark: Any,
    train: Callable[..., Any],
    search: Search,
    settings: Settings,
    seed: int,
) -> Result:
    """Run a search to its end.

    Args:
        spark: The user's SparkSession.
        train: The train function.
        search: What to run; its searcher is used up.
        settings: What all searches share.
        seed: That the searcher was made with.

    Raises:
        InvalidArgument: Before any Spark job.
        SearchFailed: The search ended early, or every trial failed.
    """
    prepared = prepare(spark, train, search, settings, seed, warn=_warn)
    control = own_control()
    control.prepared(prepared)
    session, data, function = prepared.session, prepared.data, prepared.function
    manifest, root = prepared.manifest, prepared.root
    session.tell_risk(_warn)
    _log_scales(search.space)
    with (
        Interrupts(control) as interrupts,
        session.renewed_tokens(data),
        Progress(manifest.name, verbose=settings.verbose, warn=_warn) as progress,
    ):
        if settings.verbose:  # two bars would write over each other
            session.hide_console_progress()
        total = search.searcher.total
        slots = slot_count(
            None if search.grows else total,
            settings,
            session,
            warn=_warn,
            tick=functools.partial(_show_waiting, progress, total, interrupts),
        )
        session.tell_idle_gpus(_warn)
        progress.asked = _asked(slots, session)
        program = _program(function, settings, data)
        with (
            _opened(root, data.hadoop, manifest, search, settings, control, interrupts) as run,
            stopped_by_file(root.below(STOP), data.hadoop, control),
            _journal(run) as journal,
        ):
            with interrupts.deferred():
                progress.announce(run.paths.shown())
                leaving = Leaving.of(run.owned, session)
                progress.leaving = functools.partial(str, leaving or "")
                board = _board(run, search, settings, manifest)
                coordinator = _coordinator(search, run, journal, board, settings, manifest, slots)
                progress.resume(coordinator.status)
                control.status = lambda: coordinator.status
                jobs = SlotJobs(
                    session,
                    run.paths,
                    program,
                    settings,
                    search.as_text,
                    slots,
                    control,
                    settings.begun,
                    run.owned.mark,
                    leaving,
                    _note,
                    functools.partial(_grown, progress, session, search),
                    functools.partial(setattr, progress, "there"),
                )
            search.opened(root, data.hadoop, slots)
            problem: str | None = None

            def summary() -> Result:
                return _result(coordinator, search, run, settings, problem)

            try:
                problem = jobs.run(
                    coordinator, lambda: progress.refresh(coordinator.status, run.folder.trouble)
                )
            except KeyboardInterrupt:
                control.cancel("interrupted")  # in another thread nobody has
            except BaseException as error:
                problem = f"{type(error).__name__}: {error}"
                raise
            finally:
                interrupts.hold()
                if not coordinator.done:
                    problem = problem or control.reason
                _end(coordinator, board, progress, control, summary, run.paths)
    result = summary()
    if interrupts.noted or (problem and problem == control.reason):  # the user wants what there is
        resumable = not (search.grows or control.overtaken)
        _note(_end_in_words(problem or "interrupted", result, resumable=resumable))
        return result
    _raise_if_failed(result)
    return result


def _result(
    coordinator: Coordinator, search: Search, run: _Run, settings: Settings, problem: str | None
) -> Result:
    """Return what there is so far."""
    status = coordinator.status
    return Result(
        coordinator.results,
        settings.goal,
        run.paths.shown(),
        objective=status.objective or settings.optimization_key,
        total=status.total,
        problem=problem,
        space=search.space,
        target=settings.target,
    )


def _end(
    coordinator: Coordinator,
    board: Board,
    progress: Progress,
    control: Control,
    summary: Callable[[], Result],
    paths: RunPaths,
) -> None:
    """Write how a search ended, and show it: each step, whatever becomes of the others."""
    with contextlib.ExitStack() as ending:
        ending.callback(lambda: progress.close(coordinator.status, summary()))
        if control.overtaken:
            board.abandon()
        else:
            ending.callback(_try, lambda: write_result(paths, summary()))
            ending.callback(_try, lambda: board.close(summary().objective, coordinator.status))
            _try(coordinator.cancel_rest)


def _show_waiting(progress: Progress, total: int, interrupts: Interrupts) -> None:
    interrupts.check()
    progress.refresh(Status(total))


def _end_in_words(reason: str, result: Result, *, resumable: bool) -> str:
    """Return why a search has ended early, with what, and how to go on with it."""
    left = resumable and result.done < result.total
    how = f"; {how_to_resume(result.logdir)}" if left else ""
    return f"{reason}: {result.summary()}{how}"


def _asked(slots: int, session: Session) -> str:
    return f"{count(slots, 'slot')} of {session.task_needs}"


def _grown(progress: Progress, session: Session, search: Search, slots: int) -> None:
    """Show that Spark was asked for more slots, and let the search know."""
    progress.asked = _asked(slots, session)
    search.grown(slots)


class _Run(NamedTuple):
    folder: RunFolder
    paths: RunPaths
    past: Past
    owned: Owned
    go_on: Callable[[], None]  # once the past has turned out to be this search's


@contextlib.contextmanager
def _opened(
    root: Location,
    hadoop: HadoopSettings,
    manifest: Manifest,
    search: Search,
    settings: Settings,
    control: Control,
    interrupts: Interrupts,
) -> Iterator[_Run]:
    """Make the run's folder, or read what was done in it; see to it that all is kept."""

    def give_way(reason: str) -> None:
        folder.abandon()
        control.give_way(reason)

    argument = "logdir" if settings.resume is None else "resume"
    remove_left()
    with (
        run_folder(root, hadoop, every=_CARRY_EVERY) as folder,
        owned(
            root, hadoop, manifest.application, taken=give_way, tell=_note, argument=argument
        ) as ours,
        contextlib.closing(writable_files_at(root, hadoop)) as files,
    ):
        paths, past, go_on = RunPaths(folder.path, str(root)), Past(), _nothing
        make_folder(paths.trials)  # executors look for it
        if settings.resume is None:
            write_known(paths, search.known)
            write_manifest(paths, manifest)
        else:
            with _resumed_from(root):
                past = read_past(files, root, search)
                files.remove(root.below(STOP))
            go_on = functools.partial(_reopen, files, root, past)
        folder.keep(_note)
        try:
            yield _Run(folder, paths, past, ours, go_on)
        finally:
            # Who has no patience, and interrupts, is told where the rest is.
            _try(lambda: folder.keep(_note, lambda: interrupts.noted or interrupts.terminated))


def _nothing() -> None:
    """Of a new run nothing is to be taken away."""


def _reopen(files: WritableFiles, root: Location, past: Past) -> None:
    with _resumed_from(root):
        reopen(files, root, past)


@contextlib.contextmanager
def _resumed_from(root: Location) -> Iterator[None]:
    """Name the argument where the folder of a run to resume is in trouble."""
    try:
        yield
    except OSError as error:
        raise _not_resumable(str(root), error) from None


def _not_resumable(root: str, error: OSError) -> InvalidArgument:
    expected = "a run that can be read and written to"
    return InvalidArgument("resume", expected, f"{root!r}: {error}")


def _board(run: _Run, search: Search, settings: Settings, manifest: Manifest) -> Board:
    try:
        return Board(run.paths, search, settings.goal, manifest, run.past.segments + 1)
    except FileExistsError as error:  # a file where a folder of the resumed run should be
        raise _not_resumable(run.paths.shown(), error) from None
    except OSError as error:
        problem = cannot_go_on(error)
        nothing = Result([], settings.goal, run.paths.shown(), problem=problem)
        raise SearchFailed(printable(problem), nothing) from None


def _coordinator(
    search: Search,
    run: _Run,
    journal: Journal,
    board: Board,
    settings: Settings,
    manifest: Manifest,
    slots: int,
) -> Coordinator:
    """Return what drives the search, from where the run is."""
    coordinator = Coordinator(
        search.searcher,
        run.paths,
        journal,
        direction=settings.goal,
        observers=(board, *search.observers),
        max_failures=settings.max_failures,
        retries=settings.retries,
        retry_on=settings.retry_on,
        stopping=read_rules(settings.stopping),
        optimization_key=settings.optimization_key,
        target=settings.target,
        slots=slots,
        warn=functools.partial(warn_at, users_line()),  # it is called in the channel's thread
    )
    past = run.past
    if settings.resume is not None:
        resumed = Resumed(
            len(past.records),
            manifest.application,
            manifest.created,
            manifest.function,
            manifest.trials,
        )
        try:
            with uncollected():
                coordinator.resume(past.records, past.left, resumed, run.go_on)
        except InvalidArgument:
            board.discard()
            journal.discard()
            raise
        except OSError as error:
            board.abandon()
            problem = cannot_go_on(error)
            so_far = _result(coordinator, search, run, settings, problem)
            raise SearchFailed(printable(problem), so_far) from None
        except BaseException:
            board.abandon()
            raise
    return coordinator


@contextlib.contextmanager
def _journal(run: _Run) -> Iterator[Journal]:
    journal = Journal(run.paths.journal, run.past.segments + 1)
    try:
        yield journal
    finally:
        _try(journal.close)


def _try(step: Callable[[], None]) -> None:
    """Take a step whose failure, as on a full disk, must not cost the result of a search."""
    try:
        step()
    except OSError as error:
        _note(f"the end of the run is not written: {error}")


def _note(message: str) -> None:
    """Warn of what must not cost the result of a search, also where warnings are errors."""
    with contextlib.suppress(UserWarning):
        _warn(message)


def _program(function: bytes, settings: Settings, data: DataSettings) -> Program:
    return Program(
        function,
        settings.optimization_key,
        settings.goal.to_json(),
        _preloads(settings.preload),
        "spawn" if settings.isolation == "spawn" else "fork",
        settings.seed,
        data,
    )


def _preloads(modules: Sequence[str]) -> tuple[str, ...]:
    # `experiment` too: train functions call it, and in the zygote it is imported only once
    return (*modules, "experiment", "spark_jobs.trial.event_file")


def _log_scales(space: Space | None) -> None:
    for name, domain in (space or {}).items():
        if isinstance(domain, Float) and domain.log:
            _LOGGER.info("%s: searched on a log scale from %g to %g", name, domain.low, domain.high)


def _warn(message: str) -> None:
    warn_at(users_line(), message)


def _raise_if_failed(result: Result) -> None:
    all_failed = result.trials and len(result.failed) == len(result.trials)
    if result.problem is None and not all_failed:
        return
    message = result.problem or f"all {len(result.trials)} trials failed"
    first = next((trial for trial in result.failed), None)
    if first is not None and first.error is not None:
        told = first.error.message == message  # as where nobody can say what the objective is
        details = first.error.traceback if told else _details(first.error)
        message += f"; the first was trial {first.id}" + (f": {details}" if details else "")
    # What a trial printed or raised must not move the terminal's cursor.
    raise SearchFailed(printable(message, keep="\n\t"), result)


def _details(failure: Failure) -> str:
    return f"{failure.message}\n{failure.traceback}" if failure.traceback else failure.message
