"""One search from its first check to its `Result`: the order in which the parts are put to work."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import logging
import re
import secrets
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from experiment.board import Board
from experiment.checks import check_arguments, pickle_function
from experiment.coordinator import Coordinator
from experiment.journal import Journal
from experiment.progress import Progress
from experiment.record import Manifest, make_run_folder, now, versions, write_manifest, write_result
from experiment.result import Result, SearchFailed
from experiment.settings import Settings, choose_logdir
from experiment.specification import Search
from experiment.text import count, printable
from search.direction import Direction
from search.space import Float, Space
from search.trial import Failure
from spark_jobs.channel import ChannelServer
from spark_jobs.paths import RunPaths
from spark_jobs.session import ClassicSession, SlotJob
from spark_jobs.slots import PROBLEM, SlotConfig, slot_function
from spark_jobs.trial_process import Program

_LOGGER = logging.getLogger("experiment")
_SLOT_MEMORY = 0.8e9  # bytes: TensorFlow imported, and a small model
_FRUITLESS_JOBS = 3
_POLL = 0.1  # seconds between two looks at a running job
_INTERRUPTED = "interrupted"
_FAREWELL = 10.0  # seconds that slots have to end after the last trial


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
    for names in [search.columns] if search.space is not None else search.points:
        check_arguments(train, names)
    function = pickle_function(train)
    session = ClassicSession(spark)
    session.check_worker_timeouts()
    logdir = choose_logdir(settings.logdir, session.setting("spark.experiment.logdir"))
    name = settings.name or _name_of(train)
    direction = Direction(settings.direction)
    _log_scales(search.space)

    paths = make_run_folder(logdir, name)
    manifest = Manifest(
        name=name,
        description=settings.description,
        call=search.call,
        train=_name_of(train),
        function=hashlib.sha256(function).hexdigest(),
        algorithm=dict(search.algorithm or {}),
        space=None if search.space is None else search.space.to_json(),
        trials=search.searcher.total,
        direction=direction.value,
        optimization_key=settings.optimization_key,
        seed=seed,
        isolation=settings.isolation,
        timeout=settings.timeout,
        application=session.application_id,
        master=session.master,
        created=now(),
        versions=versions(),
    )
    write_manifest(paths, manifest)
    slots = slot_count(search.searcher.total, settings, session)
    board = Board(paths, search, direction, manifest)
    asked = f"{count(slots, 'slot')} of {session.task_needs}"
    progress = Progress(name, str(paths.root), asked, verbose=settings.verbose)
    if settings.verbose:  # two bars would write over each other
        session.hide_console_progress()
    with Journal(paths.journal) as journal:
        coordinator = Coordinator(
            search.searcher,
            paths,
            journal,
            direction=direction,
            observers=(board,),
            max_failures=settings.max_failures,
            slots=slots,
            warn=_warn,
        )
        program = Program(
            function,
            settings.optimization_key,
            direction.value,
            _preloads(settings.preload),
            "spawn" if settings.isolation == "spawn" else "fork",
            settings.seed,
        )

        def summary() -> Result:
            return Result(
                coordinator.results,
                direction,
                str(paths.root),
                objective=coordinator.status.objective or settings.optimization_key,
                total=search.searcher.total,
                problem=problem,
                space=search.space,
            )

        problem = None
        try:
            problem = _run_slots(
                session, coordinator, progress, paths, program, settings, search, slots
            )
        except KeyboardInterrupt:
            problem = _INTERRUPTED
        except BaseException as error:
            problem = f"{type(error).__name__}: {error}"
            raise
        finally:
            with contextlib.ExitStack() as ending:  # each step, whatever becomes of the others
                ending.callback(lambda: progress.close(coordinator.status, summary()))
                ending.callback(lambda: write_result(paths, summary()))
                ending.callback(board.close, settings.optimization_key)
                coordinator.cancel_rest()
    result = summary()
    if problem == _INTERRUPTED:  # the user knows, and wants what there is
        _warn(f"interrupted: the result has {len(result)} of {count(result.total, 'trial')}")
        return result
    _raise_if_failed(result)
    return result


def _run_slots(
    session: ClassicSession,
    coordinator: Coordinator,
    progress: Progress,
    paths: RunPaths,
    program: Program,
    settings: Settings,
    search: Search,
    slots: int,
) -> str | None:
    """Keep slot jobs running until the search is done; return why it ended early, or None."""
    nonce = secrets.token_hex(8)
    probe = paths.probe(nonce)
    fruitless = 0
    assigns_gpus, search_path = session.assigns_gpus, session.search_path()
    with (
        _interruptible(),
        _file(probe),
        ChannelServer(session.bind_host, coordinator, advertised=session.driver_host) as server,
    ):
        for number in itertools.count(1):
            config = SlotConfig(
                number,
                server.address,
                str(paths.root),
                nonce,
                program,
                settings.isolation,
                settings.timeout,
                assigns_gpus,
                search.as_text,
            )
            before = len(coordinator.results)
            slot = slot_function(config, search_path)
            with session.job(slot, slots, f"{paths.root.name}-{number}") as job:
                _wait(job, server, coordinator, progress)
            server.call(functools.partial(coordinator.job_ended, number))
            if server.error is not None:
                error = server.error
                return f"the driver cannot go on: {type(error).__name__}: {error}"
            if coordinator.problem is not None or coordinator.done:
                return coordinator.problem
            if session.stopped:
                return "the SparkSession was stopped during the search"
            fruitless = 0 if len(coordinator.results) > before else fruitless + 1
            sentence = problem_of_spark(job.error, job.failed_hosts)
            if sentence or fruitless == _FRUITLESS_JOBS:
                return sentence or _spark_problem(job.error)
    raise AssertionError("itertools.count has no end")


def _wait(
    job: SlotJob, server: ChannelServer, coordinator: Coordinator, progress: Progress
) -> None:
    """Wait until the slots have ended, or have nothing to do any more."""
    job.start()
    while not job.wait(_POLL):
        progress.refresh(coordinator.status)
        if server.error is not None or coordinator.problem is not None:
            return
        if coordinator.done:
            job.wait(_FAREWELL)  # tasks that Spark has not started would hold the search up
            return


@contextlib.contextmanager
def _file(path: Path) -> Iterator[None]:
    path.touch(mode=0o600)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end this search only: PySpark's own handler cancels every job of the driver."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def slot_count(trials: int, settings: Settings, session: ClassicSession) -> int:
    """Return how many slots a search asks for; a warning where memory allows fewer than tasks."""
    if settings.parallelism is not None:
        return min(settings.parallelism, trials)
    slots = min(trials, session.task_slots())
    if session.on_this_host and settings.isolation != "none" and settings.preload:
        fit = max(1, int(psutil.virtual_memory().available / _SLOT_MEMORY))
        if fit < slots:
            _warn(
                f"{fit} trials at once instead of {slots}: the memory that is free allows no more "
                f"at {_SLOT_MEMORY / 1e9:.1f} GB each; parallelism= overrides this"
            )
            return fit
    return slots


def _preloads(modules: Sequence[str]) -> tuple[str, ...]:
    # `experiment` too: train functions call it, and in the zygote it is imported only once
    return (*modules, "experiment", "spark_jobs.events")


def _name_of(train: Callable[..., Any]) -> str:
    while isinstance(train, functools.partial):
        train = train.func
    return str(getattr(train, "__name__", type(train).__name__))


def _log_scales(space: Space | None) -> None:
    for name, domain in (space or {}).items():
        if isinstance(domain, Float) and domain.log:
            _LOGGER.info("%s: searched on a log scale from %g to %g", name, domain.low, domain.high)


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=2)


def _raise_if_failed(result: Result) -> None:
    all_failed = result.trials and len(result.failed) == len(result.trials)
    if result.problem is None and not all_failed:
        return
    message = result.problem or f"all {len(result.trials)} trials failed"
    first = next((trial for trial in result.failed), None)
    if first is not None and first.error is not None:
        message += f"; trial {first.id} was the first: {_details(first.error)}"
    # What a trial printed or raised must not move the terminal's cursor.
    raise SearchFailed(printable(message, keep="\n\t"), result)


def _details(failure: Failure) -> str:
    return f"{failure.message}\n{failure.traceback}" if failure.traceback else failure.message


def problem_of_spark(error: BaseException | None, hosts: Sequence[str] = ()) -> str | None:
    """Return in one sentence why slots could not start at all; None for any other error.

    Args:
        error: What Spark raised for the slot job, if it did.
        hosts: On which its tasks failed.
    """
    if error is None:
        return None
    text = str(error)
    host = f"host {hosts[0]}" if hosts else "an executor"
    if match := re.search(rf"RuntimeError: {PROBLEM}(.+)", text):
        return f"{match[1]}; install this package and its dependencies on every executor"
    if match := re.search(r"ModuleNotFoundError: No module named '([^']+)'", text):
        return (
            f"{host}: Python on the executor has no module named {match[1]!r}; set PYSPARK_PYTHON "
            "to a Python that has this package and its dependencies on every executor"
        )
    mismatch = r"PYTHON_VERSION_MISMATCH\][^:]*: (\S+) than that in driver: (\S+?),"
    if match := re.search(mismatch, text):
        return (
            f"{host}: the executor has Python {match[1]}, the driver {match[2]}; set "
            "PYSPARK_PYTHON to the driver's version on every executor"
        )
    if match := re.search(r'Cannot run program "([^"]+)"', text):
        return f"{host}: the executor has no Python at {match[1]!r}; set PYSPARK_PYTHON to one"
    return None


def _spark_problem(error: BaseException | None) -> str:
    text = "".join(traceback.format_exception_only(error)).strip() if error else "no error"
    return f"the slots' Spark job failed {_FRUITLESS_JOBS} times without a result: {text[:4_000]}"
