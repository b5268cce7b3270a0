"""The reading of a run to resume, without Spark."""

import pytest

from experiment.run_files.format import FORMAT
from experiment.run_files.journal import encode_line
from experiment.setup.resuming import (
    check_same_search,
    manifest_of,
    read_past,
    recorded_argument,
)
from search.errors import InvalidArgument
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.locations import Location
from tests.experiment.runs import make_manifest, make_run, make_search


def test_a_run_that_a_newer_version_resumed_is_refused(tmp_path):
    run = make_run(tmp_path)
    later = {"event": "begun", "records": 99, "format": FORMAT + 1}
    (run / "journal" / "000002.jsonl").write_bytes(encode_line(later))
    with pytest.raises(InvalidArgument, match="^resume: .* of format 2, while"):
        read_past(LocalFiles(), Location.parse(str(run)), make_search(6))


def test_a_missing_run_folder_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="^resume: expected the folder of a run"):
        manifest_of(tmp_path / "gone")


@pytest.mark.parametrize(
    ("recorded", "candidates"),
    [
        ({"type": "differential evolution", "generational": False, "candidates": 20}, 20),
        ({"type": "differential evolution", "generational": False}, 5),
        ({"type": "differential evolution", "generational": True}, None),
        ({"type": "random"}, None),
    ],
)
def test_a_run_of_an_earlier_version_had_five_candidates(tmp_path, recorded, candidates):
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
