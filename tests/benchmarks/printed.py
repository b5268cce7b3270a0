"""Runs that a benchmark printed, a line of JSON each, to be joined with later ones."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def printed(file: Path, run: Callable[..., T]) -> Iterator[T]:
    """Yield the runs of a file that has the output of a benchmark, of an ended one or not.

    Lines that are no whole run are left out: those of make, and one that was cut off.

    Args:
        file: The file.
        run: Makes a run of the attributes that were printed.
    """
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("{"):
                with contextlib.suppress(json.JSONDecodeError):
                    yield run(**json.loads(line))
