"""One trial, in the process that runs it: call the train function, read what it returned.

`python -m spark_jobs.trial_process` is the fresh interpreter of `isolation='spawn'`.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import pickle
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import msgspec

from search.direction import Direction
from search.errors import shown
from search.trial import Outcome
from spark_jobs import context
from spark_jobs.objective import AmbiguousObjective, Objective, UnusableReturn
from spark_jobs.paths import AttemptPaths
from spark_jobs.protocol import Attempt, Work, attempt_of, decode, encode, fit, outcome_to_json
from spark_jobs.storage import open_appending
from spark_jobs.tf_summary import default_writer

_PR_SET_PDEATHSIG = 1


class Program(msgspec.Struct, frozen=True):
    """What all trials of a search have in common.

    Attributes:
        function: The train function, pickled; unpickled only where it runs.
        key: The user's `optimization_key`.
        direction: 'max' or 'min'.
        preload: Modules to import before the first trial.
        start_method: 'fork' or 'spawn'.
        seed: Of the search; None leaves the trials' random numbers to chance.
        data: How trials get at their data.
    """

    function: bytes
    key: str | None
    direction: str
    preload: tuple[str, ...] = ()
    start_method: str = "fork"
    seed: int | None = None
    data: context.DataSettings = context.DataSettings()

    @property
    def objective(self) -> Objective:
        """How to read what the train function returns."""
        return Objective(self.key, Direction(self.direction))


class Task(msgspec.Struct, frozen=True):
    """One trial for a process of its own.

    Attributes:
        work: The trial.
        folder: Its folder.
        environment: Variables to set, or to remove where None.
        timeout: Seconds until it is ended, or None.
    """

    work: Work
    folder: str
    environment: dict[str, str | None]
    timeout: float | None


def evaluate(program: Program, attempt: Attempt, folder: Path) -> Outcome:
    """Call the train function; whatever happens becomes an outcome."""
    trial, started = attempt.trial, time.perf_counter()
    try:
        with (
            context.entered(context.TrialContext(trial.params, folder, program.data)),
            default_writer(folder),
        ):
            function = pickle.loads(program.function)
            returned = function(**trial.params)
            name, value, metrics = program.objective.read(returned)
        seconds = time.perf_counter() - started
        return Outcome(trial.id, "finished", value, name, metrics, None, seconds)
    except BaseException as error:  # also SystemExit and what user code derives from BaseException
        return _failed(trial.id, error, time.perf_counter() - started)


def _failed(trial: int, error: BaseException, seconds: float) -> Outcome:
    match error:
        case AmbiguousObjective():
            return Outcome.failed(trial, "ambiguous objective", str(error), seconds=seconds)
        case UnusableReturn():
            return Outcome.failed(trial, "invalid value", str(error), seconds=seconds)
        case SystemExit():
            code = 0 if error.code is None else error.code
            message = f"exit {shown(code, 80)} before it returned"
            return Outcome.failed(trial, "exit", message, _traceback(error), seconds)
        case MemoryError():
            return Outcome.failed(trial, "memory", _one_line(error), _traceback(error), seconds)
        case _:
            return Outcome.failed(trial, "user error", _one_line(error), _traceback(error), seconds)


def _one_line(error: BaseException) -> str:
    shown = traceback.TracebackException.from_exception(error)
    shown.__notes__ = None  # they would come last
    return " ".join(list(shown.format_exception_only())[-1].split())


def _traceback(error: BaseException) -> str:
    frames = error.__traceback__ and error.__traceback__.tb_next  # without our own frame
    return "".join(traceback.format_exception(type(error), error, frames))


def become_trial(supervisor: int, task: Task) -> None:
    """Make this fresh child of the supervisor a process that can run user code.

    A session of its own, so that one signal reaches all of it; death with the supervisor; default
    signal handlers; the trial's environment; its output in its own files.
    """
    os.setsid()
    die_with_parent(supervisor)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for name, value in task.environment.items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
    redirect_output(AttemptPaths(Path(task.folder)))


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when the thread that forked it ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


def redirect_output(paths: AttemptPaths) -> None:
    """Send stdout and stderr of this process, native code's too, to the attempt's files."""
    for path, descriptor in ((paths.stdout, 1), (paths.stderr, 2)):
        file = open_appending(path)
        os.dup2(file, descriptor)
        os.close(file)


def run_child(program: Program, task: Task, results: int) -> None:
    """Run the trial, write its outcome to the descriptor `results`, and end the process."""
    code, owner = 1, os.getpid()
    try:
        for stream in (sys.stdout, sys.stderr):
            _make_lines(stream)
        seed_random_numbers(program.seed, task.work.trial)
        outcome = evaluate(program, attempt_of(task.work), Path(task.folder))
        if os.getpid() != owner:
            os._exit(0)  # user code forked, and its child came back here: it is not the trial
        data = memoryview(encode(outcome_to_json(fit(outcome))))
        while data:
            data = data[os.write(results, data) :]
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with_suppressed_flush(stream)
        os._exit(code)  # no atexit handlers: TensorFlow's destructors may block


def seed_random_numbers(seed: int | None, trial: int) -> None:
    """Give `random` and numpy a state of this trial's own; forked children share one otherwise."""
    state = random.SystemRandom().getrandbits(32) if seed is None else (seed * 1_000_003 + trial)
    random.seed(state)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(state % 2**32)


def _make_lines(stream: Any) -> None:
    """Write whole lines at once, so that a trial that is killed leaves what it printed."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(line_buffering=True, encoding="utf-8", errors="backslashreplace")


def with_suppressed_flush(stream: Any) -> None:
    """Flush a stream that user code may have closed or replaced."""
    try:
        stream.flush()
    except Exception:
        return


def import_modules(names: tuple[str, ...]) -> None:
    """Import modules; those that are not installed are skipped."""
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name + ".").startswith(error.name + "."):
                raise


def main(payload: int, results: int) -> None:
    """Run the trial that the descriptor `payload` holds, in a fresh interpreter."""
    with os.fdopen(payload, "rb") as file:
        program_data, task_data = msgspec.msgpack.decode(file.read(), type=tuple[bytes, bytes])
    program = msgspec.json.decode(program_data, type=Program)
    import_modules(program.preload)
    run_child(program, decode(task_data, Task), results)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
