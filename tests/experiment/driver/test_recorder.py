"""The records that events add to the journal, with a journal on disk and no search."""

from __future__ import annotations

import itertools

import pytest

from experiment.driver.recorder import Recorder
from experiment.run_files.journal import Journal, read_journal
from experiment.run_files.journal_records import (
    Finished,
    Joined,
    Left,
    Lost,
    Planned,
    Reported,
    Selected,
    Waiting,
    read_records,
)
from experiment.run_files.run_state import RunState
from search.searcher import Selection
from search.trial import Failure, Outcome, Trial
from spark_jobs.messages import Attempt, Report, encode
from spark_jobs.run_folder.paths import RunPaths
from tests.experiment.runs import begun

FIRST = Attempt(Trial(0, {"x": 0}))
FINISHED = Outcome(0, "finished", 1.0, "metric", {"metric": 1.0})


class Recording:
    """A recorder with its journal and its state; each record is a second after the previous one."""

    def __init__(self, root):
        self.paths = RunPaths(root)
        self.journal = Journal(self.paths.journal)
        self.state = RunState(self.paths)
        self.recorder = Recorder(self.journal, self.state, itertools.count(1.0).__next__)
        self.first = begun(trials=2)
        self.recorder.begun(self.first)

    @property
    def records(self):
        """The records after the first."""
        first, *others = read_records(read_journal(self.paths.journal), "the journal")
        assert first == self.first
        return others


@pytest.fixture
def recording(tmp_path):
    it = Recording(tmp_path)
    with it.journal:
        yield it


def test_each_record_has_its_time_and_changes_the_state(recording):
    recorder, failure = recording.recorder, Failure(kind="machine", message="no space left")
    recorder.joined("1.0.0", "a", ("0",))
    recorder.planned(FIRST, ("1.0.0",))
    recorder.lost(FIRST, "1.0.0", failure, counts=True)
    assert recording.state.waiting == {0: Attempt(FIRST.trial, 2)}
    recorder.planned(Attempt(FIRST.trial, 2), ("1.0.0",))
    recorder.reported(0, 2, (Report(1, {"metric": 0.5}),))
    recorder.finished(Attempt(FIRST.trial, 2), FINISHED)
    recorder.left("1.0.0", "nothing is left")
    assert recording.records == [
        Joined("1.0.0", "a", ("0",), at=1.0),
        Planned(FIRST.trial, 1, "1.0.0", at=2.0),
        Lost.of(FIRST, "1.0.0", failure, counts=True, at=3.0),
        Planned(FIRST.trial, 2, "1.0.0", at=4.0),
        Reported(0, 2, [Report(1, {"metric": 0.5})], at=5.0),
        Finished(2, FINISHED, at=6.0),
        Left("1.0.0", "nothing is left", at=7.0),
    ]
    folded = RunState(recording.paths)
    for record in (begun(trials=2), *recording.records):
        folded.apply(record)
    assert folded == recording.state


def test_an_attempt_without_a_slot_is_recorded_with_an_empty_slot(recording):
    recording.recorder.planned(FIRST, ())
    assert recording.records == [Planned(FIRST.trial, 1, "", at=1.0)]


def test_the_acquisition_of_a_trial_is_recorded_and_left_out_without_one(recording):
    recording.recorder.planned(FIRST, ("1.0.0",), -2.5)
    recording.recorder.planned(FIRST, ("1.0.0",))
    assert [record.acquisition for record in recording.records] == [-2.5, None]
    assert b"acquisition" not in encode(recording.records[1])


def test_a_waiting_slot_is_recorded_once_per_reason(recording):
    recorder = recording.recorder
    for why in ("no trial yet", "no trial yet", "nothing left"):
        recorder.waits("1.0.0", why)
        recorder.waits("1.1.0", "no trial yet")
    assert recording.records == [
        Waiting("1.0.0", "no trial yet", at=1.0),
        Waiting("1.1.0", "no trial yet", at=2.0),
        Waiting("1.0.0", "nothing left", at=3.0),
    ]


@pytest.mark.parametrize("between", ["planned", "left"])
def test_a_slot_that_waits_after_a_trial_or_after_leaving_is_recorded_again(recording, between):
    recorder = recording.recorder
    recorder.waits("1.0.0", "no trial yet")
    if between == "planned":
        recorder.planned(FIRST, ("1.0.0",))
    else:
        recorder.left("1.0.0", "nothing is left")
    recorder.waits("1.0.0", "no trial yet")
    assert [type(record) for record in recording.records].count(Waiting) == 2


def selected(recording):
    return [record.selections for record in recording.records if isinstance(record, Selected)]


def test_selections_are_recorded_together_and_once(recording):
    recorder, selections = recording.recorder, [Selection(n, True, None) for n in range(3)]
    recorder.write_selections()
    assert selected(recording) == []
    recorder.selected(selections[:1])
    recorder.selected(selections[1:])
    recorder.write_selections()
    recorder.write_selections()
    assert selected(recording) == [selections]


def test_selections_of_the_journal_are_not_recorded_again(recording):
    recorder, selections = recording.recorder, [Selection(n, True, None) for n in range(3)]
    recorder.selected(selections)
    recorder.has_selected({0, 2})
    recorder.write_selections()
    assert selected(recording) == [[selections[1]]]


def test_dropped_selections_are_not_recorded(recording):
    recorder = recording.recorder
    recorder.selected([Selection(0, True, None)])
    recorder.drop_selections()
    recorder.write_selections()
    assert selected(recording) == []


def test_a_record_that_cannot_be_written_does_not_change_the_state(tmp_path):
    class FullDisk:
        def append(self, record):
            raise OSError("No space left on device")

    state = RunState(RunPaths(tmp_path))
    with pytest.raises(OSError, match="No space left"):
        Recorder(FullDisk(), state, float).planned(FIRST, ("1.0.0",))
    assert state == RunState(RunPaths(tmp_path))
