"""What a process does before it runs code of the user: its end, signals, output and imports."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import os
import signal
import sys
import tempfile
from collections.abc import Mapping

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask the kernel to send this process a signal when the thread that forked it ends.

    Args:
        parent: The id of the parent process.
        number: The signal's number.
    """
    if _prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # the parent ended before the call
        os.kill(os.getpid(), number)


def default_signals() -> None:
    """Set the default handlers of the signals that may end a trial or that it may wait for."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def set_environment(variables: Mapping[str, str | None]) -> None:
    """Set environment variables of this process, or remove those that are None."""
    for name, value in variables.items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
    if "TMPDIR" in variables:
        tempfile.tempdir = None  # it was read before


def print_lines() -> None:
    """Make output line-buffered, so that a killed trial leaves what it printed.

    Call it before a fork: after it, Python takes the child's pipes for its parent's files, and
    fails to get the position in them.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, encoding="utf-8", errors="backslashreplace")


def import_modules(names: tuple[str, ...]) -> None:
    """Import modules; those that are not installed are skipped."""
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name + ".").startswith(error.name + "."):
                raise


def import_guessed(names: tuple[str, ...]) -> None:
    """Import modules whose errors are ignored: a trial that needs one shows them."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def signal_name(number: int) -> str:
    """Return the name of a signal; 'unknown' for one without a name, such as a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
