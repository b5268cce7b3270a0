"""The reading of a run to resume, without Spark."""

import contextlib
import math
import re

import pytest

from experiment.run_files.format import FORMAT
from experiment.run_files.journal import Journal, encode_line, read_journal
from experiment.run_files.journal_records import Lost, Planned, read_records
from experiment.setup.resuming import (
    check_same_search,
    manifest_of,
    read_past,
    recorded_argument,
    space_differences,
)
from search.errors import InvalidArgument
from search.space.spaces import Choice
from search.trial import Failure, Outcome
from spark_jobs.messages import Attempt, encode
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.locations import Location
from spark_jobs.storage.refusals import StorageFailed
from tests.experiment.runs import begun, make_manifest, make_run, make_search


def test_a_run_that_a_newer_version_resumed_is_refused(tmp_path):
    run = make_run(tmp_path)
    later = {"event": "begun", "records": 99, "format": FORMAT + 1}
    (run / "journal" / "000002.jsonl").write_bytes(encode_line(later))
    with pytest.raises(InvalidArgument, match="^resume: .* of format 2, while"):
        read_past(LocalFiles(), Location.parse(str(run)), make_search(6))


def test_a_missing_run_folder_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="^resume: expected the folder of a run"):
        manifest_of(tmp_path / "gone")


def test_a_run_on_storage_that_may_work_again_is_no_bad_input(monkeypatch):
    def fail(*_):
        raise ConnectionError("HDFS failed for 120 s")

    monkeypatch.setattr("experiment.run_files.loading.files_at", fail)
    with pytest.raises(StorageFailed, match="^resume: .*that cannot be read: HDFS failed for 120"):
        manifest_of("hdfs://host/runs/train")


@pytest.mark.parametrize(
    ("recorded", "candidates"),
    [
        ({"type": "differential evolution", "generational": False, "candidates": 20}, 20),
        ({"type": "differential evolution", "generational": False}, 5),
        ({"type": "differential evolution", "generational": True}, None),
        ({"type": "NSGA-II", "generational": False, "candidates": 20}, 20),
        ({"type": "NSGA-II", "generational": False}, 1),
        ({"type": "NSGA-II", "generational": True}, None),
        ({"type": "random"}, None),
    ],
)
def test_a_run_of_an_earlier_version_had_fewer_candidates(tmp_path, recorded, candidates):
    run = make_run(tmp_path, algorithm=recorded)
    assert recorded_argument(run, "candidates") == candidates


def test_another_number_of_workers_or_strategy_is_told():
    mirrored = {"workers_per_trial": 2, "strategy": {"type": "mirrored"}}
    alone, two, others = (
        make_manifest(make_search(6), **changes)
        for changes in ({}, mirrored, mirrored | {"strategy": None})
    )
    assert check_same_search(two, two, "a") == []
    assert check_same_search(two, alone, "a") == [
        "workers_per_trial was 2 when 'a' was started, is 1"
    ]
    assert check_same_search(two, others, "a") == [
        "strategy was {'type': 'mirrored'} when 'a' was started, is None"
    ]


def test_another_precision_is_told():
    plain, half = (
        make_manifest(make_search(6), precision=precision) for precision in (None, "mixed_bfloat16")
    )
    assert check_same_search(half, half, "a") == []
    assert check_same_search(plain, half, "a") == [
        "precision was None when 'a' was started, is mixed_bfloat16"
    ]


@pytest.mark.parametrize(
    ("before", "now", "difference"),
    [
        (3, 9, None),
        (9, 3, "generations was 9, is 3"),
        (None, None, None),
        (None, 9, "generations was None, is 9"),
        ({"most": 3}, {"most": 3}, None),
    ],
)
def test_a_budget_may_grow_if_it_is_a_number(before, now, difference):
    was, is_now = (
        make_manifest(make_search(6), algorithm={"type": "own", "generations": budget})
        for budget in (before, now)
    )
    with contextlib.ExitStack() as entered:
        if difference is not None:
            entered.enter_context(pytest.raises(InvalidArgument, match=re.escape(difference)))
        assert check_same_search(was, is_now, "a") == []


def is_plan(record):
    return isinstance(record, Planned)


def past(run, search):
    return read_past(LocalFiles(), Location.parse(str(run)), search)


@pytest.mark.parametrize("trials", [6, 7])
def test_a_search_with_as_many_trials_or_more_continues_a_run(tmp_path, trials):
    run = make_run(tmp_path, ended=False, running=[5])
    assert past(run, make_search(trials)).segments == 1


def test_a_search_with_fewer_trials_than_its_run_is_refused(tmp_path):
    run = make_run(tmp_path, ended=False, running=[5])
    with pytest.raises(InvalidArgument, match="^resume: .*its trials were 6, are 5$"):
        past(run, make_search(5))


def test_a_failure_in_the_folder_of_a_lost_attempt_or_of_a_gang_is_no_outcome(tmp_path):
    run = make_run(tmp_path, ended=False, running=[2, 3, 4, 5])
    lines = list(read_journal(run / "journal"))
    trials = {
        record.trial.id: record.trial for record in read_records(lines, "") if is_plan(record)
    }
    failure = Failure(kind="user error", message="ValueError: too large")
    lost, in_gang, alone, finished = (Attempt(trials[number], 2) for number in (2, 3, 4, 5))
    with Journal(run / "journal") as journal:
        journal.append(begun(len(lines), 6))
        for attempt in (lost, in_gang, alone, finished):
            slots = ("2.0.0", "2.1.0") if attempt is in_gang else ("2.0.0",)
            journal.append(Planned.of(attempt, slots, 0.0))
        journal.append(Lost.of(lost, "2.0.0", failure, counts=True, at=0.0))
    paths, outcomes = RunPaths(run), {}
    for attempt in (lost, in_gang, alone, finished):
        number = attempt.trial.id
        outcomes[number] = Outcome(number, "failed", error=failure)
        if attempt is finished:
            outcomes[number] = Outcome(number, "finished", 0.5, "accuracy", {"accuracy": 0.5})
        files = paths.attempt(number, 2)
        files.folder.mkdir(parents=True)
        files.trial.write_bytes(encode(attempt))
        files.outcome.write_bytes(encode(outcomes[number]))
    left = past(run, make_search(6)).left
    assert {found.trial: found.ends for found in left} == {
        2: (),
        3: (),
        4: ((alone, outcomes[4]),),
        5: ((finished, outcomes[5]),),
    }


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(
    ("now", "difference"),
    [
        ([{"x": 1}, {"x": 2}, {"x": 3}], None),
        ([{"x": 1}, {"x": 2}, {"x": 3}, {"x": 4}], None),
        ([{"x": 1}, {"x": 2}, {"x": 4}], "point 2 was {'x': 3}, is {'x': 4}"),
        ([{"x": 1}, {"x": 2}], "point 2 was {'x': 3}, is None"),
    ],
)
def test_the_points_of_a_run_stay_the_same(tmp_path, ended, now, difference):
    points = [{"x": 1}, {"x": 2}, {"x": 3}]
    run = make_run(tmp_path, points=points, ended=ended, running=[] if ended else [2])
    with contextlib.ExitStack() as entered:
        if difference is not None:
            entered.enter_context(pytest.raises(InvalidArgument, match=re.escape(difference)))
        assert past(run, make_search(len(now), points=now)).records


def test_a_space_with_nan_among_its_choices_is_the_same():
    spaces = [{"clip": Choice([1.0, value])} for value in (math.nan, float("nan"), 2.0)]
    assert list(space_differences(spaces[0], spaces[1])) == []
    assert len(list(space_differences(spaces[0], spaces[2]))) == 1


def test_a_point_with_nan_is_the_same(tmp_path):
    run = make_run(tmp_path, points=[{"x": math.nan}, {"x": 2}])
    assert past(run, make_search(2, points=[{"x": float("nan")}, {"x": 2}])).records
