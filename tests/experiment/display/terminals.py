"""Programs that run in a pseudo terminal."""

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import textwrap

import pyte

from tests.experiment.display.searches import HARMLESS, HOSTILE

RICH_SETTINGS = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM")
PROGRAM = """
import sys
import threading
from experiment.display.progress import Progress
from experiment.display.views import TerminalView, choose_view
from experiment.results.result import Result
from experiment.results.trial_result import TrialResult
from experiment.results.status import Status
from search.direction import Direction
from search.trial import Failure

HOSTILE, HARMLESS = {HOSTILE!r}, {HARMLESS!r}
sys.executable = "/usr/bin/python3"  # shown; the checkout's may be longer than a line
now = 0.0

def clock():
    global now
    now += 1.0
    return now

def finished(number, value=0.5, params=None):
    return TrialResult(
        id=number, params=params or {{}}, value=value, metrics={{}}, status="finished",
        error=None, seconds=1.0, logdir="",
    )

def failed(number, message):
    return TrialResult(
        id=number, params={{}}, value=None, metrics={{}}, status="failed",
        error=Failure(kind="exit", message=message), seconds=1.0, logdir="",
    )

def start(name="train", verbose=1):
    progress = Progress(name, verbose=verbose, clock=clock)
    progress.asked = "1 slot"
    progress.announce("/runs")
    return progress

def state(results, total=5, objective="accuracy"):
    best = Direction.MAX.best(results, lambda result: result.value)
    return Status(
        total=total, results=results, ended=len(results), slots=1, best=best, objective=objective
    )

def close(progress, status):
    progress.close(status, Result(status.results, Direction.MAX, "/runs"))
"""


@contextlib.contextmanager
def terminal(columns=80, lines=40):
    """Yield both ends of a pseudo terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    try:
        yield master, slave
    finally:
        os.close(slave)
        with contextlib.suppress(OSError):
            os.close(master)


def in_terminal(program, *, columns=80, stdout=None, term="xterm-256color"):
    """Run a program in a pseudo terminal; return the screen's text and the raw output."""
    program = PROGRAM.format(HOSTILE=HOSTILE, HARMLESS=HARMLESS) + textwrap.dedent(program)
    names = [name for name in os.environ if name not in RICH_SETTINGS]
    environment = {name: os.environ[name] for name in names} | {"TERM": term}
    with terminal(columns) as (master, slave):
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=slave,
            stdout=stdout or slave,
            stderr=slave,
            env=environment,
        )
        raw = b""
        while process.poll() is None or readable(master):
            if readable(master):
                raw += os.read(master, 1 << 16)
        assert process.returncode == 0, raw.decode(errors="replace")
    screen = pyte.Screen(columns, 40)
    pyte.ByteStream(screen).feed(raw)
    return [line.rstrip() for line in screen.display if line.strip()], raw


def readable(descriptor):
    return bool(select.select([descriptor], [], [], 0.1)[0])
