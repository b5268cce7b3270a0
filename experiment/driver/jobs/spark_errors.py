"""Spark's errors in words. Light: each public name of `experiment` needs it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence

from spark_jobs.slot.problems import PROBLEM


def problem_of_spark(error: BaseException | None, hosts: Sequence[str]) -> str | None:
    """Return in one sentence why slots could not start at all; None for any other error.

    Args:
        error: The error that Spark raised for the slot job, or None.
        hosts: The hosts on which its tasks failed.
    """
    if error is None:
        return None
    text = str(error)
    host = f"host {hosts[0]}" if hosts else "an executor"
    if match := re.search(rf"RuntimeError: {PROBLEM}(.+)", text):
        return match[1] if match[1].startswith("host ") else f"{host}, {match[1]}"
    if match := re.search(r"ModuleNotFoundError: No module named '([^']+)'", text):
        return (
            f"{host}: Python on the executor has no module named {match[1]!r}; set PYSPARK_PYTHON "
            "to a Python that has this package and its dependencies on every executor"
        )
    mismatch = r"PYTHON_VERSION_MISMATCH\][^:]*: (\S+) than that in driver: (\S+?),"
    if match := re.search(mismatch, text):
        return (
            f"{host}: the executor has Python {match[1]}, the driver {match[2]}; set "
            "PYSPARK_PYTHON to the driver's version on every executor"
        )
    if match := re.search(r'Cannot run program "([^"]+)"', text):
        return f"{host}: the executor has no Python at {match[1]!r}; set PYSPARK_PYTHON to one"
    return None


def in_words(error: BaseException | None) -> str:
    """Return the error of a job as Python shows it, without its traceback."""
    text = "".join(traceback.format_exception_only(error)).strip() if error else "no error"
    return text[:4_000]
