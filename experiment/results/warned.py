"""Warnings that name the user's line, also when another thread gives them."""

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
    """A line of the user's code.

    Attributes:
        file: The file, or a notebook's name of the cell.
        number: The line number, from 1.
        module: The name of the module.
        registry: The module's registry of warnings that Python has shown.
    """

    file: str
    number: int
    module: str
    registry: dict[Any, Any]


_started_at: contextvars.ContextVar[Line | None] = contextvars.ContextVar(
    "experiment_started_at", default=None
)


def users_line() -> Line | None:
    """Return the innermost line outside this framework and Python's standard library.

    In a thread without such a line, the line given to `started_at`.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        module = frame.f_globals.get("__name__") or "?"
        if module.partition(".")[0] not in _PASSED_OVER:
            return Line(
                file=frame.f_code.co_filename,
                number=frame.f_lineno,
                module=module,
                registry=frame.f_globals.setdefault("__warningregistry__", {}),
            )
        frame = frame.f_back
    return _started_at.get()


@contextlib.contextmanager
def started_at(line: Line | None) -> Iterator[None]:
    """Make warnings in this context name a line of another thread."""
    token = _started_at.set(line)
    try:
        yield
    finally:
        _started_at.reset(token)


def warn_at(line: Line | None, message: str) -> None:
    """Warn the user at a line of the user's code; at our own if it is None."""
    if line is None:
        warnings.warn(message, UserWarning, stacklevel=2)
    else:
        warnings.warn_explicit(
            message,
            UserWarning,
            filename=line.file,
            lineno=line.number,
            module=line.module,
            registry=line.registry,
        )


def warn_user(message: str) -> None:
    """Warn the user at the line that called us."""
    warn_at(users_line(), message)


def note_at(line: Line | None, message: str) -> None:
    """Warn the user at a line without ending the search, even if warnings are errors."""
    with contextlib.suppress(UserWarning):
        warn_at(line, message)


def note(message: str) -> None:
    """Warn the user at the line that called us; otherwise as `note_at`."""
    note_at(users_line(), message)
