"""Warnings that name the line which called us, also where another thread gives them."""

from __future__ import annotations

import contextlib
import contextvars
import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

_PASSED_OVER = {"experiment", "search", "spark_jobs", *sys.stdlib_module_names}


class Line(NamedTuple):
    """A line of the user's.

    Attributes:
        file: Its file, or what a notebook calls a cell.
        number: From 1.
        module: Of the line.
        told: What Python has warned of there; its own dict, kept in the module.
    """

    file: str
    number: int
    module: str
    told: dict[Any, Any]


_started_at: contextvars.ContextVar[Line | None] = contextvars.ContextVar(
    "experiment_started_at", default=None
)


def users_line() -> Line | None:
    """Return the innermost line that is neither ours nor of Python's own library.

    In a thread, which has none, it is that of `started_at`.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        module = frame.f_globals.get("__name__") or "?"
        if module.partition(".")[0] not in _PASSED_OVER:
            told = frame.f_globals.setdefault("__warningregistry__", {})
            return Line(
                file=frame.f_code.co_filename, number=frame.f_lineno, module=module, told=told
            )
        frame = frame.f_back
    return _started_at.get()


@contextlib.contextmanager
def started_at(line: Line | None) -> Iterator[None]:
    """Let a search that a thread runs inside the block warn at a line of another thread."""
    token = _started_at.set(line)
    try:
        yield
    finally:
        _started_at.reset(token)


def warn_at(line: Line | None, message: str) -> None:
    """Warn the user of something, at a line of his; where there is none, at ours."""
    if line is None:
        warnings.warn(message, UserWarning, stacklevel=2)
    else:
        warnings.warn_explicit(
            message,
            UserWarning,
            filename=line.file,
            lineno=line.number,
            module=line.module,
            registry=line.told,
        )


def warn_user(message: str) -> None:
    """Warn the user of something, at the line that called us."""
    warn_at(users_line(), message)


def note(message: str) -> None:
    """Warn of what must not cost the result of a search, also where warnings are errors."""
    with contextlib.suppress(UserWarning):
        warn_user(message)
