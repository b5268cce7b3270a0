"""The folder of a run: made when a search starts, summed up when it ends.

`experiment.loading` reads what is written here.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import re
import secrets
from pathlib import Path
from typing import Any, Literal

import msgspec

from experiment.result import Result
from search.trial import Outcome
from search.values import to_json
from spark_jobs.paths import RunPaths
from spark_jobs.protocol import outcome_to_json
from spark_jobs.storage import write_whole

FORMAT = 1
"""Version of the layout and of the journal's records."""

_PACKAGES = ("pyspark", "tensorflow", "tensorflow-cpu", "keras", "tensorboard", "deap", "numpy")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that matter."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def now() -> str:
    """Return the time as a manifest has it, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is, as `manifest.json`.

    Attributes:
        name: The label of the run.
        description: A longer text of the user.
        call: The public function.
        train: What the train function is called.
        function: SHA-256 of the train function's source; pickled, where there is none.
        algorithm: What makes the trials: its type and arguments.
        space: The space as JSON; None for explicit points.
        constraint: SHA-256 of the source of the space's constraint, of its name, where there is no
            source; None without one.
        trials: How many there are in all.
        known: How many trials of other runs it has learnt from.
        direction: 'max' or 'min'.
        optimization_key: As the user gave it.
        seed: That the searcher was made with.
        isolation: 'process', 'spawn' or 'none'.
        timeout: Seconds per trial, or None.
        stopping: The stopping rules, each its type and arguments.
        application: Spark's name of the application.
        master: Spark's master.
        created: When, in UTC.
        versions: Of Python and the packages that matter.
        format: Version of the layout and of the journal's records.
    """

    name: str
    description: str
    call: str
    train: str
    function: str
    algorithm: dict[str, Any]
    space: dict[str, Any] | None
    trials: int
    known: int = 0
    direction: Literal["max", "min"]
    optimization_key: str | None
    seed: int
    isolation: str
    timeout: float | None
    constraint: str | None = None
    stopping: list[dict[str, Any]] = []
    application: str
    master: str
    created: str
    versions: dict[str, str]
    format: int = FORMAT


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended, as `result.json`.

    Attributes:
        direction: 'max' or 'min'.
        trials: How many came to an end.
        failed: How many of them failed.
        problem: Why the search ended early, or None.
        target: The value of the objective that was to end the search, or None.
        best: The best trial's outcome with its hyperparameters, or None.
        format: As in the manifest.
    """

    direction: Literal["max", "min"]
    trials: int
    failed: int
    problem: str | None
    target: float | None = None
    best: dict[str, Any] | None
    format: int = FORMAT


def folder_name(name: str) -> str:
    """Return `<name>-<UTC time>-<hex>`, how no other run's folder is called.

    Args:
        name: A label; what may not be in a file name becomes "-".
    """
    label = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40] or "search"
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{label}-{now}-{secrets.token_hex(4)}"


def write_manifest(paths: RunPaths, manifest: Manifest) -> None:
    """Write what the run is."""
    _write_json(paths.manifest, manifest)


def write_result(paths: RunPaths, result: Result) -> None:
    """Write the best trial and the summary."""
    best, problem = result.best, result.problem
    data = None
    if best is not None:
        outcome = Outcome(
            best.id,
            best.status,
            best.value,
            metrics=best.metrics,
            seconds=best.seconds,
            reason=best.reason,
        )
        params = {name: to_json(value) for name, value in best.params.items()}
        data = outcome_to_json(outcome) | {"params": params}
    summary = Summary(
        direction="max" if result.direction == "max" else "min",
        trials=len(result.trials),
        failed=len(result.failed),
        problem=problem and problem.encode("utf-8", "backslashreplace").decode(),
        target=result.target,
        best=data,
    )
    _write_json(paths.result, summary)


def _write_json(path: Path, value: Any) -> None:
    write_whole(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
