"""Folders of runs as a real search leaves them, made without Spark: by the parts themselves."""

from __future__ import annotations

import contextlib
import datetime
import json
import random
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiment.display.board import Board
from experiment.driver.coordinator import Coordinator
from experiment.driver.recorder import Recorder
from experiment.driver.slots.gangs import Gangs
from experiment.driver.slots.roster import Roster
from experiment.driver.trials.trials import Trials
from experiment.results.result import Result
from experiment.run_files.journal import Journal
from experiment.run_files.journal_records import Begun
from experiment.run_files.manifest import (
    Manifest,
    folder_name,
    now,
    versions,
    write_manifest,
    write_result,
)
from experiment.run_files.ownership import owned
from experiment.run_files.run_state import RunState
from experiment.setup.settings import Settings
from experiment.setup.specification import SearchSpec
from experiment.setup.workers import ALONE, Workers
from search.algorithms import Evolution
from search.direction import Direction, read_direction
from search.grid import GridSearch, PointSearch
from search.random_search import RandomSearch
from search.searcher import Problem, Searcher
from search.space.spaces import Space
from search.trial import Outcome, Trial
from spark_jobs.channel.grpc_channel import Address
from spark_jobs.channel.reporter import Reporter
from spark_jobs.messages import (
    Attempt,
    Heard,
    Hello,
    Next,
    encode,
)
from spark_jobs.run_folder.paths import AttemptPaths, RunPaths
from spark_jobs.slot.config import SlotConfig
from spark_jobs.slot.run_attempt import run_attempt
from spark_jobs.slot.trial_events import hparam, row_name
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.local_files import make_folder, write_whole
from spark_jobs.storage.locations import Location
from spark_jobs.trial.events.event_file import EventFile
from spark_jobs.trial.trial_process import Program
from spark_jobs.zygote.link import Tell
from tests.search.fakes import started

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3\nValueError: too large\n'

GRACE = 3.0  # seconds that the members of a gang have to end

BOUNDS = {"learning_rate": [0.1, 0.0001], "units": [8, 64], "optimizer": ["adam", "sgd"]}


def accuracy(trial: Trial) -> float:
    """The objective of a trial: the later, the better."""
    return (trial.id + 1) / 1000


class Slot:
    """A `TrialRunner` that prints a line and makes an outcome without running anything."""

    warnings = ()

    def __init__(self, outcome_of: Callable[[Trial], Outcome]) -> None:
        self._outcome_of = outcome_of

    def run(self, attempt: Attempt, paths: AttemptPaths, tell: Tell) -> Outcome:
        print_logs(attempt.trial, paths)
        return self._outcome_of(attempt.trial)

    def stop(self, attempt: Attempt, reason: str) -> None:
        raise AssertionError("nobody judges these trials")

    def end(self, attempt: Attempt, reason: str) -> None:
        raise AssertionError("these trials run in no gang")


def print_logs(trial: Trial, paths: AttemptPaths) -> None:
    paths.stdout.write_text(f"trial {trial.id} says hello\n")
    paths.stderr.write_text(f"trial {trial.id} warns\n")


def make_spec(
    call: str,
    searcher: Searcher,
    space: Space | None,
    points: Sequence[Mapping[str, Any]] = (),
    algorithm: Mapping[str, Any] | None = None,
) -> SearchSpec:
    """Return a search as a call would build it, without a session and a train function."""
    return SearchSpec(
        call=call,
        spark=None,
        train=accuracy,
        settings=Settings(),
        seed=0,
        searcher=searcher,
        space=space,
        points=points,
        algorithm=algorithm,
    )


def make_search(
    trials: int,
    *,
    call: str = "launch",
    generations: bool = False,
    points: Sequence[Mapping[str, Any]] | None = None,
    direction: Direction = Direction.MAX,
) -> SearchSpec:
    """Return what `experiment.calls` would make: a grid of `trials` learning rates by default."""
    if points is not None:
        return make_spec("launch", PointSearch(points), None, points, {"type": "points"})
    if generations:
        assert trials in range(8, 10**6, 4), "the population has 4 individuals"
        space = Space.of_bounds(BOUNDS)
        size = {"popsize": 4, "generations": trials // 4 - 1}
        evolution = started(Evolution, space, 7, generational=True, direction=direction, **size)
        algorithm = {"type": "differential evolution", "variant": "rand1bin", **size}
        return make_spec("evolutionary_search", evolution, space, algorithm=algorithm)
    if call == "random_search":
        space = Space.of_bounds(BOUNDS)
        searcher = RandomSearch(Problem(space=space, samples=trials, rng=random.Random(7)))
        return make_spec(call, searcher, space, algorithm={"type": "random", "samples": trials})
    rates = [(number + 1) / 100 for number in range(trials)]
    space = Space.of_grid({"learning_rate": rates, "optimizer": ["adam"]})
    return make_spec(call, GridSearch(space), space, algorithm={"type": "grid"})


def make_run_folder(logdir: Path, name: str) -> RunPaths:
    """Make a new folder for a run, with that of its trials, and return its files."""
    paths = RunPaths(logdir / folder_name(name))
    make_folder(paths.trials)
    return paths


def make_manifest(search: SearchSpec, **changes: Any) -> Manifest:
    facts: dict[str, Any] = {
        "name": "digits",
        "description": "",
        "call": search.call,
        "train": "train",
        "function": "0" * 64,
        "algorithm": dict(search.algorithm or {}),
        "space": None if search.space is None else search.space.to_json(),
        "trials": search.searcher.total,
        "direction": "max",
        "optimization_key": "accuracy",
        "seed": 7,
        "isolation": "process",
        "timeout": None,
        "application": "local-1700000000000",
        "master": "local[2]",
        "created": now(),
        "versions": versions(),
        "known": 0,
        "slots": None,
        "constraint": None,
        "stopping": [],
    }
    return Manifest(**facts | changes)


def begun(records: int = 0, trials: int = 0) -> Begun:
    """Return what begins a segment of a journal that has `records` records before it."""
    return Begun(
        records=records,
        application="local-1700000000000",
        created=now(),
        function="0" * 64,
        trials=trials,
        at=1_700_000_000.0,
    )


def make_run(
    logdir: Path,
    *,
    trials: int = 6,
    failed: Collection[int] = (1,),
    running: Collection[int] = (),
    lost: Collection[int] = (),
    ended: bool = True,
    problem: str | None = None,
    call: str = "launch",
    generations: bool = False,
    points: Sequence[Mapping[str, Any]] | None = None,
    direction: str | Mapping[str, str] = "max",
    name: str = "digits",
    search: SearchSpec | None = None,
    outcome_of: Callable[[Trial], Outcome] | None = None,
    **manifest_changes: Any,
) -> Path:
    """Make the folder of a run and return it.

    Args:
        logdir: The folder of all runs; made where it is missing.
        trials: How many in all; a multiple of 4, at least 8, with generations.
        failed: Ids of the trials that fail, with "ValueError: too large" and `TRACEBACK`.
        running: Ids that get no outcome: out where the search has not ended, else cancelled. With
            generations only the last one may have any, or the search stops at the end of theirs.
        lost: Ids whose first attempt is lost with its executor and that are tried again.
        ended: Write what the end of a search writes.
        problem: Why it ended early; 'interrupted' for one that ended with trials still out.
        call: The public function: 'launch' (a grid) or 'random_search'.
        generations: A differential evolution with 4 individuals instead.
        points: Explicit points instead.
        direction: 'max' or 'min', or several objectives' names to these.
        name: The label.
        search: Any other search instead.
        outcome_of: Makes the outcomes; `failed` counts for nothing then.
        **manifest_changes: Of the manifest.

    The objective 'accuracy' of trial n is (n + 1) / 1000, 'loss' is 1 minus that, and every trial
    takes 2.5 seconds.
    """
    if points is not None:
        trials = len(points)
    toward = read_direction(direction)
    search = search or make_search(
        trials, call=call, generations=generations, points=points, direction=toward
    )
    paths = make_run_folder(logdir, name)
    manifest = make_manifest(search, name=name, direction=direction, **manifest_changes)
    write_manifest(paths, manifest)

    def default_outcome(trial: Trial) -> Outcome:
        if trial.id in failed:
            return Outcome.failed(
                trial.id, "user error", "ValueError: too large", TRACEBACK, seconds=2.5
            )
        value = accuracy(trial)
        metrics = {"accuracy": value, "loss": 1 - value}
        return Outcome(trial.id, "finished", value, "accuracy", metrics, seconds=2.5)

    board = Board(paths, search, toward, manifest)
    with Journal(paths.journal) as journal:
        coordinator = make_coordinator(
            search.searcher, paths, journal, direction=toward, observers=[board]
        )
        coordinator.trials.begin(begun(trials=manifest.trials))
        _run_trials(
            coordinator,
            paths,
            search,
            outcome_of or default_outcome,
            running=running,
            lost=lost,
        )
        if ended:
            problem = problem or ("interrupted" if running else None)
            coordinator.trials.cancel_rest()
            result = Result(
                coordinator.trials.results,
                toward,
                str(paths.root),
                objective=coordinator.trials.status.objective or manifest.optimization_key,
                total=manifest.trials,
                problem=problem,
                space=search.space,
            )
            write_result(paths, result)
        board.close(manifest.optimization_key, coordinator.trials.status)
    return paths.root


def begun_at(root: Path, second: int) -> Path:
    """Rename a run's folder as if it had begun at this second since 1970, and return it."""
    name, _, unique = root.name.rsplit("-", 2)
    began = datetime.datetime.fromtimestamp(second, datetime.UTC)
    return root.rename(root.with_name(f"{name}-{began:%Y%m%dT%H%M%SZ}-{unique}"))


def make_coordinator(
    searcher: Searcher,
    paths: RunPaths,
    journal: Journal,
    *,
    slots: int = 1,
    workers: Workers = ALONE,
    is_ending: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = warnings.warn,
    now: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
    make_pair: Callable[[], tuple[bytes, bytes]] = lambda: (b"key", b"certificate"),
    **settings: Any,
) -> Coordinator:
    """Return a coordinator that has not begun; `settings` are those of `Trials`."""
    recorder = Recorder(journal, RunState(paths), now)
    roster = Roster(slots)
    trials = Trials(
        searcher, recorder, slots=roster, workers=workers, warn=warn, clock=clock, **settings
    )
    gangs = Gangs(workers, grace=GRACE, make_pair=make_pair)
    return Coordinator(trials, roster, gangs, recorder, is_ending=is_ending, warn=warn, clock=clock)


def _run_trials(
    coordinator: Coordinator,
    paths: RunPaths,
    search: SearchSpec,
    outcome_of: Callable[[Trial], Outcome],
    *,
    running: Collection[int],
    lost: Collection[int],
) -> None:
    config = SlotConfig(
        address=Address(target="host:1", token="token", certificate="certificate"),
        root=str(paths.root),
        program=Program(function=b"", key=None, direction="max"),
        isolation="process",
        timeout=None,
        grace=1.0,
        spark_assigns_gpus=False,
        as_text=search.as_text,
        echo=False,
    )
    reporter = Reporter(lambda *said: Heard(), _never, _never)  # never asked to send
    partition = number = 0

    def greet() -> Any:
        slot = f"1.{partition}.{number}"
        coordinator.hello(Hello(slot=slot, host="host"))
        return coordinator.next(Next(slot))

    answer = greet()
    while isinstance(answer, Attempt):
        attempt = answer
        if attempt.trial.id in running:
            start_attempt(paths, attempt, search.as_text)
            partition, number = partition + 1, 0
            answer = greet()
        elif attempt.trial.id in lost and attempt.number == 1:
            start_attempt(paths, attempt, search.as_text)
            coordinator.ends.slots_lost([f"1.{partition}.{number}"])
            number += 1
            answer = greet()
        else:
            outcome = run_attempt(config, attempt, Slot(outcome_of), _fail, reporter)
            slot = f"1.{partition}.{number}"
            answer = coordinator.next(Next(slot, attempt.number, outcome))


def _never(*request: object) -> None:
    raise AssertionError(request)


def _fail(warning: str) -> None:
    raise AssertionError(warning)


def start_attempt(paths: RunPaths, attempt: Attempt, as_text: Collection[str] = ()) -> AttemptPaths:
    """Leave what an attempt has in its folder before it ends."""
    files = paths.attempt(attempt.trial.id, attempt.number)
    make_folder(files.folder)
    write_whole(files.trial, encode(attempt))
    row = {
        name: hparam(value, as_text=name in as_text) for name, value in attempt.trial.params.items()
    }
    with EventFile(files.folder) as events:
        events.hparams_start(row, row_name(files.folder.name, paths.root.name))
    print_logs(attempt.trial, files)
    return files


@contextlib.contextmanager
def owned_by_us(root: Path) -> Iterator[None]:
    """Own a run as its driver does."""
    with owned(Location.parse(root), HadoopSettings(), "app", taken=_fail, tell=_fail):
        yield


def mark_as_owned(root: Path, **changes: Any) -> None:
    """Leave the owner file of a driver that did not release the run, such as a killed one."""
    with owned_by_us(root):
        mark = (root / "owners" / "000001.json").read_bytes()
    (root / "owners" / "000001.json").write_text(json.dumps(json.loads(mark) | changes))
