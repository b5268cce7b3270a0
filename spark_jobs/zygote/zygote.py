"""The process that forks trials: `python -m spark_jobs.zygote.zygote CONTROL LIFELINE`.

It imports the preloaded modules once, or is a fork of an importer (`spark_jobs.zygote.importer`)
that has. It runs no op of TensorFlow, so a forked child starts in milliseconds with all of them
imported; after an op every child would hang. It supervises one trial at a time: as a subreaper it
inherits all processes of the trial, and ends them when the trial ends, at the time limit, or when
the slot is gone (its end of the lifeline pipe closes, however it died). While a trial runs it sends
a sign of life every few seconds, since a trial may stop this process.

Single-threaded on purpose: the kernel's death signal follows the thread that forked. gRPC is never
imported here, it does not survive a fork.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import select
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import msgspec

from search.trial import Outcome
from spark_jobs import time_limits
from spark_jobs.messages import LARGEST_MESSAGE, ProtocolError, Report, decode, encode
from spark_jobs.processes import (
    default_signals,
    die_with_parent,
    import_guessed,
    print_lines,
    set_environment,
)
from spark_jobs.run_folder.paths import AttemptPaths
from spark_jobs.trial import gang_connections, trial_process
from spark_jobs.trial.memory import out_of_memory
from spark_jobs.trial.pipe.frames import FrameReader, write_frame
from spark_jobs.trial.pipe.link import EndTrial, StopTrial
from spark_jobs.trial.trial_process import Program, Task, become_trial, run_child
from spark_jobs.warm.processes import become_subreaper
from spark_jobs.zygote.bounded_log import BoundedLog
from spark_jobs.zygote.child import Child
from spark_jobs.zygote.descendants import end_descendants, has_crashed
from spark_jobs.zygote.messages import (
    Alive,
    Broken,
    Ended,
    FromZygote,
    Ready,
    Reported,
    Started,
    ToZygote,
)
from spark_jobs.zygote.preparing import import_for_trials
from spark_jobs.zygote.shared_import import search_path

_PIPE = 1 << 18  # bytes of a trial's output that may be unread


class Zygote:
    """Serves one slot.

    Args:
        control: The socket to the slot.
        lifeline: A pipe whose other end only the slot holds.
        has_imported: Whether this process has called `import_for_trials`, and can fork.
    """

    def __init__(self, control: int, lifeline: int, *, has_imported: bool = False) -> None:
        self._control = control
        self._lifeline = lifeline
        self._has_imported = has_imported
        self._reader = FrameReader(control)
        self._program = Program(function=b"", key=None, direction="max")
        self._oom_kills: Path | None = None
        # What this process' variables were before the last trial; None for none.
        self._replaced: dict[str, str | None] = {}

    def run(self) -> None:
        """Serve until the slot is gone."""
        become_subreaper()
        # A stopped process would not notice that the slot is gone.
        die_with_parent(os.getppid(), signal.SIGCONT)
        print_lines()
        self._program = msgspec.json.decode(self._read(), type=Program)
        reason = self._prepare()
        # Here rather than in each child, which would copy the pages of memory that it takes.
        default_signals()
        self._oom_kills = out_of_memory.oom_kills_file()
        self._send(Ready(self._program.start_method, reason))
        while True:
            message: ToZygote = decode(self._read(), ToZygote, largest=None)  # type: ignore[arg-type]
            if isinstance(message, Task):  # else a request to a trial that has ended
                self._run_trial(message)

    def _prepare(self) -> str:
        """Import what trials need; return why the start method had to be changed, or ''."""
        if self._program.start_method != "fork" or self._has_imported:
            return ""
        try:
            reason = import_for_trials(self._program.preload, self._program.guessed)
        except Exception as error:
            self._send(Broken(f"preload: {type(error).__name__}: {error}"))
            sys.exit(1)
        if reason:
            self._program = msgspec.structs.replace(self._program, start_method="spawn")
        return reason

    def _read(self) -> bytes:
        """Return the next message of the slot, or end with it."""
        while (message := self._reader.take()) is None:
            ready, _, _ = select.select([self._control, self._lifeline], [], [])
            if self._lifeline in ready or not self._reader.fill():
                sys.exit(0)
        return message

    def _send(self, message: FromZygote) -> None:
        with contextlib.suppress(ConnectionError):  # the slot is gone, which reading shows
            write_frame(self._control, encode(message))

    def _run_trial(self, task: Task) -> None:
        kills = out_of_memory.oom_kills(self._oom_kills)
        child = self._start(task)
        self._send(Started(child.pid))
        overdue = self._watch(child, task)
        # Before it is reaped: after that its limits cannot be read.
        room = out_of_memory.limits(child.pid) if has_crashed(child.pid) else ""
        limited = out_of_memory.is_limited(child.pid)
        _, status = os.waitpid(child.pid, 0)
        seconds = time.monotonic() - child.started
        end_descendants()
        child.read(self._report)  # all that the pipe holds: its writers have ended
        child.close()
        outcome = _written(task.attempt.trial.id, child.outcome, seconds)
        code = os.waitstatus_to_exitcode(status)
        complaints = AttemptPaths(Path(task.folder)).stderr
        if room and not out_of_memory.ended_by_memory(
            code,
            complaints,
            kills=out_of_memory.oom_kills(self._oom_kills) - kills,
            limited=limited,
        ):
            room = ""
        ended = Ended(
            exit=code,
            overdue=overdue,
            seconds=seconds,
            outcome=outcome,
            stopped=child.stopped,
            memory=room,
            end_request=child.end_request,
        )
        self._send(ended)

    def _report(self, report: Report) -> None:
        self._send(Reported(report))

    def _start(self, task: Task) -> Child:
        results, writing = os.pipe()
        reading, commands = os.pipe()
        out, print_out = os.pipe()
        err, print_err = os.pipe()
        paths = AttemptPaths(Path(task.folder))
        logs = {out: BoundedLog(paths.stdout), err: BoundedLog(paths.stderr)}
        set_environment(self._replaced)
        self._replaced = {name: os.environ.get(name) for name in task.environment}
        set_environment(task.environment)
        if task.attempt.gang is not None and self._program.start_method == "fork":
            import_guessed(gang_connections.NEEDED)  # once here, instead of in each trial
        started = time.monotonic()
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                for descriptor in (results, commands, out, err, self._control, self._lifeline):
                    os.close(descriptor)
                become_trial(supervisor, (print_out, print_err))
                if self._program.start_method == "spawn":
                    _become_fresh_interpreter(self._program, task, writing, reading)
                run_child(self._program, task, writing, reading)
            except BaseException:
                traceback.print_exc()  # into the trial's log, if it got that far
            finally:
                os._exit(1)
        for descriptor in (writing, reading, print_out, print_err):
            os.close(descriptor)
        for descriptor in (results, commands, out, err):
            os.set_blocking(descriptor, False)
        for descriptor in (out, err):
            with contextlib.suppress(OSError):  # the user has many large pipes
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE)
        return Child(
            pid=pid,
            pidfd=os.pidfd_open(pid),
            results=results,
            commands=commands,
            reader=FrameReader(results, LARGEST_MESSAGE),
            logs=logs,
            started=started,
        )

    def _watch(self, child: Child, task: Task) -> bool:
        """Wait for the end of the child's process; return whether it had to be ended."""
        overdue, killed, beat = False, math.inf, time.monotonic() + time_limits.ZYGOTE_BEAT
        poll = select.poll()
        for descriptor in (self._lifeline, self._control, child.results, child.pidfd, *child.logs):
            poll.register(descriptor, select.POLLIN)
        while True:
            for message in self._reader.take_all():
                if not overdue:
                    _pass_on(message, child)
            deadline = killed if overdue else child.deadline(task.timeout)
            now = time.monotonic()
            if now >= beat:
                self._send(Alive())
                beat = now + time_limits.ZYGOTE_BEAT
            left = max(0.0, min(deadline, beat) - now)
            ready = {descriptor for descriptor, _ in poll.poll(left * 1000)}
            if self._lifeline in ready or (self._control in ready and not self._reader.fill()):
                child.signal(signal.SIGKILL)  # the slot is gone
                end_descendants()
                sys.exit(0)
            if child.results in ready and not child.read(self._report):
                poll.unregister(child.results)
            for descriptor in ready & child.logs.keys():
                if not child.read_log(descriptor):
                    poll.unregister(descriptor)
            if child.pidfd in ready:
                return overdue
            if time.monotonic() >= deadline:
                child.signal(signal.SIGKILL if overdue else signal.SIGTERM)
                overdue, killed = True, time.monotonic() + task.grace


def _pass_on(message: bytes, child: Child) -> None:
    """Pass a request of the slot to the child."""
    request: StopTrial | EndTrial = decode(message, StopTrial | EndTrial)  # type: ignore[arg-type]
    match request:
        case StopTrial(reason=reason):
            child.stop(reason)
        case EndTrial(reason=reason):
            child.end_request = reason


def _written(trial: int, data: bytes, seconds: float) -> Outcome | None:
    """Return the outcome that a trial's process wrote, if it wrote one."""
    if not data:
        return None
    try:
        outcome = decode(data, Outcome)
    except ProtocolError:  # user code may write to any descriptor
        message = "the trial's process wrote an invalid outcome"
        return Outcome.failed(trial, "invalid value", message, seconds=seconds)
    return outcome if outcome.trial == trial else None


def _become_fresh_interpreter(program: Program, task: Task, results: int, commands: int) -> None:
    payload = os.memfd_create("experiment-trial")
    with os.fdopen(os.dup(payload), "wb") as file:
        file.write(msgspec.msgpack.encode((encode(program), encode(task))))
    os.lseek(payload, 0, os.SEEK_SET)
    descriptors = (payload, results, commands)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, True)
    command = [sys.executable, "-m", trial_process.__name__, *map(str, descriptors)]
    # `main` there sets the trial's own PYTHONPATH, with which it might not find this package.
    os.execve(sys.executable, command, os.environ | {"PYTHONPATH": search_path()})


if __name__ == "__main__":
    # TensorFlow leaves idle threads at import. `why_not_fork` makes sure that a fork is safe, but
    # Python 3.12 and later warn at every fork.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    Zygote(int(sys.argv[1]), int(sys.argv[2])).run()
