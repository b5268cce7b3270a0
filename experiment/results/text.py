"""How values, times and text of the user are written for people."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from search.errors import shown

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def printable(text: str, keep: str = "") -> str:
    """Return text without anything that moves a cursor, hides or reorders what is around it.

    Args:
        text: Of a user, or printed by a trial.
        keep: Characters that stay although they are not printable, such as line ends.

    Colours are left out; any other such character becomes a question mark.
    """
    text = _COLOUR.sub("", text)
    return "".join(c if c.isprintable() or c in keep else "?" for c in text)


def number(value: float) -> str:
    """Return a score or a metric with six digits."""
    return f"{value:.6g}"


def hyperparameter(value: Any, limit: int = 60) -> str:
    """Return a hyperparameter's value, floats with six digits and all else as Python writes it."""
    if isinstance(value, float):
        return number(value)
    return printable(value[:limit] if isinstance(value, str) else shown(value, limit))


def hyperparameters(params: Mapping[str, Any]) -> str:
    """Return hyperparameters in a line: "learning_rate=0.01, dropout=0.5"."""
    return ", ".join(f"{printable(name)}={hyperparameter(v)}" for name, v in params.items())


def duration(seconds: float) -> str:
    """Return a time as people say it: "0.8 s", "12 s", "1 min 20 s", "3 h 5 min"."""
    if 0 < seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def command(name: str, folder: str) -> str:
    """Return a command line of ours for a run, to be copied into a shell."""
    known = shutil.which("python") == sys.executable
    python = "python" if known else shlex.quote(sys.executable)
    return f"{python} -m experiment {name} {shlex.quote(folder)}"


def how_to_resume(folder: str) -> str:
    """Return the argument, to be pasted, with which a search goes on with a run."""
    return f"resume={folder!r} goes on with it"


def count(amount: int, noun: str) -> str:
    """Return an amount with its noun: "1 slot", "4 slots"."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"
