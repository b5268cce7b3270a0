"""The effect of records on a searcher, a judge and the state of a run, without a journal."""

from __future__ import annotations

import pytest

from experiment.driver.trials.in_flight import InFlight
from experiment.driver.trials.judge import Judge
from experiment.driver.trials.replay import Replay
from experiment.run_files.journal_records import Finished, Lost, Planned, Reported, Selected
from experiment.run_files.run_state import RunState
from search.checked_searcher import CheckedSearcher
from search.direction import Direction
from search.errors import InvalidArgument
from search.grid import PointSearch
from search.searcher import Selection
from search.stopping.rules import Threshold
from search.trial import Failure, Outcome, Trial
from spark_jobs.messages import Attempt, Report
from spark_jobs.run_folder.paths import RunPaths
from tests.experiment.runs import begun


class Resumed:
    """The objects of a resumed search with three points."""

    def __init__(self, root, stopping=()):
        self.state = RunState(RunPaths(root))
        self.searcher = CheckedSearcher(PointSearch([{"x": number} for number in range(3)]))
        self.in_flight = InFlight(lambda: 0.0)
        self.ended, self.selected = [], []
        self.replay = Replay(
            self.state,
            searcher=self.searcher,
            judge=Judge(Direction.MAX, "loss", stopping, state=self.state, warn=pytest.fail),
            in_flight=self.in_flight,
            ended=self.end,
            selected=self.selected.append,
        )

    def end(self, outcome):
        running = [out.attempt.trial.id for out in self.in_flight.running]
        self.ended.append((outcome.trial, outcome.value, running))
        self.in_flight.remove(outcome.trial)


@pytest.fixture
def resumed(tmp_path):
    return Resumed(tmp_path)


def planned(trial, number=1, slot="1.0.0"):
    return Planned.of(attempt(trial, number), (slot,), 0.0)


def attempt(trial, number=1):
    return Attempt(Trial(trial, {"x": trial}), number)


def lost(trial, number=1):
    failure = Failure(kind="lost executor", message="its executor was lost")
    return Lost.of(attempt(trial, number), "1.0.0", failure, counts=True, at=0.0)


def finished(trial, value=1.0, objective="loss"):
    outcome = Outcome(trial, "finished", value, objective, {objective: value})
    return Finished(1, outcome, at=0.0)


def test_the_searcher_continues_after_the_trials_of_the_journal(resumed):
    last = resumed.replay.run([planned(0), planned(1), finished(1)])
    assert resumed.searcher.ask() == Trial(2, {"x": 2})
    assert {trial: out.attempt for trial, out in last.items()} == {0: attempt(0), 1: attempt(1)}
    assert len(resumed.in_flight) == 0


def test_a_trial_that_ran_again_is_asked_for_once(resumed):
    last = resumed.replay.run([planned(0), lost(0), planned(0, 2)])
    assert resumed.searcher.ask() == Trial(1, {"x": 1})
    assert last[0].attempt == attempt(0, 2)
    assert resumed.state.in_flight == {0: attempt(0, 2)}


@pytest.mark.parametrize(
    ("before", "now"), [(Trial(0, {"x": 9}), "trial 0 with {'x': 0}"), (Trial(3, {}), "no trial")]
)
def test_a_searcher_that_asks_for_other_trials_is_refused(resumed, before, now):
    records = [planned(0), planned(1), planned(2)] if before.id == 3 else []
    with pytest.raises(InvalidArgument, match="resume") as raised:
        resumed.replay.run([*records, Planned.of(Attempt(before), ("1.0.0",), 0.0)])
    assert raised.value.got == now
    assert f"trial {before.id} with {dict(before.params)}" in str(raised.value)


def test_each_outcome_is_received_once_with_the_trials_in_flight(resumed):
    cancelled = Finished(1, Outcome(2, "cancelled"), at=0.0)
    resumed.replay.run(
        [
            *(planned(0), planned(1), lost(1), finished(0, 0.5), finished(0, 0.75)),
            *(planned(1, 2), planned(2), finished(1, 0.25), cancelled),
        ]
    )
    assert resumed.ended == [(0, 0.5, [0]), (1, 0.25, [1, 2])]


def test_trials_in_flight_of_a_previous_driver_wait_to_run_again(resumed):
    resumed.replay.run([planned(0), begun(1, 3), planned(1), finished(1)])
    assert resumed.ended == [(1, 1.0, [1])]
    assert resumed.state.waiting == {0: attempt(0, 2)}


def test_an_outcome_of_the_journal_causes_no_second_warning(resumed):
    stopped = Finished(1, Outcome(1, "stopped", None, "metric", {"metric": 1.0}), at=0.0)
    resumed.replay.run([planned(0), planned(1), finished(0), stopped])
    assert [result.status for result in resumed.state.results] == ["finished", "stopped"]


def test_the_last_report_of_a_trial_and_its_reason_to_stop_are_restored(tmp_path):
    resumed = Resumed(tmp_path, [Threshold(upper=1.0)])
    reports = [Report(0, {"loss": 0.5}), Report(1, {"loss": 2.5})]
    last = resumed.replay.run([planned(0), planned(1), Reported(0, 1, reports, at=0.0)])
    assert last[0].last == Report(1, {"loss": 2.5})
    assert last[0].stop == "step 1: 2.5 is above the threshold 1"
    assert (last[1].last, last[1].stop) == (None, "")


def test_reports_without_stopping_rules_are_ignored(resumed):
    reports = [Report(0, {"loss": 0.5})]
    last = resumed.replay.run([planned(0), Reported(0, 1, reports, at=0.0)])
    assert (last[0].last, last[0].stop) == (None, "")


def test_selections_are_passed_on(resumed):
    selected = Selected([Selection(0, True, None)], at=0.0)
    resumed.replay.run([planned(0), finished(0), selected])
    assert resumed.selected == [{0}]
