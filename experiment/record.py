"""The folder of a run: made when a search starts, summed up when it ends."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import platform
import re
import secrets
from pathlib import Path
from typing import Any

import msgspec

from experiment.result import Result
from search.trial import Outcome
from search.values import to_json
from spark_jobs.paths import RunPaths
from spark_jobs.protocol import outcome_to_json
from spark_jobs.storage import make_folder, write_whole

FORMAT = 1
"""Version of the layout and of the journal's records."""

_PACKAGES = ("pyspark", "tensorflow", "tensorflow-cpu", "keras", "tensorboard", "deap", "numpy")


def make_run_folder(logdir: Path, name: str) -> RunPaths:
    """Make `<logdir>/<name>-<UTC time>-<hex>` and return its files.

    Args:
        logdir: The folder of all runs.
        name: A label; what may not be in a file name becomes "-".
    """
    label = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40] or "search"
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    paths = RunPaths(logdir / f"{label}-{now}-{secrets.token_hex(4)}")
    make_folder(paths.root)
    make_folder(paths.trials)
    return paths


def write_manifest(paths: RunPaths, function: bytes, facts: dict[str, Any]) -> None:
    """Write what the run is.

    Args:
        paths: Of the run.
        function: The pickled train function; its hash is kept.
        facts: What the search says of itself, as JSON.
    """
    manifest = {
        "format": FORMAT,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **facts,
        "function": hashlib.sha256(function).hexdigest(),
        "versions": _versions(),
    }
    _write_json(paths.manifest, manifest)


def write_result(paths: RunPaths, result: Result, problem: str | None) -> None:
    """Write the best trial and the summary.

    Args:
        paths: Of the run.
        result: Of the search.
        problem: Why it ended early, or None.
    """
    best = result.best
    summary: dict[str, Any] = {
        "format": FORMAT,
        "direction": result.direction,
        "trials": len(result.trials),
        "failed": len(result.failed),
        "problem": problem and problem.encode("utf-8", "backslashreplace").decode(),
        "best": None,
    }
    if best is not None:
        outcome = Outcome(best.id, best.status, best.value, None, best.metrics, None, best.seconds)
        params = {name: to_json(value) for name, value in best.params.items()}
        summary["best"] = outcome_to_json(outcome) | {"params": params}
    _write_json(paths.result, summary)


def _write_json(path: Path, value: Any) -> None:
    write_whole(path, msgspec.json.format(msgspec.json.encode(value), indent=2))


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
