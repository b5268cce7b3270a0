"""The process that forks trials: `python -m spark_jobs.zygote CONTROL LIFELINE`.

It imports TensorFlow once and runs no op, so a forked child starts in milliseconds with TensorFlow
there; after an op every child would hang. It supervises one trial at a time: as a subreaper it
inherits whatever the trial leaves behind, and ends the whole tree when the trial ends, when the
time limit passes, or when the slot is gone (its end of the lifeline pipe closes, however it died).

Single-threaded on purpose: the kernel's death signal follows the thread that forked. gRPC is never
imported here, it does not survive a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import sys
import time
import traceback
import warnings
from dataclasses import dataclass

import msgspec
import psutil

from spark_jobs import trial_process
from spark_jobs.frames import FrameReader, write_frame
from spark_jobs.hugepages import use_huge_pages
from spark_jobs.objective import number
from spark_jobs.protocol import LARGEST_MESSAGE, decode, encode
from spark_jobs.trial_process import Program, Task, become_trial, import_modules, run_child

_PR_SET_CHILD_SUBREAPER = 36
_GRACE = 1.0  # seconds between SIGTERM and SIGKILL
_PROBE = 20.0  # seconds that a first op may take in a forked child
_SWEEP = 5.0  # seconds for killed processes to disappear


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The zygote can run trials.

    Attributes:
        start_method: 'fork', or 'spawn' where a fork would hang.
        reason: Why not 'fork', where that was asked for.
    """

    start_method: str
    reason: str = ""


class Broken(msgspec.Struct, frozen=True, tag="broken"):
    """The zygote cannot run trials, and ends."""

    reason: str


class Started(msgspec.Struct, frozen=True, tag="started"):
    """A trial's process runs; its process group has the same number."""

    pid: int


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A trial is over and no process of it is left.

    Attributes:
        exit: Exit code of its process, or minus the signal's number.
        timed_out: It was ended at the time limit.
        seconds: From the fork to the end.
        outcome: What it wrote as its outcome, unchecked; empty where it wrote none.
    """

    exit: int
    timed_out: bool
    seconds: float
    outcome: str = ""


FromZygote = Ready | Broken | Started | Ended


@dataclass(slots=True)
class _Child:
    pid: int
    pidfd: int
    results: int
    output: bytearray
    started: float

    def read(self) -> bool:
        """Take what the child wrote; return whether it may write more.

        More than a message may hold is not kept, but taken, so that the child is not held up.
        """
        try:
            while data := os.read(self.results, 1 << 16):
                if len(self.output) <= LARGEST_MESSAGE:
                    self.output += data
        except BlockingIOError:
            return True
        return False

    def signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:  # it has not called setsid yet
            os.kill(self.pid, number)


class Zygote:
    """Serves one slot.

    Args:
        control: Socket to the slot.
        lifeline: Pipe whose other end only the slot holds.
    """

    def __init__(self, control: int, lifeline: int) -> None:
        self._control, self._lifeline = control, lifeline
        self._reader = FrameReader(control)
        self._program = Program(b"", None, "max")

    def run(self) -> None:
        """Serve until the slot is gone."""
        become_subreaper()
        self._program = msgspec.json.decode(self._read(), type=Program)
        reason = self._prepare()
        self._send(Ready(self._program.start_method, reason))
        while True:
            self._run_trial(decode(self._read(), Task))

    def _prepare(self) -> str:
        """Import what trials need; return why the start method had to be changed, or ''."""
        if self._program.start_method != "fork":
            return ""
        try:
            import_modules(self._program.preload)
        except Exception as error:
            self._send(Broken(f"preload: {type(error).__name__}: {error}"))
            sys.exit(1)
        reason = why_not_fork()
        if reason:
            self._program = msgspec.structs.replace(self._program, start_method="spawn")
        warm_up()
        gc.collect()
        gc.freeze()  # a collection in a child would otherwise copy every page of the parent
        use_huge_pages()
        return reason

    def _read(self) -> bytes:
        """Return the next message of the slot, which sends one and waits; or end with the slot."""
        ready, _, _ = select.select([self._control, self._lifeline], [], [])
        message = None if self._lifeline in ready else self._reader.receive()
        if message is None:
            sys.exit(0)
        return message

    def _send(self, message: FromZygote) -> None:
        write_frame(self._control, encode(message))

    def _run_trial(self, task: Task) -> None:
        child = self._start(task)
        self._send(Started(child.pid))
        timed_out = self._watch(child, task.timeout)
        child.read()
        _, status = os.waitpid(child.pid, 0)
        seconds = time.monotonic() - child.started
        end_descendants()
        os.close(child.results)
        os.close(child.pidfd)
        outcome = child.output.decode("utf-8", "replace")
        if len(child.output) > LARGEST_MESSAGE:
            outcome = ""
        self._send(Ended(os.waitstatus_to_exitcode(status), timed_out, seconds, outcome))

    def _start(self, task: Task) -> _Child:
        results, writing = os.pipe()
        started = time.monotonic()
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                for descriptor in (results, self._control, self._lifeline):
                    os.close(descriptor)
                become_trial(supervisor, task)
                if self._program.start_method == "spawn":
                    _become_fresh_interpreter(self._program, task, writing)
                run_child(self._program, task, writing)
            except BaseException:
                traceback.print_exc()  # into the trial's stderr.log, if it got that far
            finally:
                os._exit(1)
        os.close(writing)
        os.set_blocking(results, False)
        return _Child(pid, os.pidfd_open(pid), results, bytearray(), started)

    def _watch(self, child: _Child, timeout: float | None) -> bool:
        """Wait for the end of the child's process; return whether the time limit ended it."""
        deadline = None if timeout is None else child.started + timeout
        timed_out = False
        poll = select.poll()
        for descriptor in (self._lifeline, self._control, child.results, child.pidfd):
            poll.register(descriptor, select.POLLIN)
        while True:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            ready = {descriptor for descriptor, _ in poll.poll(wait)}
            if self._lifeline in ready or self._control in ready:
                child.signal(signal.SIGKILL)  # a slot says nothing while a trial runs: it is gone
                end_descendants()
                sys.exit(0)
            if child.results in ready and not child.read():
                poll.unregister(child.results)
            if child.pidfd in ready:
                return timed_out
            if deadline is not None and time.monotonic() >= deadline:
                child.signal(signal.SIGKILL if timed_out else signal.SIGTERM)
                timed_out = True
                deadline = time.monotonic() + _GRACE


def warm_up() -> None:
    """Do once what every child would do anew: late imports, caches of abstract classes."""
    importlib.import_module("numpy.random")
    number(0.0)


def become_subreaper() -> None:
    """Inherit the orphans of all descendants of this process instead of losing them to init."""
    _set_subreaper(1)


def resign_as_subreaper() -> None:
    """Take `become_subreaper` back."""
    _set_subreaper(0)


def _set_subreaper(value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def end_descendants() -> None:
    """Kill and reap everything below this process; at once where nothing is."""
    give_up = time.monotonic() + _SWEEP
    while time.monotonic() < give_up:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            kill_all(psutil.Process().children(recursive=True))
            time.sleep(0.005)


def kill_all(processes: list[psutil.Process]) -> None:
    """Kill processes, some of which may be gone."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def why_not_fork() -> str:
    """Return why children forked from this process would hang in TensorFlow, or ''."""
    if "tensorflow" not in sys.modules:
        return ""
    if tensorflow_has_run():
        return "a preloaded module ran a TensorFlow op at import, after which forked trials hang"
    if not _first_op_works_in_child():
        return f"a first TensorFlow op in a forked process did not end within {_PROBE:.0f} s"
    return ""


def tensorflow_has_run() -> bool:
    """Has an op run in this process? A private field; a test pins it."""
    from tensorflow.python.eager import context

    return bool(context.context()._initialized)


def _first_op_works_in_child() -> bool:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # no memory of a GPU for a probe
            import tensorflow

            code = 0 if int(tensorflow.constant(1) + 1) == 2 else 1
        finally:
            os._exit(code)
    pidfd = os.pidfd_open(pid)
    ended, _, _ = select.select([pidfd], [], [], _PROBE)
    os.close(pidfd)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1] == 0


def _become_fresh_interpreter(program: Program, task: Task, results: int) -> None:
    payload = os.memfd_create("experiment-trial")
    with os.fdopen(os.dup(payload), "wb") as file:
        file.write(msgspec.msgpack.encode((encode(program), encode(task))))
    os.lseek(payload, 0, os.SEEK_SET)
    for descriptor in (payload, results):
        os.set_inheritable(descriptor, True)
    module = trial_process.__name__
    command = [sys.executable, "-m", module, str(payload), str(results)]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    # TensorFlow leaves idle threads behind at import. That a fork is safe then is what
    # `why_not_fork` makes sure of; Python 3.12 and later warn at every fork.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    Zygote(int(sys.argv[1]), int(sys.argv[2])).run()
