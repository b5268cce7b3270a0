"""Findings that need no slot: authentication, hosts without executors, the function's size."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from experiment.diagnosis.assessment import size
from experiment.diagnosis.diagnosis import DRIVER, Finding
from experiment.setup.function.imports import imports_of
from experiment.setup.function.train_function import sizes_of_variables
from search.errors import prefixed
from spark_jobs.cluster.exposure import AUTHENTICATION
from spark_jobs.cluster.standalone_pages import FailingHost
from spark_jobs.session.session import Session

_LARGE_FUNCTION = 10 << 20  # bytes
_LEAST_SHOWN = 1 << 10  # bytes of a variable


def cannot_start(host: FailingHost) -> Finding:
    """Return the finding about a host on which executors end at once."""
    return Finding(
        check="slots",
        host=host.host,
        level="red",
        got=f"no executor starts there: {host.ended} have ended",
        expected="one that keeps running",
        advice=f"see the log of the last one: {host.log}",
    )


def authentication(session: Session) -> Finding:
    """Return the finding about the authentication of Spark's own ports."""
    finding = functools.partial(Finding, check="authentication", host=DRIVER)
    if exposure := session.exposure:
        off = f"off: {', '.join(exposure.off)}: {exposure.danger}"
        return finding(level="warning", got=off, advice=exposure.remedy)
    return finding(level="ok", got=f"{AUTHENTICATION} is on")


def size_of_function(train: Callable[..., Any], amount: int, names: list[str]) -> Finding:
    """Return the finding about the size of a pickled train function."""
    largest = [
        (name, taken) for name, taken in sizes_of_variables(train).items() if taken > _LEAST_SHOWN
    ][:3]
    got = f"{size(amount)} sent to each slot"
    if largest:
        got += ", of it " + ", ".join(f"{name!r} {size(taken)}" for name, taken in largest)
    finding = functools.partial(Finding, check="train", host=DRIVER)
    if amount > _LARGE_FUNCTION:
        named = f"make {largest[0][0]!r}" if largest else "make what it refers to"
        advice = f"{named} inside the train function, or read it there with experiment.data"
        return finding(
            level="warning", got=got, expected=f"less than {size(_LARGE_FUNCTION)}", advice=advice
        )
    needs = f"; the search must give it {', '.join(names)}" if names else ""
    preload = prefixed("; preloads ", ", ".join(imports_of(train)))
    return finding(level="ok", got=got + preload + needs)
