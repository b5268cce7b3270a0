"""Resumed runs: which trials are kept, which run again, and which calls are refused."""

from __future__ import annotations

import errno
import functools
import io
import json
import os
import pickle
import random
from pathlib import Path

import msgspec
import pytest

import experiment
from experiment.run_files.format import FORMAT
from experiment.run_files.journal import read_journal
from experiment.run_files.left_outcomes import look_for_outcomes
from experiment.setup.function.sources import hash_of_train
from experiment.setup.resuming import Past, reopen, space_differences
from experiment.setup.settings import Settings
from search.algorithms import Evolution
from search.errors import InvalidArgument
from search.grid import PointSearch
from search.space.spaces import Choice, Space
from search.trial import Outcome, Trial
from spark_jobs.messages import LARGEST_MESSAGE, Attempt, encode
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.locations import Location
from tests.experiment.runs import (
    BOUNDS,
    accuracy,
    make_run,
    make_run_folder,
    make_search,
    make_spec,
    start_attempt,
)
from tests.search.fakes import started
from tests.spark_jobs.trial.events.reading import scalars, table_config, values

QUIET = {"preload": (), "isolation": "none", "verbose": 0}
EVOLUTION = {
    "type": "differential evolution",
    "variant": "rand1bin",
    "popsize": 4,
    "generations": 1,
    "crossover": 0.7,
    "mutation": 0.5,
    "generational": True,
    "noisy": False,
}


by_generation = functools.partial(experiment.evolutionary_search, generational=True)


def train(learning_rate, optimizer, units=0):
    return {"accuracy": learning_rate + 1, "loss": 0.0}


def hash_of(function):
    return hash_of_train(function, b"")


def grid(trials):
    return {"learning_rate": [(n + 1) / 100 for n in range(trials)], "optimizer": ["adam"]}


@pytest.fixture
def make(tmp_path):
    """A function that makes the run folder of a search with `train`."""

    def make(**arguments):
        return make_run(tmp_path / "runs", **{"failed": (), "function": hash_of(train)} | arguments)

    return make


@pytest.fixture
def resume(spark):
    """A function that resumes a run; its attribute `jobs` is the number of Spark jobs."""
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup

    def resume(run, args=None, call=experiment.launch, train=train, **settings):
        before = set(jobs())
        settings = {"optimization_key": "accuracy"} | QUIET | settings
        args = grid(6) if args is None else args
        try:
            return call(spark, train, args, resume=run, **settings)
        finally:
            resume.jobs = len(set(jobs()) - before)

    return resume


def contents(root):
    """Return the contents of a run folder by path, without the owner files."""
    files = (path for path in root.rglob("*") if "owners" not in path.parts)
    return {path: path.read_bytes() if path.is_file() else None for path in files}


def table(result):
    return {trial.id: (trial.status, trial.value) for trial in result.trials}


def kept(trials):
    """Return the outcomes of trials of `make_run`."""
    return {trial: ("finished", accuracy(Trial(trial, {}))) for trial in trials}


def again(trials):
    """Return the outcomes of a grid's trials that run on resume."""
    return {trial: ("finished", (trial + 1) / 100 + 1) for trial in trials}


def segments(root):
    paths = sorted((root / "journal").iterdir())
    return [[json.loads(line[9:]) for line in path.read_bytes().splitlines()] for path in paths]


def as_it_is(run):
    return run


def test_partial_files_of_a_killed_driver_are_removed(make):
    run = make(trials=6)
    (run / "owners").mkdir(exist_ok=True)
    for folder in (".", "journal", "search", "owners"):
        (run / folder / ".part-0123456789abcdef").write_text("{")
    reopen(LocalFiles(), Location.parse(run), Past())
    assert list(run.rglob(".part-*")) == []


@pytest.mark.parametrize("given", [as_it_is, str, os.path.relpath, experiment.load])
def test_a_finished_run_returns_at_once_without_a_job(make, resume, given):
    run = make(trials=6, failed=(1,))
    before = experiment.load(run)
    result = resume(given(run))
    assert resume.jobs == 0
    assert result.trials == before.trials
    assert (result.problem, result.logdir) == (None, str(run))
    assert experiment.load(run).trials == before.trials
    assert json.loads((run / "result.json").read_text())["trials"] == 6
    _, [resumed] = segments(run)
    assert resumed["event"] == "begun"
    assert resumed["records"] == 15


def test_other_files_are_not_counted_as_segments(make, resume):
    run = make(trials=6)
    journal = run / "journal"
    (journal / "copy.jsonl").write_bytes((journal / "000001.jsonl").read_bytes())
    result = resume(run)
    assert experiment.load(run).trials == result.trials


@pytest.mark.fault(23)
def test_a_run_with_a_killed_driver_is_resumed(make, resume):
    run = make(trials=6, running=(2, 4), ended=False)
    result = resume(run)
    assert resume.jobs == 1
    assert table(result) == kept([0, 1, 3, 5]) | again([2, 4])
    assert [Path(trial.logdir).name for trial in result.trials][2:5] == [
        "000002-2",
        "000003",
        "000004-2",
    ]
    assert result.problem is None
    assert experiment.load(run).trials == result.trials


@pytest.mark.parametrize("problem", ["interrupted", "the deadline of 10 s has passed"])
def test_a_run_that_ended_early_is_resumed(make, resume, problem):
    run = make(trials=6, running=(2,), problem=problem)
    (run / "stop").touch()  # as `python -m experiment stop` leaves it
    assert experiment.load(run).problem == problem
    result = resume(run)
    assert table(result) == kept([0, 1, 3, 4, 5]) | again([2])
    assert result.problem is None
    assert json.loads((run / "result.json").read_text())["problem"] is None
    assert not (run / "stop").exists()
    assert experiment.load(run).problem is None


def test_a_run_with_too_many_failures_is_resumed_with_a_higher_limit(make, resume):
    run = make(trials=6, failed=(0, 1), running=(4, 5), problem="2 trials failed")
    with pytest.raises(experiment.SearchFailed, match="more than max_failures=1"):
        resume(run, max_failures=1)
    assert resume.jobs == 0
    result = resume(run, max_failures=2)
    assert table(result) == {0: ("failed", None), 1: ("failed", None)} | kept([2, 3]) | again(
        [4, 5]
    )
    assert experiment.load(run).trials == result.trials


def test_a_run_is_resumed_with_more_samples_and_not_with_fewer(make, resume):
    run = make(call="random_search", trials=5)
    with pytest.raises(InvalidArgument, match="samples was 5, is 4"):
        resume(run, BOUNDS, experiment.random_search, samples=4)
    result = resume(run, BOUNDS, experiment.random_search, samples=8)
    searcher = make_search(8, call="random_search").searcher
    assert [trial.params for trial in result.trials] == [searcher.ask().params for _ in range(8)]
    assert {n: ending for n, ending in table(result).items() if n < 5} == kept(range(5))
    assert len(table(result)) == result.total == experiment.load(run).total == 8
    before = contents(run)
    with pytest.raises(InvalidArgument, match="trials were 8, are 7"):
        resume(run, BOUNDS, experiment.random_search, samples=7)
    assert contents(run) == before


def test_a_run_is_resumed_with_more_generations_and_not_with_fewer(make, resume):
    run = make(trials=8, generations=True, algorithm=EVOLUTION)
    result = resume(run, BOUNDS, by_generation, popsize=4, generations=3)
    assert {n: ending for n, ending in table(result).items() if n < 8} == kept(range(8))
    assert len(result.trials) == result.total == experiment.load(run).total == 16
    assert resume.jobs == 1
    with pytest.raises(InvalidArgument, match="trials were 16, are 12"):
        resume(run, BOUNDS, by_generation, popsize=4, generations=2)


class TriesAgain:
    """Evolution as it was before searches ended with their space: it tried all once more."""

    def __init__(self, total):
        self._once = steady_evolution(total)
        self.total = total
        self._asked = []

    @property
    def finished(self):
        return len(self._asked) == self.total

    def ask(self):
        number = len(self._asked)
        trial = self._once.ask() or Trial(
            number, self._asked[number - self._once.total].params, generation=number // 4
        )
        self._asked.append(trial)
        return trial

    def tell(self, outcome):
        if outcome.trial < self._once.total:
            self._once.tell(outcome)


FEW = {"learning_rate": Choice([0.1, 0.2]), "optimizer": ["adam", "sgd"], "units": [1, 3]}


def steady_evolution(total):
    return started(Evolution, Space.of_bounds(FEW), 7, popsize=4, generations=total // 4 - 1)


def test_a_run_that_tried_configurations_twice_is_resumed(make, resume):
    space = Space.of_bounds(FEW)
    algorithm = Evolution(popsize=4, generations=3).to_json()
    search = make_spec("evolutionary_search", TriesAgain(16), space, algorithm=algorithm)
    run = make(search=search, running=[15], ended=False)
    result = resume(run, FEW, experiment.evolutionary_search, popsize=4, generations=3)
    assert steady_evolution(16).total == 12
    value = result.trials[-1].params["learning_rate"] + 1
    assert table(result) == kept(range(15)) | {15: ("finished", value)}
    assert result.total == experiment.load(run).total == 16


def test_a_run_is_resumed_with_more_points(make, resume):
    points = [{"learning_rate": n / 10, "optimizer": "sgd"} for n in range(4)]
    run = make(points=points[:2])
    result = resume(run, points)
    assert table(result) == kept([0, 1]) | {2: ("finished", 1.2), 3: ("finished", 1.3)}


OTHERS = {
    "values": (
        {"args": grid(5)},
        "space of 'learning_rate' was Choice(values=(0.01, 0.02, 0.03, 0.04, 0.05, 0.06)), is "
        "Choice(values=(0.01, 0.02, 0.03, 0.04, 0.05))",
    ),
    "a new name": (
        {"args": grid(6) | {"units": [1]}},
        "space of 'units' is new: Choice(values=(1,))",
    ),
    "a name is missing": (
        {"args": {"optimizer": ["adam"]}, "train": lambda optimizer: 1.0},
        "space of 'learning_rate' was ",
    ),
    "order": (
        {"args": dict(reversed(grid(6).items()))},
        "the order of the space was ['learning_rate', 'optimizer'], is ['optimizer', ",
    ),
    "direction": ({"direction": "min"}, "direction was 'max', is 'min'"),
    "metric": ({"optimization_key": "loss"}, "optimization_key was 'accuracy', is 'loss'"),
    "no metric": ({"optimization_key": None}, "optimization_key was 'accuracy', is None"),
    "seed": ({"seed": 8}, "seed was 7, is 8"),
    "call": (
        {"call": experiment.random_search, "args": BOUNDS},
        "call was 'launch', is 'random_search'",
    ),
    "points": (
        {"args": [{"learning_rate": 0.01, "optimizer": "adam"}] * 6},
        "type was 'grid', is 'points'",
    ),
}


@pytest.mark.fault(41)
@pytest.mark.parametrize("what", OTHERS)
def test_another_search_is_refused_with_the_difference(make, resume, what):
    arguments, difference = OTHERS[what]
    run = make(trials=6, running=(2,), ended=False)
    before = contents(run)
    with pytest.raises(InvalidArgument) as caught:
        resume(run, **arguments)
    assert caught.value.name == "resume"
    assert f"expected the search of {str(run)!r}, got another one: " in str(caught.value)
    assert difference in str(caught.value)
    assert resume.jobs == 0
    assert contents(run) == before


@pytest.mark.fault(41)
def test_other_points_are_refused_with_the_first_difference(make, resume):
    points = [{"learning_rate": n / 10, "optimizer": "sgd"} for n in range(4)]
    run = make(points=points)
    before = contents(run)
    for others, is_now in [
        ([*points[:2], {"learning_rate": 0.7, "optimizer": "sgd"}, points[3]], "0.7"),
        (points[:2], "None"),
    ]:
        with pytest.raises(InvalidArgument, match=r"point 2 was \{'learning_rate': 0.2, .*") as got:
            resume(run, others)
        assert is_now in str(got.value)
    assert resume.jobs == 0
    assert contents(run) == before


@pytest.mark.fault(41)
def test_another_function_is_a_warning_and_recorded(make, resume):
    def other(learning_rate, optimizer):
        return {"accuracy": 9.0}

    run = make(trials=6, running=(2,), ended=False)
    with pytest.warns(
        UserWarning, match="the train function 'other' has changed .* keep their outcomes"
    ):
        result = resume(run, train=other)
    assert table(result) == kept([0, 1, 3, 4, 5]) | {2: ("finished", 9.0)}
    assert segments(run)[1][0]["function"] == hash_of(other) != hash_of(train)


def test_the_resuming_application_is_recorded(spark, make, resume):
    run = make(trials=2)
    for _ in range(2):
        resume(run, grid(2))
    first, *later = segments(run)
    assert [records[0]["records"] for records in later] == [len(first), len(first) + 1]
    assert {records[0]["application"] for records in later} == {spark.sparkContext.applicationId}


def newer(run):
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"format": FORMAT + 1}))
    return run


def test_a_run_that_cannot_be_resumed_is_one_sentence(make, resume):
    run = make(trials=2)
    for file in (run / "search").iterdir():
        file.unlink()
    (run / "search").rmdir()
    (run / "search").touch()
    with pytest.raises(
        InvalidArgument, match="resume: expected a run that can be read and written"
    ):
        resume(run, grid(2))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (lambda run: 3, "expected the folder of a run, got 3"),
        (lambda run: "", "expected the folder of a run, got ''"),
        (lambda run: b"run", "expected the folder of a run, got b'run'"),
        (lambda run: "hdfs:/one/slash", "a URL has two slashes after its colon"),
        (lambda run: run / "nowhere", "which is no folder"),
        (lambda run: run / "manifest.json", "which is no folder"),
        (lambda run: run / "trials", "without a manifest.json"),
        (lambda run: run.parent, "which is a folder of runs; it holds 1 run, the newest is "),
        (newer, f"of format {FORMAT + 1}, while this version reads up to {FORMAT}"),
    ],
)
def test_only_a_run_is_resumed(make, given, reason):
    run = given(make(trials=2))
    with pytest.raises(InvalidArgument) as caught:
        experiment.launch(None, train, grid(2), resume=run)
    assert caught.value.name == "resume"
    assert reason in str(caught.value)


@pytest.mark.parametrize("retries", [-1, 1.5, True, None, "3"])
def test_retries_are_a_number(retries):
    with pytest.raises(InvalidArgument, match="retries: expected an integer of at least 0"):
        Settings(retries=retries)


@pytest.mark.parametrize("kinds", ["user error", None, ["user"], [3], ["ambiguous objective"]])
def test_only_known_failures_are_retried(kinds):
    with pytest.raises(
        InvalidArgument, match="retry_on: expected a list of failures: 'user error'"
    ):
        Settings(retry_on=kinds)
    assert Settings(retry_on=["time", "machine"]).retry_on == ("time", "machine")
    assert Settings(retry_on=()).retry_on == ()


# Outcomes in trial folders.


def finished(trial, value=0.777):
    return Outcome(trial, "finished", value, "accuracy", {"accuracy": value}, seconds=2.5)


def leave(paths, trial, number, outcome):
    """Write the trial folder of an attempt, with its outcome."""
    files = paths.attempt(trial.id, number)
    if not files.folder.exists():
        start_attempt(paths, Attempt(trial, number))
    if outcome is not None:
        data = outcome if isinstance(outcome, bytes) else encode(outcome)
        files.outcome.write_bytes(data)
    return files


def trial_of(number):
    return Trial(number, {"learning_rate": (number + 1) / 100, "optimizer": "adam"})


@pytest.mark.fault(23)
def test_outcomes_written_without_a_driver_count(make, resume):
    run = make(trials=6, running=(1, 2, 3, 4), ended=False)
    paths = RunPaths(run)
    leave(paths, trial_of(1), 1, finished(1))
    other = paths.attempt(2)
    other.trial.write_bytes(other.trial.read_bytes().replace(b"adam", b"sgd"))
    leave(paths, trial_of(2), 1, finished(2))  # with other hyperparameters
    leave(paths, trial_of(3), 3, None)  # without an outcome
    leave(paths, trial_of(4), 1, Outcome.failed(4, "machine", "its disk was full"))
    result = resume(run)
    assert table(result) == kept([0, 5]) | again([2, 3, 4]) | {1: ("finished", 0.777)}
    names = {trial.id: Path(trial.logdir).name for trial in result.trials}
    assert [names[trial] for trial in range(1, 5)] == ["000001", "000002-2", "000003-4", "000004-2"]
    assert result.trials[1].params == trial_of(1).params
    assert experiment.load(run).trials == result.trials


def test_the_outcome_of_an_unrecorded_trial_counts_once_it_is_proposed(make, resume):
    """The driver's host lost power, and the journal its last lines."""
    run = make(trials=6, running=(4, 5), ended=False)
    paths = RunPaths(run)
    [segment] = paths.journal.iterdir()
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[:8]))  # the first three trials
    leave(paths, trial_of(5), 1, finished(5))
    result = resume(run)
    assert table(result) == kept([0, 1, 2, 3]) | again([4]) | {5: ("finished", 0.777)}
    assert Path(result.trials[4].logdir).name == "000004-2"


@pytest.fixture
def left(tmp_path):
    """A function that returns the outcomes found in the folders of trial 0."""
    paths = make_run_folder(tmp_path, "digits")

    def left(*tried_again):
        files, root = LocalFiles(), Location.parse(paths.root)
        return next(look_for_outcomes(files, root, (), {(0, number) for number in tried_again}))

    left.paths = paths
    return left


FAILED = Outcome.failed(0, "memory", "no memory")


def stopped(reason):
    return Outcome(0, "stopped", 0.3, "accuracy", {"accuracy": 0.3}, reason=reason)


@pytest.mark.parametrize(
    ("outcomes", "tried_again", "counts"),
    [
        ([None], (), 0),
        ([finished(0)], (), 1),
        ([finished(0), finished(0)], (), 1),
        ([None, finished(0)], (), 2),
        ([finished(0), None], (), 1),
        ([finished(0), None], (1,), 1),  # falsely recorded as lost
        ([FAILED], (), 1),
        ([FAILED], (1,), 0),
        ([FAILED, finished(0)], (1,), 2),
        ([FAILED, finished(0)], (), 2),
        ([FAILED, None], (), 0),
        ([FAILED, FAILED], (1,), 2),
        ([finished(0), FAILED], (), 1),
        ([Outcome(0, "cancelled"), finished(0)], (), 2),
        ([stopped("step 7: it is worse"), None], (1,), 1),
        ([stopped("its slot was given up"), None], (1,), 0),
        ([stopped("its slot was given up"), finished(0)], (), 2),
    ],
)
def test_the_first_finished_attempt_counts_or_else_the_last_failure(
    left, outcomes, tried_again, counts
):
    for number, outcome in enumerate(outcomes, start=1):
        leave(left.paths, trial_of(0), number, outcome)
    found = left(*tried_again)
    assert (found.trial, found.attempts) == (0, len(outcomes))
    end = (Attempt(trial_of(0), counts), outcomes[counts - 1]) if counts else None
    assert found.end_of(trial_of(0)) == end


def test_the_outcome_after_one_of_other_hyperparameters_counts(left):
    other = Trial(0, {"learning_rate": 0.5, "optimizer": "sgd"})
    for number, trial in enumerate((other, trial_of(0)), start=1):
        leave(left.paths, trial, number, finished(0))
    assert left().end_of(trial_of(0)) == (Attempt(trial_of(0), 2), finished(0))
    assert left().end_of(other) == (Attempt(other, 1), finished(0))


class Marker:
    def __reduce__(self):
        return Path.touch, (Path("unpickled"),)


WHOLE = encode(finished(0))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        WHOLE[:-1],
        WHOLE[: len(WHOLE) // 2],
        WHOLE.replace(b'"trial":0', b'"trial":1'),
        WHOLE.replace(b"0.777", b"null", 1),
        WHOLE.replace(b"finished", b"failed"),
        WHOLE.replace(b"{", b'{"more":1,', 1),
        WHOLE + b" " * LARGEST_MESSAGE,
        b"[" * 100_000,
        b'{"trial":' * 100_000,
        b"\xff\xfe",
        b"null",
        pickle.dumps(Marker()),
    ],
)
def test_invalid_outcomes_are_ignored(left, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    leave(left.paths, trial_of(0), 1, data)
    assert left().end_of(trial_of(0)) is None
    assert left().attempts == 1
    assert not (tmp_path / "unpickled").exists()


def test_entries_that_are_not_files_are_ignored(left):
    files = leave(left.paths, trial_of(0), 1, None)
    files.outcome.mkdir()
    assert left().ends == ()
    files.outcome.rmdir()
    os.mkfifo(files.outcome)
    assert left().ends == ()
    files.outcome.unlink()
    files.outcome.symlink_to("/dev/zero")
    assert left().ends == ()


def test_folders_that_are_not_attempts_are_ignored(left):
    for name in ("000000-0", "000000-x", "0", ".000000", "notes"):
        (left.paths.trials / name).mkdir()
    files = leave(left.paths, trial_of(0), 1, finished(0))
    assert (left().trial, left().attempts) == (0, 1)
    files.trial.unlink()
    assert left().ends == ()


def test_a_checkpoint_is_passed_to_the_next_attempt(make, resume):
    def count(learning_rate, optimizer):
        state = Path(experiment.checkpoint_dir(), "state")
        before = int(state.read_text()) if state.exists() else 0
        return {"accuracy": before + 1.0}

    run = make(trials=2, running=(0,), ended=False, function=hash_of(count))
    checkpoint = RunPaths(run).attempt(0).checkpoint
    checkpoint.mkdir()
    (checkpoint / "state").write_text("41")
    result = resume(run, grid(2), train=count)
    assert table(result) == {0: ("finished", 42.0)} | kept([1])


# TensorBoard.


def runs(root):
    """Return the folders that TensorBoard shows as runs."""
    return {str(path.parent.relative_to(root)) for path in root.rglob("*tfevents*")}


def test_tensorboard_shows_each_trial_and_each_point_once(make, resume):
    run = make(trials=8, generations=True, lost=(3,), running=(6, 7), algorithm=EVOLUTION)
    result = resume(run, BOUNDS, by_generation, popsize=4, generations=2)
    assert len(result.trials) == 12
    folders = {str(Path(trial.logdir).relative_to(run)) for trial in result.trials}
    assert {"trials/000003-2", "trials/000006-2", "trials/000007-2"} <= folders
    assert runs(run) == {"search", *folders}
    curves = scalars(run / "search")
    for name in ("done", "failed", "best_so_far"):
        assert [step for step, _ in curves[f"search/{name}"]] == list(range(1, 13)), name
    assert curves["search/done"][-1] == (12, 12.0)
    assert curves["search/best_so_far"][-1] == (12, pytest.approx(result.best.value))
    for name in ("best", "mean", "diversity"):
        assert [step for step, _ in curves[f"generation/{name}"]] == [0, 1, 2]
    config = table_config(run / "search")
    assert {info.name for info in config.hparam_infos} == {*BOUNDS, "generation"}
    for folder in folders:
        tags = [tag for tag, _, _ in values(run / folder)]
        for tag in ("session_start_info", "session_end_info"):
            assert tags.count(f"_hparams_/{tag}") == 1, folder


def test_a_repeatedly_resumed_run_shows_the_same(make, resume):
    run = make(trials=6, failed=(1,))
    before = scalars(run / "search")
    for _ in range(3):
        resume(run)
    assert scalars(run / "search").keys() == before.keys()
    assert scalars(run / "search")["search/done"] == before["search/done"]
    assert len(list((run / "search").glob("*tfevents*"))) == 1
    assert msgspec.json.decode((run / "result.json").read_bytes())["failed"] == 1
    assert len(list(read_journal(run / "journal"))) == 15 + 3


def test_a_difference_at_the_end_of_long_values_is_shown():
    before, now = (f"/a/folder{'/of/many' * 20}/run-{number}" for number in (1, 2))
    (difference,) = space_differences({"data": before}, {"data": now})
    assert difference == f"space of 'data' was {before!r}, is {now!r}"


def refused_run(make, **run):
    """Make a run whose searcher differs from that of its manifest."""
    run = make(call="random_search", trials=5, **run)
    path = run / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["seed"] += 1
    path.write_text(json.dumps(manifest))
    return run


def test_a_run_of_another_search_is_refused_and_not_changed(make, resume):
    run = refused_run(make)
    before = contents(run)
    with pytest.raises(InvalidArgument, match="resume: expected the search that began, with"):
        resume(run, BOUNDS, experiment.random_search, samples=5)
    assert resume.jobs == 0
    assert contents(run) == before


class FullFile(io.FileIO):
    """A file of mode 0600, unlike /dev/full, on a full disk."""

    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("opener", "full"),
    [
        (
            "experiment.run_files.journal.open_appending",
            lambda _: os.open("/dev/full", os.O_WRONLY),
        ),
        (
            "spark_jobs.trial.events.event_file.open_appending",
            lambda _: os.open("/dev/full", os.O_WRONLY),
        ),
        (
            "spark_jobs.handover.open_new",
            lambda path: FullFile(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb"),
        ),
    ],
)
def test_a_full_disk_at_the_first_record_fails_the_search(make, resume, monkeypatch, opener, full):
    run = make(trials=6, running=(2, 4), ended=False)
    monkeypatch.setattr(opener, lambda path, **_: full(path))
    with pytest.raises(experiment.SearchFailed) as raised:
        resume(run)
    said = "the driver cannot continue: OSError: [Errno 28] No space left on device"
    assert str(raised.value).startswith(said)
    assert raised.value.result.problem == str(raised.value)
    assert resume.jobs == 0
    monkeypatch.undo()
    assert len(resume(run).trials) == 6


def drawn(x):
    return random.random()


def test_the_trials_of_a_resumed_run_are_seeded_as_those_before(spark, logdir):
    def search(samples, **settings):
        return experiment.random_search(
            spark, drawn, {"x": [0.0, 1.0]}, samples=samples, parallelism=1, **QUIET, **settings
        )

    begun = search(2, logdir=logdir, seed=3)
    gone_on = search(3, resume=begun)
    whole = search(4, logdir=logdir, seed=3)
    values = [trial.value for trial in search(4, resume=gone_on).trials]
    assert values == [trial.value for trial in whole.trials]


class Unsteady:
    """An algorithm that raises as it proposes a trial, if it is told to."""

    def __init__(self, *, raises):
        self._raises = raises

    def start(self, problem):
        search = PointSearch([{"x": 1}, {"x": 2}])
        if self._raises:
            search.ask = self._fail
        return search

    def _fail(self):
        raise KeyError("x")

    def to_json(self):
        return {"type": "unsteady"}


def test_an_algorithm_that_raises_on_resume_fails_the_search_and_changes_no_run(spark, logdir):
    def search(*, raises, **settings):
        searcher = Unsteady(raises=raises)
        return experiment.run(spark, drawn, {"x": [1, 2]}, searcher=searcher, **QUIET, **settings)

    run = Path(search(raises=False, logdir=logdir).logdir)
    (run / "result.json").unlink()
    before = contents(run)
    with pytest.raises(experiment.SearchFailed, match=r"^PointSearch.ask\(\) raised KeyError") as e:
        search(raises=True, resume=run)
    assert e.value.result.problem == str(e.value)
    assert contents(run) == before
    assert search(raises=False, resume=run).done == 2


def scored_by_group(group, x):
    return (x - 1) ** 2 if group == "a" else x


@pytest.mark.parametrize("generational", [False, True])
def test_a_search_of_each_group_is_resumed_with_more_generations(spark, logdir, generational):
    def search(generations, **settings):
        return experiment.search_each(
            spark,
            scored_by_group,
            {"a": {"x": [0.0, 2.0]}, "b": {"x": [0.0, 3.0]}},
            searcher=Evolution(popsize=4, generations=generations, generational=generational),
            parallelism=1,
            **QUIET,
            **settings,
        )

    begun = search(1, logdir=logdir, seed=3)
    gone_on = search(2, resume=begun)
    assert [len(gone_on[group].trials) for group in "ab"] == [12, 12]
    assert gone_on.overall.trials[:16] == begun.overall.trials
    with pytest.raises(InvalidArgument, match="its trials were 24, are 16"):
        search(1, resume=gone_on)


def test_a_search_of_each_group_is_resumed_with_more_samples(spark, logdir):
    def search(samples, **settings):
        return experiment.search_each(
            spark,
            scored_by_group,
            {"a": {"x": [0.0, 2.0]}, "b": {"x": [0.0, 3.0]}},
            samples=samples,
            parallelism=1,
            **QUIET,
            **settings,
        )

    begun = search(4, logdir=logdir, seed=3)
    gone_on = search(6, resume=begun)
    assert [len(gone_on[group].trials) for group in "ab"] == [6, 6]
    assert gone_on.overall.trials[:8] == begun.overall.trials
