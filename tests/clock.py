"""Processes whose clock is off, by libfaketime."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import libfaketime

_LIBRARY = Path(libfaketime.__file__).parent / "vendor/libfaketime/src/libfaketime.so.1"


def clock_off_by(days: float) -> dict[str, str]:
    """Return the environment of a process whose clock is ahead by some days, or behind."""
    return {
        "LD_PRELOAD": str(_LIBRARY),
        "FAKETIME": f"{days:+}d",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # it does not follow a clock that is set
    }


def python_with_clock_off_by(days: float, folder: Path) -> str:
    """Return an interpreter, made in a folder, with such a clock; its children have it too."""
    settings = " ".join(f"{name}={value}" for name, value in clock_off_by(days).items())
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec env {settings} {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


def environment(days: float) -> dict[str, str]:
    """Return this process's environment, with such a clock."""
    return {**os.environ, **clock_off_by(days)}
