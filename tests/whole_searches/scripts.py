"""Programs of users, each in a process of its own, as from a terminal."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def running(program: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program, whose argument is a folder; it is killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # its own process group, as in a terminal
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
