"""What a journal's records do to a searcher, a judge and the state of a run, without a journal."""

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
from search.stopping import Threshold
from search.trial import Failure, Outcome, Trial
from spark_jobs.messages import Attempt, Report
from spark_jobs.run_folder.paths import RunPaths
from tests.experiment.runs import begun


class Resumed:
    """What is there when a search of three points is resumed."""

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
    return Planned.of(attempt(trial, number), slot, 0.0)


def attempt(trial, number=1):
    return Attempt(Trial(trial, {"x": trial}), number)


def lost(trial, number=1):
    failure = Failure("lost executor", "its executor was lost")
    return Lost.of(attempt(trial, number), "1.0.0", failure, counts=True, at=0.0)


def finished(trial, value=1.0, objective="loss"):
    outcome = Outcome(trial, "finished", value, objective, {objective: value})
    return Finished(1, outcome, at=0.0)


def test_the_searcher_goes_on_after_the_trials_of_the_journal(resumed):
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
        resumed.replay.run([*records, Planned.of(Attempt(before), "1.0.0", 0.0)])
    assert raised.value.got == now
    assert f"trial {before.id} with {dict(before.params)}" in str(raised.value)


def test_each_end_is_taken_in_once_with_what_ran_then(resumed):
    cancelled = Finished(1, Outcome(2, "cancelled"), at=0.0)
    resumed.replay.run(
        [
            *(planned(0), planned(1), lost(1), finished(0, 0.5), finished(0, 0.75)),
            *(planned(1, 2), planned(2), finished(1, 0.25), cancelled),
        ]
    )
    assert resumed.ended == [(0, 0.5, [0]), (1, 0.25, [1, 2])]


def test_what_ran_when_a_driver_ended_runs_no_more(resumed):
    resumed.replay.run([planned(0), begun(1, 3), planned(1), finished(1)])
    assert resumed.ended == [(1, 1.0, [1])]
    assert resumed.state.waiting == {0: attempt(0, 2)}


def test_an_end_is_held_to_the_objective(tmp_path):
    resumed = Resumed(tmp_path)
    resumed.replay.run([planned(0), planned(1), finished(0), finished(1, objective="metric")])
    assert [result.status for result in resumed.state.results] == ["finished", "failed"]


def test_what_a_trial_reported_last_and_why_it_was_to_stop_is_known(tmp_path):
    resumed = Resumed(tmp_path, [Threshold(upper=1.0)])
    reports = [Report(0, {"loss": 0.5}), Report(1, {"loss": 2.5})]
    last = resumed.replay.run([planned(0), planned(1), Reported(0, 1, reports, at=0.0)])
    assert last[0].last == Report(1, {"loss": 2.5})
    assert last[0].stop == "step 1: 2.5 is above the threshold 1"
    assert (last[1].last, last[1].stop) == (None, "")


def test_reports_without_rules_are_passed_over(resumed):
    reports = [Report(0, {"loss": 0.5})]
    last = resumed.replay.run([planned(0), Reported(0, 1, reports, at=0.0)])
    assert (last[0].last, last[0].stop) == (None, "")


def test_selections_are_passed_on(resumed):
    selected = Selected([Selection(0, True, None)], at=0.0)
    resumed.replay.run([planned(0), finished(0), selected])
    assert resumed.selected == [{0}]
