"""Warnings, at the line of the user that called us."""

from __future__ import annotations

import sys
import warnings

_OURS = ("experiment", "search", "spark_jobs")


def warn_user(message: str) -> None:
    """Show the user a sentence, with the line that called the framework."""
    level, frame = 1, sys._getframe()
    while (
        frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)  # at the line that called us
