"""Functions that the tests of the executor let run; without heavy imports, since calls load it."""

from __future__ import annotations

import os
import time
from pathlib import Path


def wait_for(path: Path, value: object = None) -> object:
    """Return the value once a file is there."""
    while not path.exists():
        time.sleep(0.02)
    return value


def hang_in(folder: Path) -> None:
    """Write the process id down, as `processes_in` reads it, and wait without an end."""
    (folder / f"pid-{os.getpid()}").touch()
    while True:
        time.sleep(0.02)


def call_with(*args: object, **kwargs: object) -> tuple[object, ...]:
    """Return the arguments."""
    return args, kwargs


def fail(message: str) -> None:
    """Raise a ValueError."""
    raise ValueError(message)


class OwnError(ValueError):
    """An exception that only its module knows."""


def fail_in_its_own_way() -> None:
    """Raise it, with what would move a terminal's cursor."""
    raise OwnError("a\x1b[2Jb")
