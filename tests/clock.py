"""Processes with a wrong clock, by libfaketime."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import libfaketime

_LIBRARY = Path(libfaketime.__file__).parent / "vendor/libfaketime/src/libfaketime.so.1"


def clock_off_by(days: float) -> dict[str, str]:
    """Return the environment of a process whose clock is some days ahead or behind."""
    return {
        "LD_PRELOAD": str(_LIBRARY),
        "FAKETIME": f"{days:+}d",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # the real one does not change when a clock is set
    }


def python_with_clock_off_by(days: float, folder: Path) -> str:
    """Create an interpreter with such a clock, also for its children, in a folder; return it."""
    settings = " ".join(f"{name}={value}" for name, value in clock_off_by(days).items())
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec env {settings} {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


def environment(days: float) -> dict[str, str]:
    """Return this process's environment, with such a clock."""
    return {**os.environ, **clock_off_by(days)}
