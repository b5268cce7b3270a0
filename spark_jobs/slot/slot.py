"""A slot: one long Spark task that gets trials from the driver and runs one after the other."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from search.trial import Outcome
from spark_jobs import time_limits
from spark_jobs.addresses import own_address
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
from spark_jobs.relay.relayed_channel import Relays
from spark_jobs.run_folder.paths import AttemptPaths, attempt_name
from spark_jobs.run_folder.scratch import scratch_folder
from spark_jobs.run_folder.writing import hand_on_checkpoint, hide_events, run_folder, with_patience
from spark_jobs.slot.attempt_folder import FolderChanged, gone, write_below
from spark_jobs.slot.attempts import Attempts
from spark_jobs.slot.devices import gpu_share, host_gpus, trial_environment
from spark_jobs.slot.driver_watch import Abandoned, DriverWatch
from spark_jobs.slot.gpu_watch import WatchedRunner
from spark_jobs.slot.held_ports import DEFAULT_PORTS, HeldPorts, NoPort, Ports
from spark_jobs.slot.host import folder_problem, host_name, modules_problem, not_lent
from spark_jobs.slot.nvml import GIB, Gpus
from spark_jobs.slot.problems import PROBLEM
from spark_jobs.slot.runners import InProcessRunner, ProcessRunner, TrialRunner
from spark_jobs.slot.trial_events import columns_of, row_name, write_outcome
from spark_jobs.storage.files import WritableFiles, check_writable
from spark_jobs.storage.local_files import write_whole
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at
from spark_jobs.trial.event_file import EventFile
from spark_jobs.trial.trial_process import Program
from spark_jobs.warm.asking import warm_here
from spark_jobs.zygote.link import RunnerBroken, Tell


class SlotConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a slot, as JSON. Secret; `Handover` passes it to the slots.

    Attributes:
        address: The channel's address.
        root: The run's folder in its store.
        program: The settings that all trials share.
        isolation: 'process', 'spawn' or 'none'.
        timeout: Time limit of a trial in seconds, or None.
        grace: Seconds between SIGTERM and SIGKILL at the time limit.
        spark_assigns_gpus: Whether Spark assigns GPUs in this application.
        as_text: Hyperparameters that TensorBoard shows as text.
        echo: Whether the driver wants the trials' output.
        modules: Modules to preload that the driver has; an executor without them cannot run trials.
        trials_per_gpu: The number of trials that share a GPU.
        mark: The location of the driver's mark; '' without one.
        keep_warm: Seconds for which the preloaded modules stay imported after a search; 0 if each
            slot imports them by itself.
        relayed: Whether the slots of an executor share a connection to the driver.
        in_gangs: Whether several slots may run a trial together.
        worker_ports: The ports on which they may listen for each other.
        one_host: Whether all slots are on the driver's host.
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
    keep_warm: float = 0.0
    relayed: bool = False
    in_gangs: bool = False
    worker_ports: Ports = DEFAULT_PORTS
    one_host: bool = False


def run_slot(job: int, lent: Lent, function: Lent) -> None:
    """Run trials until the driver has none left.

    Args:
        job: The slot job's number.
        lent: The `SlotConfig`, as JSON.
        function: The train function, which is not in the config's program.

    Raises:
        RuntimeError: With `PROBLEM`, from a slot without the driver's secrets, which can report to
            the driver through Spark only.
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


def run_trials(config: SlotConfig, function: bytes, slot: str, task: Any) -> None:
    """Run trials until the driver has none left.

    Args:
        config: The slot's configuration.
        function: The train function, which is not in the config's program.
        slot: The slot's name.
        task: Spark's context of the slot's task.
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
    relays = Relays.here() if config.relayed else None
    relayed = None if relays is None else relays.channel(config.address, slot)
    channel, detour = (
        (relayed, "") if relayed else connect(config.address, slot, host, program.data.hadoop)
    )
    free = 0 if assigned else host_gpus()
    hello = Hello(slot=slot, host=host, free_gpus=free, detour=detour, gpus=tuple(gpus))
    mark = Location.parse(config.mark) if config.mark else None
    watch = DriverWatch(mark, program.data.hadoop, channel.__exit__)
    channel.heard = watch.heard
    with channel, contextlib.closing(watch):
        try:
            _serve(config, channel, hello, environment, watch)
        except (ChannelLost, Abandoned):
            if watch.verdict is None:
                raise
            # A driver that still runs learns of it from Spark, which retries the failed task.
            if not watch.verdict.certain:
                raise ChannelLost(watch.verdict.reason) from None


def _serve(
    config: SlotConfig,
    channel: SlotChannel,
    hello: Hello,
    environment: dict[str, str | None],
    watch: DriverWatch,
) -> None:
    """Run trials over an open channel until the driver has none left."""

    def tell(warning: str) -> None:
        channel.hello(msgspec.structs.replace(hello, warnings=(warning,)))

    def keeps(gpu: str, memory: int, trial: int) -> None:
        why = f"GPU {gpu} of host {hello.host} keeps {memory / GIB:.1f} GiB after trial {trial}"
        channel.hello(msgspec.structs.replace(hello, set_aside={gpu: why}))

    root, hadoop = Location.parse(config.root), config.program.data.hadoop
    problem = folder_problem(root, hadoop, tell) or modules_problem(config.modules)
    lag = channel.hello(msgspec.structs.replace(hello, problem=problem))
    if problem:
        return
    program = msgspec.structs.replace(config.program, clock_lag=lag)
    config = msgspec.structs.replace(config, program=program)
    try:
        with contextlib.ExitStack() as stack:
            first = ports = None
            if config.in_gangs:
                here = own_address(config.address.target, hello.host, one_host=config.one_host)
                ports = HeldPorts(here, config.worker_ports)
                stack.enter_context(contextlib.closing(ports))
            attempts = Attempts(channel, ports)
            # The members of a gang wait for each other, so they have imported before they join one.
            if not config.in_gangs and (first := attempts.next()) is None:
                return  # nothing to do, so no zygote is needed
            runner = stack.enter_context(make_runner(config, environment))
            watched = stack.enter_context(Gpus(list(hello.gpus)))
            stack.enter_context(watch.leaving_by(runner.abandon))
            if runner.warnings:
                channel.hello(msgspec.structs.replace(hello, warnings=runner.warnings))
            shared = config.isolation == "none" or config.trials_per_gpu > 1
            watching = WatchedRunner(runner, watched, keeps, shared=shared, lag=lag)
            if first := first or attempts.next():
                pull_trials(config, attempts, watching, first, tell)
    except (RunnerBroken, NoPort) as error:
        problem = f"host {hello.host}, Python {sys.executable}: {error}"
        channel.hello(msgspec.structs.replace(hello, problem=problem))


def _scratch_folder() -> str | None:
    """Return a folder of Spark's, which is removed with the executor, however that ends."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None


def _files(config: SlotConfig) -> contextlib.closing[WritableFiles]:
    root = Location.parse(config.root)
    return contextlib.closing(writable_files_at(root, config.program.data.hadoop))


def make_runner(config: SlotConfig, environment: dict[str, str | None]) -> TrialRunner:
    """Return the runner for the isolation that the user chose."""
    if config.isolation == "none":
        return InProcessRunner(config.program, environment)
    warm = warm_here(config.keep_warm)
    return ProcessRunner(config.program, environment, config.timeout, config.grace, warm=warm)


def pull_trials(
    config: SlotConfig,
    attempts: Attempts,
    runner: TrialRunner,
    first: Attempt,
    tell: Callable[[str], None],
) -> None:
    """Run trials, send their outcomes and get the next ones, until no work is left.

    Args:
        config: The slot's configuration.
        attempts: Gets the next attempts from the driver.
        runner: The runner of the trials.
        first: The first attempt.
        tell: Called with warnings for the user.
    """
    attempt: Attempt | None = first
    channel, heard = attempts.channel, None
    with contextlib.suppress(ChannelLost, ChannelRefused):  # the first trial starts now
        heard = channel.report(first, (), "")
    end, beat = runner.end, channel.GANG_BEAT
    with Reporter(channel.report, runner.stop, end, heard, gang_beat=beat) as reporter:
        while attempt is not None:
            with reporter.running(attempt):
                outcome = run_attempt(config, attempt, runner, tell, reporter)
            attempt = attempts.next(attempt.number, outcome)


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
            run_folder(place, config.program.data.hadoop, scratch=_scratch_folder()) as folder,
            _scratch_of(attempt) as own,
        ):
            paths = AttemptPaths(folder.path, own)
            try:
                if not attempt.rank:
                    hide_events(files, root, trial.id, attempt.number)
            except OSError as error:  # TensorBoard averages the attempts, no reason to stop
                tell(f"trial {trial.id} shows twice in TensorBoard: {error}")
            with_patience(lambda: hand_on_checkpoint(files, root, attempt, paths.checkpoint), say)
            if config.echo:  # of other ranks only errors: they print what rank 0 prints
                logs = (paths.stderr,) if attempt.rank else (paths.stdout, paths.stderr)
                reporter.follow(attempt, logs)
            add = functools.partial(reporter.add, attempt)
            try:
                outcome = _run(config, attempt, runner, paths, tell=add, say=say)
            except Abandoned:  # the next attempt, if any, uses the files
                folder.abandon()
                folder.keep(say)
                raise
            # The driver judges a trial by all its reports; and the logs are still on this host.
            reporter.flush(time_limits.LAST_REPORTS)
            try:
                folder.keep(say)
            except OSError as error:  # its files may be incomplete, but its outcome is known
                say(f"trial {trial.id}: {error}")
    except FolderChanged as error:
        return Outcome.failed(trial.id, "user error", f"host {host_name()}: {error}")
    except OSError as error:
        message = f"host {host_name()}: {error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and root.scheme != "file":
            message += "; set spark.local.dir to a larger disk"
        return Outcome.failed(trial.id, "machine", message, traceback.format_exc())
    return msgspec.structs.replace(outcome, trial=trial.id)


@contextlib.contextmanager
def _scratch_of(attempt: Attempt) -> Iterator[Path | None]:
    """Yield the folder for the files of a train function that are not kept; None at rank 0.

    TensorBoard would show curves in the folder of a worker as those of one more trial.
    """
    if not attempt.rank:
        yield None
        return
    with scratch_folder(_scratch_folder()) as path:
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


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
    """Write to an attempt's folder as `write_below` does.

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
        raise FolderChanged(
            f"{error}; this host can write to the run's folder, so a train function has changed "
            "this trial's"
        ) from None


def _can_write(config: SlotConfig, top: Path, say: Callable[[str], None]) -> bool:
    """Return whether this host can write to the run's folder and the folder of its trials."""
    if folder_problem(Location.parse(config.root), config.program.data.hadoop, say):
        return False
    try:
        here = Location("file", "", str(top))
        with contextlib.closing(writable_files_at(here, config.program.data.hadoop)) as files:
            check_writable(files, here)
    except OSError:
        return False
    return True
