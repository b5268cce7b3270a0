"""The folder of a run: made when a search starts, summed up when it ends.

`experiment.run_files.loading` reads what is written here.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import re
import secrets
from pathlib import Path
from typing import Any

import msgspec

from experiment.results.result import Result
from experiment.results.trial_result import TrialResult
from experiment.run_files.format import FORMAT
from search.direction import DirectionName
from search.trial import Outcome
from search.values import Params
from spark_jobs.messages import as_json, encode
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.local_files import write_whole

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
        slots: How many trials at once its searcher was made for; None where it does not matter.
        direction: 'max' or 'min', or several objectives' names to these.
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
    known: int
    slots: int | None
    direction: DirectionName | dict[str, DirectionName]
    optimization_key: str | None
    seed: int
    isolation: str
    timeout: float | None
    constraint: str | None
    stopping: list[dict[str, Any]]
    application: str
    master: str
    created: str
    versions: dict[str, str]
    format: int = FORMAT


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended, as `result.json`.

    Attributes:
        direction: As in the manifest.
        trials: How many came to an end.
        failed: How many of them failed.
        problem: Why the search ended early, or None.
        target: The value of the objective that was to end the search, or None.
        best: The best trial's outcome with its hyperparameters, or None.
        ended: When, in UTC.
        format: As in the manifest.
    """

    direction: DirectionName | dict[str, DirectionName]
    trials: int
    failed: int
    problem: str | None
    target: float | None
    best: dict[str, Any] | None
    ended: str
    format: int = FORMAT


class FrontSummary(Summary, frozen=True, kw_only=True):
    """How a run with several objectives ended; `best` is None.

    Attributes:
        front: The outcome of each trial that no other dominates, with its hyperparameters.
    """

    front: list[dict[str, Any]]


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
    """Write the best trial, or those on the front, and the summary."""
    front, problem = [_trial_to_json(trial) for trial in result.front], result.problem
    facts: dict[str, Any] = {
        "direction": result.direction,
        "trials": len(result.trials),
        "failed": len(result.failed),
        "problem": problem and problem.encode("utf-8", "backslashreplace").decode(),
        "target": result.target,
        "ended": now(),
    }
    if result.objectives:
        _write_json(paths.result, FrontSummary(**facts, best=None, front=front))
    else:
        _write_json(paths.result, Summary(**facts, best=next(iter(front), None)))


def _trial_to_json(trial: TrialResult) -> dict[str, Any]:
    outcome = Outcome(
        trial.id,
        trial.status,
        trial.value,
        metrics=trial.metrics,
        seconds=trial.seconds,
        reason=trial.reason,
        values=trial.values,
    )
    return {"params": Params(trial.params), **as_json(outcome)}


def _write_json(path: Path, value: Any) -> None:
    write_whole(path, msgspec.json.format(encode(value), indent=2) + b"\n")
