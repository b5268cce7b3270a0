"""Prior observations from other runs, which the run folder keeps."""

from __future__ import annotations

import math
import os
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from experiment.results.result import Result, Results
from experiment.results.trial_result import TrialResult
from experiment.run_files.format import FORMAT
from experiment.run_files.loading import Run, find_run, opened, read_run, run_given_as
from experiment.setup.resuming import manifest_of, space_differences
from experiment.setup.settings import Settings
from search.errors import InvalidArgument, shown
from search.grouped import spaces_of_groups
from search.space.points import read_first_points
from search.space.spaces import Space
from search.trial import Evaluated
from spark_jobs.messages import ProtocolError, decode, encode
from spark_jobs.run_folder.paths import KNOWN, MANIFEST, RunPaths
from spark_jobs.storage.local_files import open_regular, write_whole
from spark_jobs.storage.refusals import refused

OneRun: TypeAlias = str | os.PathLike[str] | Result | Results
Runs: TypeAlias = OneRun | Sequence[OneRun]


def runs_of(warm_start: Any) -> list[str]:
    """Return the folders of the runs in `warm_start`, each once, without access to them.

    Raises:
        InvalidArgument: One is neither a path nor a result.
    """
    one = isinstance(warm_start, str | bytes | os.PathLike | Result | Results)
    if not one and not isinstance(warm_start, Iterable):
        raise InvalidArgument("warm_start", "the folder of a run, or a list", shown(warm_start))
    runs = [warm_start] if one else warm_start
    return list(dict.fromkeys(str(find_run(run, "warm_start")) for run in runs))


def known_of(runs: Sequence[str], space: Space, settings: Settings) -> list[Evaluated]:
    """Return the prior observations of a search: finished and failed trials of other runs.

    Trials that the constraint of the space does not allow are left out, and of a search with short
    trials all but the longest and the failed ones.

    A resumed run has kept its prior observations, so they do not depend on the other runs.

    Args:
        runs: The folders of the other runs.
        space: The search space.
        settings: The search's settings.

    Raises:
        InvalidArgument: A run cannot be read, had another space, direction or objective, or trials
            that continue from others.
        JournalDamaged: A run's journal was changed after it was written.
    """
    if settings.resume is not None:
        before = manifest_of(settings.resume).space
        if before is None or Space.from_json(before) != space:
            return []  # such a run is refused later, with all differences
        return _read_known(settings.resume, space)
    return [item for run in runs for item in _known_of(run, space, settings)]


def _known_of(name: str, space: Space, settings: Settings) -> list[Evaluated]:
    with run_given_as("warm_start"), opened(name) as reader:
        run = read_run(reader.paths)
    if run.manifest.trains_a_population:
        raise InvalidArgument(
            "warm_start",
            "runs of other searches than population_based_training",
            repr(name),
            "its trials continue the training of others with other hyperparameters, so their "
            "values are not those of full trials",
        )
    if differences := list(_differences(run, space, settings)):
        expected = "runs of the same space, direction and objective"
        raise InvalidArgument("warm_start", expected, f"{name!r}: " + "; ".join(differences))
    trials = _in_full(run.result.trials, next(iter(spaces_of_groups(run.manifest.algorithm)), None))
    return _evaluated(space, [trial for trial in trials if space.allows_params(trial.params)])


def _in_full(trials: Sequence[TrialResult], by: str | None) -> list[TrialResult]:
    """Return the failed trials and the longest finished ones; shorter ones are not comparable.

    Of `search_each` the longest of each group, which the hyperparameter `by` holds: each group has
    a model of its own.
    """
    finished: dict[Any, dict[float, list[TrialResult]]] = {}
    for trial in trials:
        if trial.status == "finished":
            group = None if by is None else trial.params[by]
            steps = math.inf if trial.max_steps is None else trial.max_steps
            finished.setdefault(group, {}).setdefault(steps, []).append(trial)
    longest = {trial.id for by_steps in finished.values() for trial in by_steps[max(by_steps)]}
    return [trial for trial in trials if trial.status == "failed" or trial.id in longest]


def _differences(run: Run, space: Space, settings: Settings) -> Iterator[str]:
    before = run.manifest
    for what in ("direction", "optimization_key"):
        was, is_now = getattr(before, what), getattr(settings, what)
        called_so = what == "optimization_key" and is_now == run.result.objective
        if was != is_now and not called_so:
            yield f"{what} was {was!r}, is {is_now!r}"
    if run.result.space is None:
        yield "its trials were a list of points"
    else:
        yield from space_differences(run.result.space, space)


def _evaluated(space: Space, trials: Sequence[TrialResult | Evaluated]) -> list[Evaluated]:
    # They are complete, so nothing is drawn; the constraint may have changed.
    params = [trial.params for trial in trials]
    points = read_first_points(Space(space), params, random.Random(0), "warm_start")
    pairs = zip(points, trials, strict=True)
    return [Evaluated(point, trial.value, trial.values) for point, trial in pairs]


class _Known(msgspec.Struct):
    trials: list[Evaluated]
    format: int = FORMAT


def write_known(paths: RunPaths, known: Sequence[Evaluated]) -> None:
    """Write the prior observations to the run folder; OSError if that fails."""
    if known:
        write_whole(paths.known, encode(_Known(list(known))) + b"\n", sync=True)


def _read_known(run: OneRun, space: Space) -> list[Evaluated]:
    with run_given_as("resume"), opened(run, re.escape(MANIFEST), re.escape(KNOWN)) as reader:
        try:
            with open_regular(reader.paths.known) as file:
                return _evaluated(space, decode(file.read(), _Known, largest=None).trials)
        except FileNotFoundError:
            return []
        except (OSError, ProtocolError, ValueError) as error:
            got = f"{shown(str(find_run(run)), 300)}, whose {KNOWN} cannot be used: {error}"
            if isinstance(error, OSError):
                raise refused(error, "resume", "the folder of a run", got) from None
            raise InvalidArgument("resume", "the folder of a run", got) from None
