"""A slot: one long Spark task that pulls trials from the driver and runs one after the other."""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib.util
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil

from search.errors import InvalidArgument
from search.space.spaces import LARGEST_INTEGER
from search.trial import Outcome
from spark_jobs import time_limits
from spark_jobs.channel.connecting import connect
from spark_jobs.channel.exchange import ChannelLost, ChannelRefused, SlotChannel
from spark_jobs.channel.grpc_channel import Address
from spark_jobs.channel.reporter import Reporter
from spark_jobs.handover import Lent
from spark_jobs.messages import (
    Attempt,
    Hello,
    SlotId,
    encode,
    fit,
)
from spark_jobs.run_folder.paths import AttemptPaths, attempt_name, run_of_secret
from spark_jobs.run_folder.writing import hand_on_checkpoint, hide_events, run_folder, with_patience
from spark_jobs.slot.attempt_folder import FolderChanged, gone, write_below
from spark_jobs.slot.devices import gpu_share, host_gpus, trial_environment
from spark_jobs.slot.driver_watch import Abandoned, DriverWatch
from spark_jobs.slot.gpu_watch import WatchedRunner
from spark_jobs.slot.nvml import GIB, Gpus
from spark_jobs.slot.runners import InProcessRunner, ProcessRunner, RunnerBroken, Tell, TrialRunner
from spark_jobs.storage.files import WritableFiles, check_writable
from spark_jobs.storage.local_files import write_whole
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at
from spark_jobs.trial.event_file import EventFile
from spark_jobs.trial.trial_process import Program

_HOST = "--hostname"  # of Spark's executors
_SHARED = "; give logdir a shared folder or hdfs://..."

PROBLEM = "experiment: "
"""Starts the one line by which a slot that could not start says why, inside Spark's error.

Where it does not begin with `host`, it lacks the host, which Spark's driver knows.
"""

INSTALL = "install this package and its dependencies on every executor"
"""Ends that line where a package is missing."""


class SlotConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot has to know, as JSON. Secret; see `Handover` for its way.

    Attributes:
        address: Of the channel.
        root: The run's folder, where it is kept.
        program: What all trials have in common.
        isolation: 'process', 'spawn' or 'none'.
        timeout: Seconds per trial, or None.
        grace: Seconds between SIGTERM and SIGKILL then.
        spark_assigns_gpus: Does Spark hand out GPUs in this application?
        as_text: Hyperparameters that TensorBoard shows as text.
        echo: Does the driver want what trials print?
        modules: Those to preload that the driver has, so that an executor without them is none of
            its kind.
        trials_per_gpu: How many trials share a GPU.
        mark: Where the driver's mark is; '' where it has none.
    """

    address: Address
    root: str
    program: Program
    isolation: str
    timeout: float | None
    grace: float
    spark_assigns_gpus: bool
    as_text: tuple[str, ...]
    echo: bool
    modules: tuple[str, ...] = ()
    trials_per_gpu: int = 1
    mark: str = ""


def slot_function(
    job: int, lent: Lent, function: Lent, search_path: list[str]
) -> Callable[[Iterable[Any]], Any]:
    """Return the function for `mapInArrow`: runs a slot, yields nothing.

    It is pickled by value and imports our packages itself, so that an executor that lacks one
    answers with a sentence of ours rather than fail to unpickle it.

    Args:
        job: Number of the slot job, from 1.
        lent: The `SlotConfig`, as JSON.
        function: The train function, which its program lacks.
        search_path: Folders to import from beside the executor's own.
    """
    marker, advice = PROBLEM, INSTALL

    def slot(batches: Iterable[Any]) -> Iterator[Any]:
        import sys

        sys.path.extend(folder for folder in search_path if folder not in sys.path)
        try:
            from spark_jobs.slot.slot import run_slot
        except ModuleNotFoundError as error:
            missing = f"Python {sys.executable}: no module named {error.name!r}"
            raise RuntimeError(f"{marker}{missing}; {advice}") from None
        for _ in batches:
            pass
        run_slot(job, lent, function)
        yield from ()

    return slot


def run_slot(job: int, lent: Lent, function: Lent) -> None:
    """Run trials until the driver has none left.

    Args:
        job: Number of the slot job.
        lent: The `SlotConfig`, as JSON.
        function: That its program lacks.

    Raises:
        RuntimeError: With `PROBLEM`, of a slot that does not know the driver's secrets, and so can
            tell the driver by Spark alone.
    """
    from pyspark import TaskContext

    try:
        config, program = msgspec.json.decode(lent(), type=SlotConfig), function()
    except OSError as error:
        raise RuntimeError(f"{PROBLEM}host {host_name()} {not_lent(error)}") from None
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("a slot runs inside a Spark task")
    slot = str(SlotId(job, task.partitionId(), task.attemptNumber()))
    run_trials(config, program, slot, task)


def not_lent(error: OSError) -> str:
    """Return what a host says that cannot read what the driver has lent."""
    if isinstance(error, FileNotFoundError) and isinstance(error.filename, str):
        run = run_of_secret(error.filename)
        if run is not None:  # else a file of Spark's, which carries the train function on HDFS
            return f"does not see the folder {run} of the driver{_SHARED}"
    return f"cannot read what the driver has written for it: {error}"


def run_trials(config: SlotConfig, function: bytes, slot: str, task: Any) -> None:
    """Run trials until the driver has none left.

    Args:
        config: Of the slot.
        function: That its program lacks.
        slot: The slot's name.
        task: Spark's context of its task.
    """
    gpu = task.resources().get("gpu")
    gpus = list(gpu.addresses) if gpu else []
    share = gpu_share(gpus, config.trials_per_gpu)
    program = msgspec.structs.replace(config.program, function=function, gpu_share=share)
    config = msgspec.structs.replace(config, program=program)
    environment = trial_environment(
        gpus, spark_assigns_gpus=config.spark_assigns_gpus, cpus=task.cpus(), share=share
    )
    assigned = bool(gpus) or config.spark_assigns_gpus
    host = host_name()
    channel, detour = connect(config.address, slot, host, program.data.hadoop)
    free = 0 if assigned else host_gpus()
    hello = Hello(slot, host, free_gpus=free, detour=detour, gpus=tuple(gpus))
    mark = Location.parse(config.mark) if config.mark else None
    watch = DriverWatch(mark, program.data.hadoop, channel.__exit__)
    channel.heard = watch.heard
    with channel, contextlib.closing(watch):
        try:
            _serve(config, channel, hello, environment, watch)
        except (ChannelLost, Abandoned):
            if watch.verdict is None:
                raise
            # Spark tells a driver that lives all the same, and runs a task that fails again.
            if not watch.verdict.certain:
                raise ChannelLost(watch.verdict.reason) from None


def _serve(
    config: SlotConfig,
    channel: SlotChannel,
    hello: Hello,
    environment: dict[str, str | None],
    watch: DriverWatch,
) -> None:
    """See `run_trials`."""

    def tell(warning: str) -> None:
        channel.hello(msgspec.structs.replace(hello, warnings=(warning,)))

    def keeps(gpu: str, memory: int, trial: int) -> None:
        why = f"GPU {gpu} of host {hello.host} keeps {memory / GIB:.1f} GiB after trial {trial}"
        channel.hello(msgspec.structs.replace(hello, set_aside={gpu: why}))

    problem = folder_problem(config, tell) or modules_problem(config)
    lag = channel.hello(msgspec.structs.replace(hello, problem=problem))
    first = None if problem else channel.next()
    if first is None:  # nothing to do, so nothing to import either
        return
    program = msgspec.structs.replace(config.program, clock_lag=lag)
    config = msgspec.structs.replace(config, program=program)
    try:
        with (
            make_runner(config, environment) as runner,
            Gpus(list(hello.gpus)) as watched,
            watch.leaving_by(runner.abandon),
        ):
            if runner.warnings:
                channel.hello(msgspec.structs.replace(hello, warnings=runner.warnings))
            shared = config.isolation == "none" or config.trials_per_gpu > 1
            watching = WatchedRunner(runner, watched, keeps, shared=shared, lag=lag)
            pull_trials(config, channel, watching, first, tell)
    except RunnerBroken as error:
        problem = f"host {hello.host}, Python {sys.executable}: {error}"
        channel.hello(msgspec.structs.replace(hello, problem=problem))


def host_name() -> str:
    """Return what Spark calls this host, on its pages and in its errors; elsewhere its own name.

    Spark tells an executor by an argument, and its Python processes not at all. Their own name may
    be the same on all hosts, as in containers.
    """
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process().parents():
            words = process.cmdline()
            if any(word.endswith("ExecutorBackend") for word in words) and _HOST in words[:-1]:
                return str(words[words.index(_HOST) + 1])
    return socket.gethostname()


def is_installed(module: str) -> bool:
    """Is there a package that may have this module? Imports nothing."""
    package = module.partition(".")[0]
    return package in sys.modules or bool(package and importlib.util.find_spec(package))


def modules_problem(config: SlotConfig) -> str:
    """Return which module this host's Python lacks and the driver's has, or ''."""
    missing = next((name for name in config.modules if not is_installed(name)), None)
    if missing is None:
        return ""
    return (
        f"host {host_name()}, Python {sys.executable}: no module named {missing!r}, which the "
        "driver has; install it on every executor, or leave it out of preload"
    )


def folder_problem(config: SlotConfig, tell: Callable[[str], None]) -> str:
    """Return why this host cannot write to the run's folder, or ''.

    Args:
        config: Of the slot.
        tell: Told why it takes so long.
    """
    root, host = Location.parse(config.root), host_name()
    advice = _SHARED if root.scheme == "file" else ""

    seen = False

    def look() -> None:
        nonlocal seen
        with _files(config) as files:
            files.status(root)  # its name is random: where it is seen, it is the driver's
            seen = True
            check_writable(files, root)

    try:
        with_patience(look, lambda trouble: tell(f"host {host}: {trouble}"))
    except InvalidArgument as error:  # as where a package for Kerberos is missing
        return f"host {host}: {error}"
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not seen:
            return f"host {host} does not see the folder {root} of the driver{advice}"
        return f"host {host} cannot write to the folder {root}: {error.strerror or error}{advice}"
    return ""


def _scratch_folder() -> str | None:
    """Return a folder of Spark's own, which is removed with the executor, however that ends."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None


def _files(config: SlotConfig) -> contextlib.closing[WritableFiles]:
    root = Location.parse(config.root)
    return contextlib.closing(writable_files_at(root, config.program.data.hadoop))


def make_runner(config: SlotConfig, environment: dict[str, str | None]) -> TrialRunner:
    """Return the runner for the isolation that the user chose."""
    if config.isolation == "none":
        return InProcessRunner(config.program, environment)
    return ProcessRunner(config.program, environment, config.timeout, config.grace)


def pull_trials(
    config: SlotConfig,
    channel: SlotChannel,
    runner: TrialRunner,
    first: Attempt,
    tell: Callable[[str], None],
) -> None:
    """Run, hand in, ask, until no work is left.

    Args:
        config: Of the slot.
        channel: To the driver.
        runner: Of the trials.
        first: The first attempt.
        tell: Gets what the user should know.
    """
    attempt: Attempt | None = first
    with contextlib.suppress(ChannelLost, ChannelRefused):  # the first trial's time counts from now
        channel.report(first, (), "")
    with Reporter(channel.report, runner.stop) as reporter:
        while attempt is not None:
            with reporter.running(attempt):
                outcome = run_attempt(config, attempt, runner, tell, reporter)
            attempt = channel.next(attempt.number, outcome)


def run_attempt(
    config: SlotConfig,
    attempt: Attempt,
    runner: TrialRunner,
    tell: Callable[[str], None],
    reporter: Reporter,
) -> Outcome:
    """Run a trial and keep what belongs to it in its folder, TensorBoard's view included.

    Args:
        config: Of the slot.
        attempt: What to run.
        runner: Runs it.
        tell: Gets what the user should know.
        reporter: Gets what the trial reports.
    """
    trial, root = attempt.trial, Location.parse(config.root)
    place = root.below(attempt_name(trial.id, attempt.number))

    def say(trouble: str) -> None:
        tell(f"host {host_name()}: {trouble}")

    try:
        if root.scheme == "file":
            _write(config, Path(root.path), Path(place.path), lambda: None, say)
        with (
            _files(config) as files,
            run_folder(place, config.program.data.hadoop, scratch=_scratch_folder()) as folder,
        ):
            paths = AttemptPaths(folder.path)
            try:
                hide_events(files, root, trial.id, attempt.number)
            except OSError as error:  # TensorBoard averages the attempts then; no reason to stop
                tell(f"trial {trial.id} shows twice in TensorBoard: {error}")
            with_patience(lambda: hand_on_checkpoint(files, root, attempt, paths.checkpoint), say)
            if config.echo:
                reporter.follow(attempt, (paths.stdout, paths.stderr))
            add = functools.partial(reporter.add, attempt)
            try:
                outcome = _run(config, attempt, runner, paths, tell=add, say=say)
            except Abandoned:  # what is there is the next attempt's to use, or nobody's
                folder.abandon()
                folder.keep(say)
                raise
            # The driver judges a trial by what it said before its end; and here its logs still are.
            reporter.flush(time_limits.LAST_REPORTS)
            try:
                folder.keep(say)
            except OSError as error:  # of what it wrote; what became of it is known
                say(f"trial {trial.id}: {error}")
    except FolderChanged as error:
        return Outcome.failed(trial.id, "user error", f"host {host_name()}: {error}")
    except OSError as error:
        message = f"host {host_name()}: {error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and root.scheme != "file":
            message += "; set spark.local.dir to a larger disk"
        return Outcome.failed(trial.id, "machine", message, traceback.format_exc())
    return msgspec.structs.replace(outcome, trial=trial.id)


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
    name = attempt_name(trial, attempt.number)
    place = root.below(name)
    row = row_name(name.rpartition("/")[2], root.name)
    top = Path(root.path) if root.scheme == "file" else paths.folder.parent

    def start() -> None:
        write_whole(paths.trial, encode(attempt))
        events.close()
        events.hparams_start(_columns(config, attempt), row)

    def end() -> None:
        if gone(paths, events):
            start()
        _close_events(events, outcome)
        # Last: it says that all is there.
        write_whole(paths.outcome, encode(outcome))

    with EventFile(paths.folder, lag=config.program.clock_lag) as events:
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


def row_name(attempt: str, run: str) -> str:
    """Return what TensorBoard's table calls an attempt at a trial.

    TensorBoard takes rows of the same name for one and averages them, those of other runs too. The
    name is short, since its column is narrow.

    Args:
        attempt: The name of its folder.
        run: The name of the run's folder, of which the random last part is taken.
    """
    return f"{attempt} {run.rpartition('-')[2]}"


def _write(
    config: SlotConfig,
    top: Path,
    folder: Path,
    write: Callable[[], None],
    say: Callable[[str], None],
) -> None:
    """Write into an attempt's folder as `write_below` does.

    Raises:
        FolderChanged: It fails, and this host can write to the run's folder: a train function is
            to blame.
        OSError: It fails, and this host is to blame.
    """
    try:
        write_below(top, folder, write)
    except OSError as error:
        if not _can_write(config, top, say):
            raise
        raise FolderChanged(
            f"{error}; this host can write to the run's folder, so a train function has changed "
            "this trial's"
        ) from None


def _can_write(config: SlotConfig, top: Path, say: Callable[[str], None]) -> bool:
    """Can this host write to the run's folder, and to where its trials' folders are?"""
    if folder_problem(config, say):
        return False
    try:
        here = Location("file", "", str(top))
        with contextlib.closing(writable_files_at(here, config.program.data.hadoop)) as files:
            check_writable(files, here)
    except OSError:
        return False
    return True


def _columns(config: SlotConfig, attempt: Attempt) -> dict[str, bool | float | str]:
    trial = attempt.trial
    columns = {
        name: hparam(value, as_text=name in config.as_text) for name, value in trial.params.items()
    }
    if trial.generation is not None and "generation" not in columns:
        columns["generation"] = trial.generation
    return columns


def hparam(value: Any, *, as_text: bool = False) -> bool | float | str:
    """Return a hyperparameter as what TensorBoard's table takes: anything else as text."""
    if as_text or not isinstance(value, int | float):
        return value if isinstance(value, str) else repr(value)
    # A column holds floats, and TensorBoard cannot serve infinite ones.
    largest = LARGEST_INTEGER if isinstance(value, int) else sys.float_info.max
    return value if abs(value) <= largest else repr(value)


def _close_events(events: EventFile, outcome: Outcome) -> None:
    if outcome.objective is not None or outcome.values:
        events.scalars(
            {objective_tag(name): value for name, value in outcome.metrics.items()}, step=0
        )
    if outcome.step is not None:
        events.scalars({LAST_STEP: outcome.step}, step=0)
    if outcome.reason:
        events.text("stopped", _verbatim(f"stopped at {outcome.reason}"))
    if outcome.error is not None:
        events.text("error", _verbatim(outcome.error.traceback or outcome.error.message))
    events.hparams_end(outcome.status)


def _verbatim(text: str) -> str:
    """Return text as Markdown that shows it as it is."""
    return "\n".join("    " + line for line in text.splitlines())


LAST_STEP = "trial/last_step"
"""TensorBoard's tag of the step that a trial reported last."""


def objective_tag(name: str) -> str:
    """Return TensorBoard's tag of a returned metric: apart from the curve of the same name."""
    return f"objective/{name}"
