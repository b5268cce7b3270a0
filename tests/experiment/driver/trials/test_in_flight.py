"""The attempts in flight and their slots, with a simulated clock."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.driver.trials.in_flight import InFlight
from search.trial import Trial
from spark_jobs.messages import Attempt, Report
from tests.properties import examples


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def in_flight(clock):
    return InFlight(clock)


def attempt(trial, number=1):
    return Attempt(Trial(trial, {}), number)


def test_a_slot_runs_its_attempt_until_that_ends(in_flight):
    in_flight.add(attempt(0), ("1.0.0",))
    in_flight.add(attempt(1), ("1.1.0",))
    assert in_flight.on("1.0.0").attempt == attempt(0)
    assert [out.attempt for out in in_flight.running] == [attempt(0), attempt(1)]
    in_flight.remove(0)
    assert in_flight.on("1.0.0") is None
    assert [out.attempt for out in in_flight.running] == [attempt(1)]
    in_flight.remove(0)
    assert len(in_flight) == 1


def test_an_attempt_belongs_to_all_of_its_slots(in_flight):
    in_flight.add(attempt(0), ("1.0.0", "1.1.0"))
    in_flight.add(attempt(1), ("1.2.0",))
    assert in_flight.on("1.0.0") == in_flight.on("1.1.0")
    assert in_flight.on("1.1.0").slots == ("1.0.0", "1.1.0")
    assert len(in_flight) == 2
    in_flight.remove(0)
    assert in_flight.on("1.0.0") is in_flight.on("1.1.0") is None
    assert in_flight.on("1.2.0").attempt == attempt(1)


def test_an_attempt_is_found_by_slot_trial_and_number(in_flight):
    in_flight.add(attempt(3, 2), ("1.0.0",))
    assert in_flight.find("1.0.0", 3, 2).attempt == attempt(3, 2)
    for other in (("1.1.0", 3, 2), ("1.0.0", 4, 2), ("1.0.0", 3, 1)):
        assert in_flight.find(*other) is None


def test_the_seconds_of_a_trial_count_from_when_its_slot_is_prepared(in_flight, clock):
    in_flight.add(attempt(0), ("1.0.0",))
    (out,) = in_flight.running
    assert (out.since, out.seconds(130.0)) == (None, 0.0)
    clock.now = 120.0  # it has imported TensorFlow meanwhile
    in_flight.prepared("1.0.0")
    (out,) = in_flight.running
    assert (out.since, out.seconds(130.0)) == (120.0, 10.0)
    clock.now = 125.0
    in_flight.prepared("1.0.0")
    assert in_flight.on("1.0.0").since == 120.0
    in_flight.remove(0)
    in_flight.add(attempt(1), ("1.0.0",))
    assert in_flight.on("1.0.0").since == 125.0


def test_a_trial_of_several_slots_has_begun_when_all_are_prepared(in_flight, clock):
    in_flight.add(attempt(0), ("1.0.0", "1.1.0"))
    in_flight.prepared("1.1.0")
    assert in_flight.on("1.0.0").since is None
    clock.now = 120.0
    in_flight.prepared("1.0.0")
    assert in_flight.on("1.1.0").since == 120.0


def test_the_last_value_of_each_metric_is_kept(in_flight):
    in_flight.add(attempt(0), ("1.0.0",))
    assert in_flight.on("1.0.0").last is None
    in_flight.report("1.0.0", (Report(0, {"loss": 0.5, "accuracy": 0.25}),), "")
    in_flight.report("1.0.0", (Report(1, {"loss": 0.4}), Report(2, {"loss": 0.3})), "")
    in_flight.report("1.0.0", (), "")
    assert in_flight.on("1.0.0").last == Report(2, {"loss": 0.3, "accuracy": 0.25})


def test_each_report_of_a_trial_that_is_to_stop_gets_the_reason(in_flight):
    in_flight.add(attempt(0), ("1.0.0",))
    assert in_flight.report("1.0.0", (), "") == ""
    assert in_flight.report("1.0.0", (), "step 1: too bad") == "step 1: too bad"
    assert in_flight.report("1.0.0", (), "") == "step 1: too bad"


@pytest.mark.fault(21)
def test_a_slot_is_doubled_while_another_attempt_of_its_task_has_a_trial(in_flight):
    in_flight.add(attempt(0), ("1.0.0",))
    in_flight.add(attempt(1), ("1.10.0", "2.0.0"))
    assert in_flight.is_doubled("1.0.1")
    assert in_flight.is_doubled("2.0.1")
    assert not in_flight.is_doubled("1.0.0")
    assert not in_flight.is_doubled("1.1.0")
    in_flight.remove(0)
    assert not in_flight.is_doubled("1.0.1")


def test_the_view_of_another_thread_does_not_change(in_flight):
    in_flight.add(attempt(0), ("1.0.0",))
    before = in_flight.running
    taken = list(before)
    in_flight.prepared("1.0.0")
    in_flight.report("1.0.0", (Report(0, {"loss": 0.5}),), "enough")
    in_flight.add(attempt(1), ("1.1.0",))
    in_flight.remove(0)
    in_flight.clear()
    assert list(before) == taken
    assert (len(in_flight), list(in_flight.running), in_flight.on("1.1.0")) == (0, [], None)


@pytest.mark.slow
def test_threads_may_read_while_attempts_come_and_go(in_flight):
    def change():
        for trial in range(20_000):
            in_flight.add(attempt(trial), (f"1.{trial}.0",))
            in_flight.remove(trial - 100)
        ended.set()

    ended = threading.Event()
    with ThreadPoolExecutor() as pool:
        changing = pool.submit(change)
        while not ended.is_set():
            assert len(list(in_flight.running)) <= 101
        changing.result()


changes = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "prepared", "report"]), st.integers(0, 5))
)


@examples(100)
@given(changes)
def test_each_slot_runs_one_attempt_and_each_attempt_has_its_slots(changes):
    in_flight, expected = InFlight(Clock()), {}
    for change, trial in changes:
        slots = (f"1.{2 * trial}.0", f"1.{2 * trial + 1}.0")
        if change == "add" and trial not in expected:
            in_flight.add(attempt(trial), slots)
            expected[trial] = slots
        elif change == "remove":
            in_flight.remove(trial)
            expected.pop(trial, None)
        elif change == "prepared":
            in_flight.prepared(slots[0])
        elif change == "report" and trial in expected:
            in_flight.report(slots[1], (Report(0, {"loss": 0.5}),), "")
    assert [(out.attempt.trial.id, out.slots) for out in in_flight.running] == list(
        expected.items()
    )
    for trial, slots in expected.items():
        assert {in_flight.on(slot).attempt.trial.id for slot in slots} == {trial}
