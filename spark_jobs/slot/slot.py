"""A slot: one long Spark task that gets trials from the driver and runs one after the other."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from spark_jobs.addresses import own_address
from spark_jobs.channel.connecting import connect
from spark_jobs.channel.exchange import ChannelLost, ChannelRefused, SlotChannel
from spark_jobs.channel.reporter import Reporter
from spark_jobs.handover import Lent
from spark_jobs.messages import Attempt, Hello, SlotId
from spark_jobs.relay.relayed_channel import FOLDER, relayed_channel
from spark_jobs.slot.attempts import Attempts
from spark_jobs.slot.config import SlotConfig
from spark_jobs.slot.driver_watch import Abandoned, DriverWatch
from spark_jobs.slot.gang.held_ports import HeldPorts, NoPort
from spark_jobs.slot.gpus.devices import gpu_share, host_gpus, trial_environment
from spark_jobs.slot.gpus.gpu_watch import WatchedRunner
from spark_jobs.slot.gpus.nvml import GIB, Gpus
from spark_jobs.slot.host import folder_problem, host_name, modules_problem, not_lent
from spark_jobs.slot.problems import PROBLEM
from spark_jobs.slot.run_attempt import run_attempt
from spark_jobs.slot.runners import InProcessRunner, ProcessRunner, TrialRunner
from spark_jobs.storage.locations import Location
from spark_jobs.trial.precision import why_slow
from spark_jobs.warm.asking import warm_here
from spark_jobs.warm.executor import executor_here
from spark_jobs.zygote.link import RunnerBroken


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
    assert task is not None, "a slot runs inside a Spark task"
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
    data = config.program.data
    # Not in a trial, whose temporary files lie in a folder of its own.
    with contextlib.suppress(OSError):  # a full disk is told to the driver below
        data = msgspec.structs.replace(data, cache=data.cache.with_folder())
    program = msgspec.structs.replace(
        config.program, function=function, data=data, gpu_share=share, cores=task.cpus()
    )
    config = msgspec.structs.replace(config, program=program)
    environment = trial_environment(
        gpus, spark_assigns_gpus=config.spark_assigns_gpus, cpus=task.cpus(), share=share
    )
    host = host_name()
    executor = executor_here(FOLDER) if config.relayed else None
    relayed = None if executor is None else relayed_channel(executor, config.address, slot)
    channel, detour = (
        (relayed, "") if relayed else connect(config.address, slot, host, program.data.hadoop)
    )
    free = 0 if gpus or config.spark_assigns_gpus else host_gpus()
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

    # A trial that has ended stores its outcome also while the driver is away; the next message that
    # asks for work finds out whether it is gone.
    def tell(warning: str) -> None:
        with contextlib.suppress(ChannelLost):
            channel.hello(msgspec.structs.replace(hello, warnings=(warning,)))

    def keeps(gpu: str, memory: int, trial: int) -> None:
        why = f"GPU {gpu} of host {hello.host} keeps {memory / GIB:.1f} GiB after trial {trial}"
        with contextlib.suppress(ChannelLost):
            channel.hello(msgspec.structs.replace(hello, set_aside={gpu: why}))

    root, hadoop = Location.parse(config.root), config.program.data.hadoop
    problem = folder_problem(root, hadoop, tell) or modules_problem(config.modules)
    lag = channel.hello(msgspec.structs.replace(hello, problem=problem))
    if problem:
        channel.next()  # until the answer is `stop`: Spark would kill another slot of its task
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
            slow = why_slow(program.precision, gpus=len(hello.gpus) or hello.free_gpus)
            if warnings := (*runner.warnings, *([slow] if slow else [])):
                channel.hello(msgspec.structs.replace(hello, warnings=warnings))
            shared = config.isolation == "none" or config.trials_per_gpu > 1
            watching = WatchedRunner(runner, watched, keeps, shared=shared, lag=lag)
            if first := first or attempts.next():
                pull_trials(config, attempts, watching, first, tell)
    except (RunnerBroken, NoPort, OSError) as error:  # such as no room for temporary files
        problem = f"host {hello.host}, Python {sys.executable}: {error}"
        channel.hello(msgspec.structs.replace(hello, problem=problem))
        channel.next()  # as above


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
