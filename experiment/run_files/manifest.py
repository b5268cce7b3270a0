"""The manifest and the summary of a run, written when its search starts and when it ends.

`experiment.run_files.loading` reads them.
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
from experiment.version import __version__
from search.direction import DirectionName
from search.trial import Outcome
from search.values import Params, ParamsLike, as_unicode
from spark_jobs.messages import encode, prepare
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.local_files import write_whole

_PACKAGES = ("pyspark", "tensorflow", "tensorflow-cpu", "keras", "tensorboard", "deap", "numpy")

_TIME_IN_NAME = "%Y%m%dT%H%M%SZ"


def versions() -> dict[str, str]:
    """Return the versions of this package, of Python and of other packages that matter."""
    found = {"spark-tf-experiment": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            version: str | None = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        if version is not None:  # None: an interrupted pip left its folder without metadata
            found[package] = version
    return found


def now() -> str:
    """Return the time in UTC, in ISO 8601, as in a manifest."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a run, `manifest.json`.

    Attributes:
        name: The run's label.
        description: A longer text of the user.
        call: The name of the public function.
        train: The train function's name.
        function: SHA-256 of the train function's source; of its pickle if it has no source.
        algorithm: Type and arguments of the searcher or list of configurations.
        space: The search space as JSON; None for a list of points.
        constraint: SHA-256 of the source of the space's constraint; of its name if it has no
            source; None without a constraint.
        trials: Number of trials.
        exhausted: Why there are fewer trials than the search was asked for, in one sentence; None
            if there are not, or if that shows only when the space is nearly used up.
        known: Number of prior observations.
        slots: Number of parallel trials that the searcher was created for; None if it depends on
            none.
        workers_per_trial: Number of slots that run each trial together, or the least and the
            greatest number.
        strategy: Type and settings of their strategy; None without one.
        precision: The precision in which Keras computes; None as the train function leaves it.
        repeats: Number of calls of the train function in each trial.
        direction: 'max' or 'min', or a dict of these by the objectives' names.
        optimization_key: The user's argument.
        seed: The searcher's seed.
        seeds_trials: Whether it seeds the trials, too: the user gave it.
        isolation: 'process', 'spawn' or 'none'.
        preload: The modules that are imported once for all trials.
        timeout: Seconds per trial, or None.
        stopping: Type and arguments of each stopping rule.
        application: Spark's id of the application.
        master: Spark's master.
        created: The time of creation, in UTC.
        versions: Versions of this package, of Python and of other packages that matter.
        format: The format version, see `experiment.run_files.format.FORMAT`.
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
    exhausted: str | None = None
    preload: list[str] = []
    workers_per_trial: int | tuple[int, int] = 1
    strategy: dict[str, Any] | None = None
    precision: str | None = None
    repeats: int = 1
    seeds_trials: bool = False
    format: int = FORMAT

    def __post_init__(self) -> None:
        # ValueError for any other text, and for times that have no seconds since 1970.
        datetime.datetime.fromisoformat(self.created).timestamp()

    @property
    def arguments(self) -> dict[str, Any]:
        """`algorithm`, with the hyperparameters of its points as the search got them."""
        try:
            points = [dict(Params.from_json(point)) for point in self.algorithm["points"]]
        except (KeyError, TypeError, ValueError):  # none, or those of a user's algorithm
            return self.algorithm
        return self.algorithm | {"points": points}

    @property
    def of_calls(self) -> bool:
        """Whether its trials are calls of `experiment.executor`, of which none is the best."""
        return self.call == "executor"

    @property
    def trains_a_population(self) -> bool:
        """Whether it is population based training, also of each group of `search_each`."""
        searcher = self.algorithm.get("searcher")
        innermost = searcher if isinstance(searcher, dict) else self.algorithm
        return innermost.get("type") == "population based training"


class BestTrial(Outcome, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trial of the summary: its outcome, and its hyperparameters.

    Attributes:
        params: Hyperparameter name to value.
    """

    params: ParamsLike


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of a run that has ended, `result.json`.

    Attributes:
        direction: The manifest's direction.
        trials: Number of trials with an outcome.
        failed: Number of them that failed.
        problem: Why the search ended early, or None.
        target: The objective's value at which the search ends, or None.
        exhausted: Why it has fewer trials than it was asked for, or None.
        total: Number of trials of the search at its end; None in runs of earlier versions.
        best: The best trial, or None.
        ended: The time of the end, in UTC.
        format: The format version.
        front: With several objectives only, each trial on the front; `best` is None then.
    """

    direction: DirectionName | dict[str, DirectionName]
    trials: int
    failed: int
    problem: str | None
    target: float | None
    exhausted: str | None = None
    total: int | None = None
    best: BestTrial | None
    ended: str
    format: int = FORMAT
    front: list[BestTrial] | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        datetime.datetime.fromisoformat(self.ended).timestamp()  # see the manifest's
        if self.best is not None and self.best.value is None:
            raise ValueError("the best trial has no value")


prepare(Manifest, Summary)


def folder_name(name: str) -> str:
    """Return `<name>-<UTC time>-<hex>`, a unique name for a run folder.

    Args:
        name: A label; characters that are unsafe in file names become "-".
    """
    label = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40] or "search"
    now = datetime.datetime.now(datetime.UTC).strftime(_TIME_IN_NAME)
    return f"{label}-{now}-{secrets.token_hex(4)}"


def started_at(folder: str, otherwise: float) -> float:
    """Return when a run began, in seconds since 1970, from its folder's name: a copy has it, too.

    Args:
        folder: The name of its folder.
        otherwise: What to return if the folder was renamed.
    """
    found = re.search(r"-(\d{8}T\d{6}Z)-[0-9a-f]{8}$", folder)
    if found is None:
        return otherwise
    try:
        time = datetime.datetime.strptime(found[1], _TIME_IN_NAME)
    except ValueError:  # such as a month of 13
        return otherwise
    return time.replace(tzinfo=datetime.UTC).timestamp()


def write_manifest(paths: RunPaths, manifest: Manifest) -> None:
    """Write the manifest."""
    _write_json(paths.manifest, manifest)


def write_result(paths: RunPaths, result: Result) -> None:
    """Write the summary, with the best trial or the front."""
    front = [_best_trial(trial, result.objective) for trial in result.front]
    several, problem = bool(result.objectives), result.problem
    summary = Summary(
        direction=result.direction,
        trials=len(result.trials),
        failed=len(result.failed),
        problem=problem and as_unicode(problem),
        target=result.target,
        exhausted=result.exhausted,
        total=result.total,
        best=None if several else next(iter(front), None),
        ended=now(),
        front=front if several else msgspec.UNSET,
    )
    _write_json(paths.result, summary)


def _best_trial(trial: TrialResult, objective: str | None) -> BestTrial:
    return BestTrial(
        trial.id,
        trial.status,
        trial.value,
        objective,
        metrics=trial.metrics,
        seconds=trial.seconds,
        reason=trial.reason,
        values=trial.values,
        params=Params(trial.params),
    )


def _write_json(path: Path, value: Any) -> None:
    write_whole(path, msgspec.json.format(encode(value), indent=2) + b"\n", sync=True)
