"""The displayed status of a search, from results alone."""

from __future__ import annotations

import pytest

from experiment.driver.trials.standing import Standing
from experiment.results.status import Output
from experiment.run_files.journal_records import Finished, Planned
from experiment.run_files.run_state import RunState
from search.direction import Direction, Directions
from search.trial import Failure, Outcome, Trial
from spark_jobs.run_folder.paths import RunPaths


class Shown:
    """A standing that receives outcomes, with the state of its run."""

    def __init__(self, root, direction=Direction.MAX, target=None, observers=()):
        self.state, self.warnings = RunState(RunPaths(root)), []
        self.standing = Standing(
            self.state,
            direction=direction,
            target=target,
            observers=observers,
            warn=self.warnings.append,
        )

    def end(self, status="finished", value=None, objective="metric", **fields):
        trial = len(self.state.results)
        self.state.apply(Planned(Trial(trial, {}), 1, "1.0.0", at=0.0))
        named = None if value is None else objective
        error = Failure(kind="user error", message="ValueError: no") if status == "failed" else None
        outcome = Outcome(trial, status, value, named, error=error, seconds=0.5, **fields)
        self.state.apply(Finished(1, outcome, at=0.0))
        result = self.state.results[-1]
        self.standing.take(result)
        self.standing.tell(result, self.status)

    @property
    def status(self):
        return self.standing.overview(total=9, in_flight=0, slots=2, at_once=2)

    @property
    def front(self):
        return [result.id for result in self.status.front]


@pytest.fixture
def shown(tmp_path):
    return Shown(tmp_path)


def test_trials_are_counted_by_their_status(shown):
    for status in ("finished", "failed", "cancelled", "cancelled", "stopped"):
        shown.end(status, 1.0 if status == "finished" else None)
    status = shown.status
    assert (status.ended, status.done, status.failed, status.cancelled) == (5, 3, 1, 2)
    assert (status.total, status.slots) == (9, 2)


def test_typical_seconds_need_two_finished_trials(shown):
    shown.end("failed")
    assert shown.status.typical is None
    for wanted in (None, 0.5):
        shown.end(value=1.0)
        assert shown.status.typical == wanted


@pytest.mark.parametrize(("direction", "best"), [(Direction.MAX, 1), (Direction.MIN, 0)])
def test_the_best_trial_is_the_one_with_the_best_value(tmp_path, direction, best):
    shown = Shown(tmp_path, direction)
    for value in (1.0, 3.0, 2.0, None):
        shown.end("failed" if value is None else "finished", value)
    assert shown.status.best.id == best
    assert shown.front == [best]


def test_several_objectives_have_a_front_and_no_best(tmp_path):
    shown = Shown(tmp_path, Directions({"a": Direction.MAX, "b": Direction.MIN}))
    for a, b in ((1.0, 1.0), (2.0, 2.0), (2.0, 1.5)):
        shown.end(values={"a": a, "b": b})
    assert sorted(shown.front) == [0, 2]
    assert shown.status.best is None
    assert not shown.standing.target_reached


def test_a_front_of_another_objective_is_dropped(shown):
    shown.end("stopped", 5.0, "loss")
    assert shown.status.best.id == 0
    shown.end(value=0.5, objective="metric")
    assert shown.front == [1]
    assert shown.status.objective == "metric"


@pytest.mark.parametrize(("direction", "sign"), [(Direction.MAX, 1), (Direction.MIN, -1)])
def test_a_target_is_reached_by_an_equal_value(tmp_path, direction, sign):
    shown = Shown(tmp_path, direction, target=sign * 0.9)
    shown.end(value=sign * 0.8)
    assert not shown.standing.target_reached
    shown.end(value=sign * 0.9)
    assert shown.standing.target_reached


def test_a_trial_that_failed_reaches_no_target(tmp_path):
    shown = Shown(tmp_path, target=-1e9)
    shown.end("failed")
    assert not shown.standing.target_reached


def test_observers_get_each_result_in_their_order(tmp_path):
    heard = []

    class Named:
        def __init__(self, name):
            self.name = name

        def ended(self, result, status):
            heard.append((self.name, result.id, status.ended))

    shown = Shown(tmp_path, observers=[Named("a"), Named("b")])
    shown.end(value=1.0)
    shown.end("failed")
    assert heard == [("a", 0, 1), ("b", 0, 1), ("a", 1, 2), ("b", 1, 2)]


def test_an_observer_that_raises_is_left_out_with_a_warning(tmp_path):
    class Full:
        heard = 0

        def ended(self, result, status):
            Full.heard += 1
            raise OSError("No space left on device")

    shown = Shown(tmp_path, observers=[Full()])
    for _ in range(3):
        shown.end(value=1.0)
    assert Full.heard == 1
    assert shown.warnings == ["Full is left out from now on: No space left on device"]


def test_output_and_notes_that_are_not_shown_are_limited(shown):
    for number in range(3_000):
        shown.standing.output.append(Output(0, str(number)))
        shown.standing.notes.append(str(number))
    status = shown.status
    assert (len(status.output), len(status.notes)) == (1_000, 1_000)
    assert (status.output[-1], status.notes[-1]) == (Output(0, "2999"), "2999")
