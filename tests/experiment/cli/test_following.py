"""When the output of a trial is not followed any longer."""

import os

import pytest

from experiment.cli.following import Followed
from experiment.run_files.journal import encode_line
from experiment.run_files.journal_records import Finished, Lost, Planned
from search.trial import Failure, Outcome, Trial
from spark_jobs.messages import Attempt, encode
from spark_jobs.run_folder.paths import RunPaths
from tests.experiment.display.searches import Clock
from tests.experiment.runs import make_run, mark_as_owned

TRIAL = Trial(3, {})
FAILURE = Failure(kind="machine", message="the process that supervised it was killed", traceback="")


@pytest.fixture
def paths(tmp_path):
    """A run whose trial 3 is in flight."""
    return RunPaths(make_run(tmp_path, running=(3,), ended=False))


def append(paths, *records):
    """Append records to the journal of a run."""
    with (paths.journal / "000001.jsonl").open("ab") as file:
        file.write(b"".join(map(encode_line, records)))


def test_a_failure_is_the_end_only_if_the_driver_records_it_as_the_outcome(paths):
    followed, first, second = Followed(paths, 3), paths.attempt(3).outcome, paths.attempt(3, 2)
    assert not followed.has_ended(1, first)
    first.write_bytes(encode(Outcome(3, "failed", error=FAILURE)))
    assert not followed.has_ended(1, first)  # the driver has not heard of it yet
    append(paths, Lost.of(Attempt(TRIAL, 1), "1.3.0", FAILURE, counts=True, at=2.0))
    assert not followed.has_ended(1, first)
    append(paths, Planned(TRIAL, 2, "1.4.0", at=3.0))
    assert not followed.has_ended(2, second.outcome)
    append(paths, Finished(2, Outcome(3, "failed", error=FAILURE), at=4.0))
    assert followed.has_ended(2, second.outcome)


def test_the_outcome_of_an_attempt_that_was_given_up_is_no_end(paths):
    followed, outcome = Followed(paths, 3), paths.attempt(3).outcome
    append(paths, Lost.of(Attempt(TRIAL, 1), "1.3.0", FAILURE, counts=True, at=2.0))
    outcome.write_bytes(encode(Outcome(3, "finished", 0.5, "accuracy")))
    assert not followed.has_ended(1, outcome)


@pytest.mark.parametrize("status", ["finished", "stopped"])
def test_any_other_outcome_is_the_end_before_the_driver_records_it(paths, status):
    outcome = paths.attempt(3).outcome
    outcome.write_bytes(encode(Outcome(3, status, 0.5, "accuracy")))
    assert Followed(paths, 3).has_ended(1, outcome)


def test_a_trial_of_a_driver_elsewhere_is_followed_while_that_gives_signs_of_life(paths):
    elsewhere = {"boot": "0" * 32, "namespace": 1, "started": 1}
    mark_as_owned(paths.root, origin=elsewhere)
    clock = Clock()
    followed, outcome = Followed(paths, 3, clock), paths.attempt(3).outcome
    for second in range(50):
        clock.now += 1
        if second < 20:
            os.utime(paths.owners / "000001.json", (second, second))
        assert followed.has_ended(1, outcome) == (second >= 49)
