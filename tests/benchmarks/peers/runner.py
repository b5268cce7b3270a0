"""Runs tasks of peers in rounds, each run in processes of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.benchmarks.peers.environments import EnvironmentFailed, last_line, python_of
from tests.benchmarks.peers.measured import HUNG
from tests.benchmarks.peers.roster import Entry
from tests.benchmarks.peers.tasks import Task

_SLACK = 30.0  # seconds for `measured` to end processes after the limit


@dataclasses.dataclass(frozen=True)
class Run:
    """What one run came to.

    Attributes:
        peer: The name of the peer's entry.
        task: The name of the task.
        measured: What its program measured; None without.
        error: Why it measured nothing, or did not end; empty without an error.
        done: In a task with a fault, the number of other trials that finished.
    """

    peer: str
    task: str
    measured: Mapping[str, Any] | None
    error: str = ""
    done: int | None = None


Pythons = Mapping[str | None, Path | str]
"""The Python of each environment; in its place a text if the environment cannot be made."""


def pythons(entries: Iterable[Entry], python: Callable[[str | None], Path] = python_of) -> Pythons:
    """Make the environments of peers."""
    return {name: _made(name, python) for name in {entry.environment for entry in entries}}


def one_round(
    entries: Sequence[Entry], tasks: Iterable[Task], number: int, found: Pythons, *, quick: bool
) -> Iterator[Run]:
    """Run each task of each entry, and yield each run when it has ended.

    Args:
        entries: The peers. In each round another one begins.
        tasks: What they do.
        number: The number of the round, from 0.
        found: Their Pythons.
        quick: Whether to use the settings of quick runs.
    """
    for task in tasks:
        for entry in _rotated(entries, number):
            if task.name not in entry.without:
                yield _run(entry, task, found[entry.environment], quick)


def _rotated(entries: Sequence[Entry], number: int) -> Iterable[Entry]:
    first = number % len(entries)
    return [*entries[first:], *entries[:first]]


def _made(environment: str | None, python: Callable[[str | None], Path]) -> Path | str:
    """Return an environment's Python, or why there is none."""
    try:
        return python(environment)
    except EnvironmentFailed as error:
        return str(error)


def _run(entry: Entry, task: Task, python: Path | str, quick: bool) -> Run:
    if isinstance(python, str):
        return Run(entry.name, task.name, None, python)
    with tempfile.TemporaryDirectory(prefix="peers-") as name:
        folder = Path(name)
        (folder / "done").mkdir()
        settings = {
            **task.chosen(quick),
            "kind": task.kind,
            "program": entry.program,
            "options": entry.options,
            "folder": name,
            "done": str(folder / "done"),
        }
        measured, error = _measure(python, settings, task.limit)
        if measured:
            measured = {key: measured[key] for key in measured if key not in entry.unknown}
        done = len(list((folder / "done").iterdir())) if task.kind == "fault" else None
    return Run(entry.name, task.name, measured, error, done)


def _measure(python: Path, settings: Mapping[str, Any], limit: float) -> tuple[Any, str]:
    """Return what a run's program printed, and its error."""
    wrapper = [sys.executable, "-m", "tests.benchmarks.peers.measured", str(limit)]
    program = [str(python), "-m", "tests.benchmarks.peers.program"]
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(
            [*wrapper, *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=settings["folder"],  # for what libraries write into the current folder
            env=_environment(python),
        )
        try:
            printed, _ = process.communicate(json.dumps(settings), timeout=limit + _SLACK)
        except BaseException:  # Ctrl-C, too: killed, it could not end what it started
            process.terminate()
            process.communicate(timeout=_SLACK)
            raise
        errors.seek(0)
        text = errors.read()
    measured = None
    with contextlib.suppress(json.JSONDecodeError):
        measured = json.loads(last_line(printed))
    if process.returncode == HUNG:
        return measured, "hung"
    if process.returncode or measured is None:
        return measured, last_line(text) or f"ended with status {process.returncode}"
    return measured, ""


def _environment(python: Path) -> dict[str, str]:
    """Return the environment variables of a run: ours, without those of our virtual environment."""
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")
    }
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # TensorFlow's import needs compiled files
    return {
        **variables,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(python.parent.parent),
        "PYTHONPATH": str(ROOT),  # processes that peers start import the train functions
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
    }
