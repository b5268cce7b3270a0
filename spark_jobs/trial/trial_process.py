"""The process of one trial: calls the train function and reads the returned value.

`python -m spark_jobs.trial.trial_process` is the fresh interpreter of `isolation='spawn'`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pickle
import re
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from search.direction import DirectionName, read_direction
from search.errors import shown
from search.trial import Failure, FailureKind, Outcome
from spark_jobs import time_limits
from spark_jobs.messages import Attempt, Report, decode, encode, fit
from spark_jobs.processes import (
    die_with_parent,
    import_guessed,
    import_modules,
    print_lines,
    set_environment,
)
from spark_jobs.run_folder.paths import CHECKPOINT
from spark_jobs.storage.files import StoreUnavailable
from spark_jobs.storage.host_cache import CacheUnavailable
from spark_jobs.strategies.in_step.ports import PortTaken
from spark_jobs.strategies.settings import Strategy
from spark_jobs.trial import context
from spark_jobs.trial.events.tf_summary import default_writer
from spark_jobs.trial.gang_connections import NotConnected, connected, training_with
from spark_jobs.trial.memory import out_of_memory
from spark_jobs.trial.memory.gpu_share import GpuShare, limited
from spark_jobs.trial.objective import (
    AmbiguousObjective,
    EmptyHistory,
    Objective,
    Objectives,
    UnusableReturn,
    objective_of,
)
from spark_jobs.trial.pipe.link import Link, NoLink, PipeLink
from spark_jobs.trial.precision import Precision, computing_in
from spark_jobs.trial.random_numbers import seed_random_numbers
from spark_jobs.trial.repeats import outcome_of

_OF_DATA = re.compile(rf"\b({StoreUnavailable.__name__}|{CacheUnavailable.__name__}): (.+)")
_NO_VALUE = "it has returned; the value of worker 0 counts"


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that all trials of a search share.

    Attributes:
        function: The train function, pickled; unpickled only in a trial's process.
        key: The user's `optimization_key`.
        direction: 'max' or 'min', or a dict of objective names to these.
        preload: Modules to import before the first trial.
        guessed: More modules to import then, unless their import raises.
        start_method: 'fork' or 'spawn'.
        seed: The search's seed; None leaves the trials' random numbers to chance.
        data: The settings for the trials' data.
        gpu_share: The share of its GPU's memory that a trial may take, which depends on the slot;
            None for all of it.
        cores: The number of cores of the slot.
        clock_lag: Seconds by which the clock of the slot's host lags the driver's.
        strategy: How the workers of a trial train together; None leaves it to the train function.
        precision: The precision in which Keras computes; None leaves it to the train function.
        repeats: The number of calls of the train function in each trial.
    """

    function: bytes
    key: str | None
    direction: DirectionName | dict[str, DirectionName]
    preload: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()
    start_method: str = "fork"
    seed: int | None = None
    data: context.DataSettings = context.DataSettings()
    gpu_share: GpuShare | None = None
    cores: int = 1
    clock_lag: float = 0.0
    strategy: Strategy | None = None
    precision: Precision | None = None
    repeats: int = 1

    @property
    def objective(self) -> Objective | Objectives:
        """The reader of the values that the train function returns."""
        return objective_of(self.key, read_direction(self.direction))


class Task(msgspec.Struct, frozen=True, kw_only=True, tag="task"):
    """One trial for a process of its own.

    Attributes:
        attempt: The attempt to run.
        folder: Its folder, for its output.
        logdir: The folder for the files of the train function.
        environment: Environment variables to set, or to remove if None.
        timeout: Time limit in seconds, or None.
        grace: Seconds between SIGTERM and SIGKILL at the time limit.
    """

    attempt: Attempt
    folder: str
    logdir: str
    environment: dict[str, str | None]
    timeout: float | None
    grace: float


def evaluate(
    program: Program,
    attempt: Attempt,
    folder: Path,
    link: Link | None = None,
    started: float | None = None,
) -> Outcome:
    """Call the train function; any result or error becomes an outcome.

    The workers of a gang first connect to each other, and enter their strategy: before the train
    function is unpickled, since a strategy must be there before a framework's first operation.

    Args:
        program: The settings of the search.
        attempt: The attempt to run.
        folder: The folder for the files of the train function.
        link: The link to the supervisor. Default: none.
        started: Start of the trial, by `time.monotonic`. Default: now.
    """
    trial, started = attempt.trial, time.monotonic() if started is None else started
    is_new = attempt.number == 1 and trial.parent is None  # else it may copy a checkpoint before
    is_forked = program.start_method == "fork"  # else it imports before
    limit = time_limits.CONNECT_FIRST if is_new and is_forked else time_limits.CONNECT
    seed_random_numbers(program.seed, trial.id)
    running = _context_of(program, attempt, folder, link or NoLink())
    try:
        with (
            connected(attempt.gang, limit) as running.communicator,
            context.entered(running),
            default_writer(folder),
            limited(program.gpu_share),
            training_with(
                program.strategy, attempt.gang, running.communicator, lambda: running.repeat
            ),
            computing_in(program.precision),
            out_of_memory.reserve(),  # given up first, since leaving the others needs memory
        ):
            function = pickle.loads(program.function)
            read = functools.partial(program.objective.outcome, trial.id)
            outcome = outcome_of(running, function, read)
            if outcome is None:
                seconds = time.monotonic() - started
                return Outcome(trial.id, "cancelled", seconds=seconds, reason=_NO_VALUE)
        return replace(
            outcome,
            status="stopped" if running.stopped else "finished",
            seconds=time.monotonic() - started,
            reason=running.stopped,
            step=running.step,
        )
    except context.TrialStopped as stop:
        seconds = time.monotonic() - started
        return stopped(program.objective, trial.id, str(stop), running.last, seconds)
    except EmptyHistory as error:  # a lost attempt has trained all epochs, or none was asked for
        kind: FailureKind = "lost executor" if attempt.number > 1 else "invalid value"
        seconds = time.monotonic() - started
        return Outcome.failed(trial.id, kind, str(error), seconds=seconds)
    except BaseException as error:  # also SystemExit and user classes
        seconds = time.monotonic() - started
        try:
            return _failed(trial.id, error, seconds)
        except BaseException:  # by its text or its attributes, which are the user's code, too
            message = f"{type(error).__name__}, whose text cannot be shown"
            return Outcome.failed(trial.id, "user error", message, seconds=seconds)


def _context_of(
    program: Program, attempt: Attempt, folder: Path, link: Link
) -> context.TrialContext:
    trial = attempt.trial
    return context.TrialContext(
        params=trial.params,
        folder=folder,
        trial=trial.id,
        data=program.data,
        link=link,
        clock_lag=program.clock_lag,
        rank=attempt.rank,
        workers=attempt.workers,
        divides_data=program.strategy is not None and program.strategy.divides_data,
        cores=program.cores,
        gpu_share=program.gpu_share,
        max_steps=trial.max_steps,
        objective=program.key,
        resumes=(folder / CHECKPOINT).exists(),
        repeats=program.repeats,
        seed=program.seed,
    )


def stopped(
    objective: Objective | Objectives, trial: int, reason: str, last: Report | None, seconds: float
) -> Outcome:
    """Return the outcome of a trial that was stopped and returned nothing.

    Args:
        objective: The reader of the objective.
        trial: The trial's id.
        reason: Why the trial was stopped.
        last: Its last report.
        seconds: Seconds that it ran.
    """
    metrics = {} if last is None else dict(last.metrics)
    name = None
    with contextlib.suppress(AmbiguousObjective):  # it was not stopped by a rule
        name = objective.reported(metrics)
    value = metrics[name] if name is not None and math.isfinite(metrics[name]) else None
    step = None if last is None else last.step
    return Outcome(
        trial,
        "stopped",
        value,
        objective=name,
        metrics=metrics,
        seconds=seconds,
        reason=reason,
        step=step,
    )


def _failed(trial: int, error: BaseException, seconds: float) -> Outcome:
    if failure := _of_machine(error):
        return Outcome(trial, "failed", error=failure, seconds=seconds)
    match error:
        case AmbiguousObjective():
            return Outcome.failed(trial, "ambiguous objective", str(error), seconds=seconds)
        case UnusableReturn():
            return Outcome.failed(trial, "invalid value", str(error), seconds=seconds)
        case SystemExit():
            code = 0 if error.code is None else error.code
            message = f"exit {shown(code, 80)} before it returned"
            return Outcome.failed(trial, "exit", message, _traceback(error), seconds)
    error = out_of_memory.restored(error)
    kind, message = out_of_memory.kind_of(error), _one_line(error)
    if kind == "memory":
        message = f"{message}; {out_of_memory.limits()}"
    return Outcome.failed(trial, kind or "user error", message, _traceback(error), seconds)


def _of_machine(error: BaseException) -> Failure | None:
    """Return the failure by an error of the host or of a store; None for any other error.

    Where a generator of `tf.data` raises one, TensorFlow's error has its class and message as text.
    """
    match error:
        case NotConnected():
            return Failure(kind="machine", message=str(error), unreached=error.unreached)
        case StoreUnavailable():
            return Failure(kind="machine", message=str(error), of_store=True)
        case PortTaken() | context.MachineError() | CacheUnavailable():
            return Failure(kind="machine", message=str(error))
    if str(type(error).__module__).partition(".")[0] == "tensorflow":
        with contextlib.suppress(Exception):  # a class of the user may pass for TensorFlow's
            if found := _OF_DATA.search(str(error)):
                of_store = found[1] == StoreUnavailable.__name__
                return Failure(kind="machine", message=found[2], of_store=of_store)
    return None


def _one_line(error: BaseException) -> str:
    shown = traceback.TracebackException.from_exception(error)
    shown.__notes__ = None  # they would be the last line
    return " ".join(list(shown.format_exception_only())[-1].split())


def _traceback(error: BaseException) -> str:
    frames = error.__traceback__ and error.__traceback__.tb_next  # without our own frame
    return "".join(traceback.format_exception(type(error), error, frames))


def become_trial(supervisor: int, output: tuple[int, int]) -> None:
    """Prepare this forked child of the supervisor to run user code.

    It gets a session of its own, so that one signal reaches all its processes; it dies with the
    supervisor, and before it when memory is short; it has pipes for its output. The trial's
    environment and the default signal handlers are those of the supervisor.

    Args:
        supervisor: The supervisor's process id.
        output: Pipes for stdout and stderr.
    """
    os.setsid()
    die_with_parent(supervisor)
    out_of_memory.be_first_to_be_killed()
    for pipe, descriptor in zip(output, (1, 2), strict=True):
        os.dup2(pipe, descriptor)
        os.close(pipe)


def run_child(
    program: Program, task: Task, results: int, commands: int, started: float | None = None
) -> None:
    """Run the trial, write its outcome to `results`, and end the process.

    Args:
        program: The settings of the search.
        task: The trial.
        results: Pipe to the supervisor.
        commands: Pipe from the supervisor.
        started: Start of the trial, by `time.monotonic`.
    """
    code = 1
    try:
        link = PipeLink(results, commands)
        perform(program, task.attempt, Path(task.logdir), link, started)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        _end(code)


def _end(code: int) -> NoReturn:
    """End this process, without atexit handlers: TensorFlow's destructors may block."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # user code may have closed or replaced it
            stream.flush()
    os._exit(code)


def perform(
    program: Program, attempt: Attempt, folder: Path, link: PipeLink, started: float | None = None
) -> None:
    """Run a trial in this process, and send its outcome.

    Args:
        program: The settings of the search.
        attempt: The attempt to run.
        folder: The attempt's folder.
        link: The link to the supervisor.
        started: Start of the trial, by `time.monotonic`.
    """
    owner = os.getpid()
    outcome = evaluate(program, attempt, folder, link, started)
    if os.getpid() != owner:
        os._exit(0)  # a fork of user code returned here: not the trial
    link.close(encode(fit(outcome)))


def main(payload: int, results: int, commands: int) -> None:
    """Run the trial that the descriptor `payload` holds, in a fresh interpreter.

    The imports run in each trial here, and count as its time.
    """
    started = time.monotonic()
    print_lines()
    with os.fdopen(payload, "rb") as file:
        program_data, task_data = msgspec.msgpack.decode(file.read(), type=tuple[bytes, bytes])
    program = msgspec.json.decode(program_data, type=Program)
    task = decode(task_data, Task, largest=None)
    try:
        import_modules(program.preload)
    except Exception as error:  # by which no zygote of forked trials would start here
        message = f"preload: {type(error).__name__}: {error}"
        trial = task.attempt.trial.id
        failed = Outcome.failed(trial, "machine", message, traceback.format_exc())
        PipeLink(results, commands).close(encode(fit(failed)))
        _end(1)
    import_guessed(program.guessed)
    set_environment(task.environment)  # of which all but PYTHONPATH is set
    run_child(program, task, results, commands, started)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
