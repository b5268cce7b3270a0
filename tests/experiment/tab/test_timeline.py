from pathlib import Path

import pytest

from experiment.run_files.journal_records import (
    Begun,
    Finished,
    Joined,
    Left,
    Lost,
    Planned,
    Selected,
    Waiting,
)
from experiment.tab.timeline import Timeline
from search.searcher import Selection
from search.trial import Outcome, Trial
from spark_jobs.run_folder.paths import RunPaths


@pytest.fixture
def timeline():
    return Timeline(RunPaths(Path("/run")))


def begun(at=0.0):
    return Begun(at=at, records=0, application="app", created="", function="", trials=3)


def planned(trial, at, attempt=1, slots=("1.0.0",), **facts):
    return Planned(
        Trial(trial, {"x": trial}, **facts), attempt, slots[0], slots if slots[1:] else (), at=at
    )


def finished(trial, at, attempt=1, value=1.0, objective="accuracy"):
    return Finished(attempt, Outcome(trial, "finished", value, objective), at=at)


def lost(trial, at, attempt=1):
    return Lost(
        at=at,
        trial=trial,
        attempt=attempt,
        slot="1.0.0",
        kind="lost executor",
        message="host gone",
        counts=True,
    )


def apply(timeline, *records):
    for record in records:
        timeline.apply(record)


def test_an_attempt_has_the_times_at_which_it_was_given_and_ended(timeline):
    apply(timeline, begun(), planned(0, 1.0, generation=2, parent=None), finished(0, 4.0))
    [attempt] = timeline.attempts[0]
    assert (attempt.start, attempt.end, attempt.ending) == (1.0, 4.0, "finished")
    assert attempt.slots == ("1.0.0",)
    assert timeline.origins[0] == (2, None)
    assert timeline.ended_trials[0].value == 1.0


def test_a_lost_attempt_stays_beside_the_next_one(timeline):
    apply(timeline, begun(), planned(0, 1.0), lost(0, 2.0), planned(0, 3.0, 2), finished(0, 5.0, 2))
    first, second = timeline.attempts[0]
    assert (first.ending, first.end, first.why) == ("lost", 2.0, "host gone")
    assert (second.ending, second.number, second.end) == ("finished", 2, 5.0)


def test_attempts_in_flight_end_with_their_driver(timeline):
    apply(timeline, begun(), planned(0, 1.0), finished(0, 2.0), planned(1, 2.5), begun(9.0))
    [attempt] = timeline.attempts[1]
    assert (attempt.ending, attempt.end, attempt.why) == ("lost", 2.5, "its driver ended")
    assert timeline.attempts[0][0].ending == "finished"


def test_a_cancelled_trial_has_no_outcome_after_a_resume(timeline):
    cancelled = Finished(1, Outcome(0, "cancelled"), at=2.0)
    apply(timeline, begun(), planned(0, 1.0), cancelled)
    assert timeline.ended_trials[0].status == "cancelled"
    apply(timeline, begun(3.0))
    assert timeline.ended_trials == {}
    assert timeline.changed_after(3) == [0]
    [attempt] = timeline.attempts[0]
    assert (attempt.ending, attempt.end, attempt.why) == ("lost", 2.0, "its search ended")
    assert attempt.status(None) == "waiting"


def test_an_attempt_whose_outcome_a_resume_has_found_ended_with_its_driver(timeline):
    found = planned(0, 9.0, slots=("",))
    apply(timeline, begun(), planned(0, 1.0), planned(1, 2.0), begun(9.0), found, finished(0, 9.5))
    first, second = timeline.attempts[0]
    assert (first.ending, first.end, first.slots) == ("lost", 2.0, ("1.0.0",))
    assert (second.ending, second.end, second.slots) == ("finished", 9.5, ())


def test_a_lost_attempt_keeps_its_end_when_its_trial_is_cancelled_before_the_next_one(timeline):
    cancelled = Finished(1, Outcome(0, "cancelled"), at=5.0)
    apply(timeline, begun(), planned(0, 1.0), lost(0, 2.0), cancelled)
    [attempt] = timeline.attempts[0]
    assert (attempt.ending, attempt.end, attempt.why) == ("lost", 2.0, "host gone")
    assert timeline.ended_trials[0].status == "cancelled"


def test_what_changed_after_a_version_is_what_later_records_touched(timeline):
    apply(timeline, begun(), planned(0, 1.0), planned(1, 1.0), finished(0, 2.0))
    assert timeline.changed_after(0) == [0, 1]
    assert timeline.changed_after(2) == [0, 1]
    assert timeline.changed_after(3) == [0]
    assert timeline.changed_after(timeline.version) == []


def test_all_trials_change_when_the_objective_gets_another_name(timeline):
    stopped = Finished(1, Outcome(0, "stopped", 0.5, "loss", reason="step 1"), at=2.0)
    apply(timeline, begun(), planned(0, 1.0), stopped, planned(1, 2.0))
    version = timeline.version
    assert timeline.ended_trials[0].value == 0.5
    apply(timeline, finished(1, 3.0))
    assert timeline.ended_trials[0].value is None
    assert timeline.changed_after(version) == [0, 1]


def test_slots_join_wait_and_leave(timeline):
    apply(
        timeline,
        begun(),
        Joined("1.0.0", "host", ("0", "1"), at=1.0),
        Joined("1.1.0", "other", (), at=1.0),
        Waiting("1.0.0", "no trial yet", at=2.0),
        Left("1.0.0", "lost", at=3.0),
    )
    assert timeline.present == {"1.1.0"}
    events = [(event.what, event.slot, event.text) for _, event in timeline.slot_events]
    assert events == [
        ("begun", "", "app"),
        ("joined", "1.0.0", "host, GPU 0, 1"),
        ("joined", "1.1.0", "other"),
        ("waiting", "1.0.0", "no trial yet"),
        ("left", "1.0.0", "lost"),
    ]
    assert (timeline.began, timeline.last) == (0.0, 3.0)


def test_selections_keep_their_order(timeline):
    first, second = Selection(0, True, None), Selection(1, False, 0)
    apply(timeline, begun(), Selected([first], at=1.0), Selected([second], at=2.0))
    assert timeline.selections == [(2, first), (3, second)]
