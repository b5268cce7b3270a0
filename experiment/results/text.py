"""Values, times and the user's text in the form shown to users."""

from __future__ import annotations

import math
import re
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any, Literal

from search.errors import shown

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def printable(text: str, keep: str = "") -> str:
    """Return text without characters that move a cursor, or hide or reorder other text.

    Colours are removed; each other such character becomes a question mark. Other spaces, as in
    French numbers and between Japanese words, become common ones.

    Args:
        text: Text of a user, or printed by a trial.
        keep: Characters to keep although they are not printable, such as line ends.
    """
    text = _COLOUR.sub("", text)
    return "".join(c if c.isprintable() or c in keep else _instead_of(c) for c in text)


def _instead_of(character: str) -> str:
    return " " if unicodedata.category(character) == "Zs" else "?"


def number(value: float) -> str:
    """Return a score or a metric with six digits."""
    return f"{value:.6g}"


def hyperparameter(value: Any, limit: int = 60) -> str:
    """Return a hyperparameter's value as text: floats with six digits, others as their repr.

    The middle of a long text is left out: names and paths differ at their ends more often.
    """
    if isinstance(value, float):
        return number(value)
    if not isinstance(value, str):
        return printable(shown(value, limit))
    if len(value) > limit:
        value = f"{value[: (limit - 3) // 2]}...{value[-((limit - 2) // 2) :]}"
    return printable(value)


def unambiguous(
    name: str, others: Collection[str], kind: Literal["metrics", "params"] = "params"
) -> str:
    """Return a user's name, with its kind before it if it may be taken for another.

    Args:
        name: The name of a hyperparameter or of a metric.
        others: Names shown in the same list, except those of the other kind.
        kind: 'metrics' or 'params', put before an ambiguous name.
    """
    is_clear = name not in others and not name.startswith(("metrics.", "params."))
    return name if is_clear else f"{kind}.{name}"


def hyperparameters(params: Mapping[str, Any]) -> str:
    """Return hyperparameters in a line: "learning_rate=0.01, dropout=0.5"."""
    return ", ".join(f"{printable(name)}={hyperparameter(v)}" for name, v in params.items())


def as_arguments(given: Mapping[str, Any]) -> str:
    """Return arguments as in a call, without the `type` of what is called."""
    return ", ".join(f"{name}={literal(value)}" for name, value in given.items() if name != "type")


def literal(value: Any) -> str:
    """Return an expression of Python; repr has none for infinity and NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {literal(v)}' for k, v in value.items())}}}"
    return repr(value)


def duration(seconds: float) -> str:
    """Return a duration as text: "0.8 s", "12 s", "1 min 20 s", "3 h 5 min"."""
    if 0 < seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def command(name: str, folder: str) -> str:
    """Return one of our command lines for a run, to copy into a shell."""
    known = shutil.which("python") == sys.executable
    python = "python" if known else shlex.quote(sys.executable)
    return f"{python} -m experiment {name} {shlex.quote(folder)}"


def how_to_resume(folder: str) -> str:
    """Return the argument that resumes a run, to copy into a call."""
    return f"resume={folder!r} continues it"


def count(amount: int, noun: str) -> str:
    """Return an amount with its noun: "1 slot", "4 slots"."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"
