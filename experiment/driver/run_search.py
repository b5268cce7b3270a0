"""Runs one search, from its first check to its `Result`."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Iterator

from experiment.display.board import Board
from experiment.display.progress import Progress
from experiment.driver.control import Control
from experiment.driver.coordinator import Coordinator
from experiment.driver.interrupts import Interrupts
from experiment.driver.jobs.leaving import Leaving
from experiment.driver.jobs.slot_jobs import SlotJobs, cannot_continue
from experiment.driver.open_run import OpenRun, not_resumable, open_run
from experiment.driver.recorder import Recorder
from experiment.driver.running_search import RunningSearch, result_so_far
from experiment.driver.slots.gangs import Gangs
from experiment.driver.slots.roster import Roster
from experiment.driver.trials.trials import Trials
from experiment.results.result import Result, SearchFailed
from experiment.results.status import Status
from experiment.results.text import count, printable
from experiment.results.warned import note, note_at, users_line, warn_user
from experiment.run_files.journal_records import Begun
from experiment.run_files.run_state import RunState
from experiment.setup.preparation import Prepared, prepare
from experiment.setup.resuming import uncollected
from experiment.setup.slot_count import slot_count
from experiment.setup.specification import SearchSpec
from search.checked_searcher import SearcherFailed
from search.errors import InvalidArgument
from search.space.spaces import Float, Space
from spark_jobs.cluster.task_needs import is_local
from spark_jobs.session.session import Session
from spark_jobs.strategies.in_step.exposure import risk_of_port

_LOGGER = logging.getLogger("experiment")


def run_search(spec: SearchSpec, interrupts: Interrupts) -> Result:
    """Run a search to its end.

    Args:
        spec: The search; its searcher is used up.
        interrupts: The handler of Ctrl-C and SIGTERM, with the search's control.

    Raises:
        InvalidArgument: An argument is invalid; raised before any Spark job.
        SearchFailed: The search ended early, or every trial failed.
    """
    prepared = prepare(spec, warn=warn_user)
    _tell_of(prepared)
    interrupts.keep_results()
    with (
        prepared.session.renewed_tokens(prepared.data),
        Progress(prepared.manifest.name, verbose=spec.settings.verbose, warn=note) as progress,
    ):
        slots = _slots(prepared, progress)
        with _opened(prepared, interrupts) as run:
            interrupts.defer()
            search = _ready(prepared, run, slots=slots, progress=progress, interrupts=interrupts)
            spec.opened(prepared.root, prepared.data.hadoop, slots)
            problem = search.to_its_end()
    return search.answer(problem)


def _tell_of(prepared: Prepared) -> None:
    """Tell the user of risks of the session, and of hyperparameters on a log scale."""
    session = prepared.session
    session.tell_risk(warn_user)
    session.tell_once(risk_of_port(prepared.strategy, loopback=session.on_this_host), warn_user)
    _log_scales(prepared.spec.space)


def _log_scales(space: Space | None) -> None:
    for name, domain in (space or {}).items():
        if isinstance(domain, Float) and domain.log:
            _LOGGER.info("%s: searched on a log scale from %g to %g", name, domain.low, domain.high)


@contextlib.contextmanager
def _opened(prepared: Prepared, interrupts: Interrupts) -> Iterator[OpenRun]:
    """Open the run; its folder's errors, as of a full disk, end a search before it has begun."""
    with contextlib.ExitStack() as stack:
        try:
            run = stack.enter_context(open_run(prepared, interrupts))
        except OSError as error:
            if prepared.spec.settings.resume is not None:
                raise not_resumable(str(prepared.root), error) from None
            raise _without_trials(prepared, error) from None
        yield run


def _without_trials(prepared: Prepared, error: OSError) -> SearchFailed:
    """Return the error of a search that cannot write its run before its first trial."""
    problem = cannot_continue(error)
    nothing = Result([], prepared.spec.settings.goal, str(prepared.root), problem=problem)
    return SearchFailed(printable(problem), nothing)


def _slots(prepared: Prepared, progress: Progress) -> int:
    """Return the first number of slots; show meanwhile what it waits for."""
    spec, session = prepared.spec, prepared.session
    if spec.settings.verbose:  # two progress bars would overwrite each other
        session.hide_console_progress()
    total = spec.searcher.total
    slots = slot_count(
        None if spec.grows else total,
        spec.settings,
        session,
        preload=prepared.preload.modules,
        warn=warn_user,
        tick=lambda: progress.refresh(Status(total=total)),
        workers_argument=spec.workers_argument,
    )
    session.tell_idle_gpus(warn_user)
    progress.asked = _asked(slots, session)
    return slots


def _asked(slots: int, session: Session) -> str:
    return f"{count(slots, 'slot')} of {session.task_needs}"


def _ready(
    prepared: Prepared,
    run: OpenRun,
    *,
    slots: int,
    progress: Progress,
    interrupts: Interrupts,
) -> RunningSearch:
    """Return the search, ready to start its slots, and show its progress so far."""
    control = interrupts.control
    progress.announce(run.paths.shown())
    jobs = _jobs(prepared, run, slots, control, progress)
    board = _board(prepared, run)
    coordinator = _coordinator(prepared, run, board, slots, control)
    progress.resume(coordinator.trials.status)
    control.begin(lambda: coordinator.trials.status)
    return RunningSearch(
        prepared=prepared,
        run=run,
        coordinator=coordinator,
        jobs=jobs,
        board=board,
        progress=progress,
        interrupts=interrupts,
    )


def _jobs(
    prepared: Prepared, run: OpenRun, slots: int, control: Control, progress: Progress
) -> SlotJobs:
    """Return the slot jobs, not started; `progress` shows what they wait for."""
    leaving = Leaving.of(run.owned, prepared.session)
    progress.leaving = functools.partial(str, leaving or "")
    if is_local(prepared.session.master):  # its executor has started with the session
        progress.there = "Python workers start"

    def grown(slots: int) -> None:
        progress.asked = _asked(slots, prepared.session)
        prepared.spec.grown(slots)

    return SlotJobs(
        prepared=prepared,
        opened=run,
        slots=slots,
        control=control,
        leaving=leaving,
        warn=note,
        grown=grown,
        there=functools.partial(setattr, progress, "there"),
    )


def _board(prepared: Prepared, run: OpenRun) -> Board:
    spec = prepared.spec
    try:
        return Board(run.paths, spec, spec.settings.goal, prepared.manifest, run.past.segments + 1)
    except FileExistsError as error:  # a file where a folder of the resumed run should be
        raise not_resumable(run.paths.shown(), error) from None
    except OSError as error:
        raise _without_trials(prepared, error) from None


def _coordinator(
    prepared: Prepared, run: OpenRun, board: Board, slots: int, control: Control
) -> Coordinator:
    """Return the search's coordinator, in the state of the run."""
    spec, settings = prepared.spec, prepared.spec.settings
    recorder = Recorder(run.journal, RunState(run.paths))
    roster = Roster(slots)
    is_fixed = settings.workers.least == settings.workers.most  # else small ones may be too many
    warn = functools.partial(note_at, users_line())  # it is called in the channel's thread
    trials = Trials(
        spec.searcher,
        recorder,
        slots=roster,
        workers=settings.workers,
        at_once=None if is_fixed else settings.parallelism,
        direction=settings.goal,
        observers=(board, *spec.observers),
        max_failures=settings.max_failures,
        retries=settings.retries,
        retry_on=settings.retry_on,
        stopping=settings.rules,
        optimization_key=settings.optimization_key,
        repeats=settings.repeats,
        target=settings.target,
        grows=spec.grows,
        warn=warn,
    )
    try:
        _begin(trials, prepared, run)
    except InvalidArgument:
        _discard(board, run)
        raise
    except SearcherFailed as error:
        _discard(board, run)
        problem = str(error)
        so_far = result_so_far(prepared, run, trials, problem)
        raise SearchFailed(printable(problem), so_far) from error
    except OSError as error:
        board.abandon()
        problem = cannot_continue(error)
        so_far = result_so_far(prepared, run, trials, problem)
        raise SearchFailed(printable(problem), so_far) from None
    except BaseException:
        board.abandon()
        raise
    gangs = Gangs(settings.workers, grace=settings.grace)
    return Coordinator(
        trials, roster, gangs, recorder, is_ending=lambda: control.reason is not None, warn=warn
    )


def _discard(board: Board, run: OpenRun) -> None:
    """Remove this driver's files from a run that cannot be resumed after all."""
    board.abandon()
    for path in (board.path, run.journal.path):  # of the journal, a segment without records
        run.folder.remove(path)


def _begin(trials: Trials, prepared: Prepared, run: OpenRun) -> None:
    past, manifest = run.past, prepared.manifest
    begun = Begun(
        records=len(past.records),
        application=manifest.application,
        created=manifest.created,
        function=manifest.function,
        trials=manifest.trials,
        at=time.time(),
    )
    with uncollected():
        trials.begin(begun, past.records, past.left, run.reopen)
