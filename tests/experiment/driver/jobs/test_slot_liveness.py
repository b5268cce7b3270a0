"""Lost slots detected from their messages, with a real coordinator and a simulated clock."""

import pytest

from experiment.driver.jobs.slot_liveness import SlotLiveness
from search.grid import PointSearch
from search.trial import Trial
from spark_jobs import time_limits
from spark_jobs.messages import Attempt, Heard, Hello, Next, Reports, Stop, Wait
from tests.experiment.driver.searches import Search

GIVEN_UP = Heard(stop="its slot was given up")


class Waiting(PointSearch):
    """A searcher that lets slots wait for more trials, as a generational search does."""

    @property
    def finished(self):
        return False

    def ask(self):
        if self._next == self.total:
            return None
        self._next += 1
        return Trial(self._next - 1, self._points[self._next - 1])


class Slots:
    """A search that waits for its trials, whose slots send messages at the time `now`."""

    def __init__(self, root, trials=2):
        self.now = 0.0
        self.search = Search(root, Waiting([{"x": x} for x in range(trials)]))
        self.liveness = SlotLiveness(self.search.coordinator, lambda: self.now)

    def hello(self, slot):
        self.liveness.hello(Hello(slot=slot, host="host"))

    def ask(self, slot):
        return self.liveness.next(Next(slot))

    def runs(self, slot, work):
        return self.liveness.report(
            Reports(slot=slot, trial=work.trial.id, attempt=work.number, reports=())
        )


@pytest.fixture
def slots(tmp_path):
    return Slots(tmp_path)


def test_a_hello_of_a_tasks_next_attempt_means_that_the_previous_one_is_lost(slots):
    for slot in ("1.0.0", "1.1.0"):
        slots.hello(slot)
    lost, other = slots.ask("1.0.0"), slots.ask("1.1.0")
    slots.hello("1.0.1")
    again = slots.ask("1.0.1")
    assert (again.trial.id, again.number) == (lost.trial.id, lost.number + 1)
    assert slots.runs("1.0.0", lost) == GIVEN_UP
    assert slots.ask("1.0.0") == Stop()
    assert slots.runs("1.1.0", other) == Heard()


def test_a_repeated_or_late_hello_loses_no_slot(slots):
    slots.hello("1.0.1")
    work = slots.ask("1.0.1")
    slots.hello("1.0.1")
    slots.hello("1.0.0")  # late
    slots.hello("2.0.2")  # of another job
    assert slots.runs("1.0.1", work) == Heard()


def test_a_slot_that_is_silent_while_others_send_messages_is_lost(slots):
    for slot in ("1.0.0", "1.1.0"):
        slots.hello(slot)
    silent, other = slots.ask("1.0.0"), slots.ask("1.1.0")
    slots.search.finish("1.1.0", other)
    answers = []
    while slots.now < 2 * time_limits.SLOT_SILENCE:
        slots.now += 30
        answers.append(slots.ask("1.1.0"))
        if isinstance(answers[-1], Attempt):
            break
    assert set(map(type, answers[:-1])) == {Wait}
    assert answers[-1] == Attempt(silent.trial, 2)
    assert slots.now > time_limits.SLOT_SILENCE


def test_a_slot_that_sends_only_empty_reports_is_not_lost(slots):
    for slot in ("1.0.0", "1.1.0"):
        slots.hello(slot)
    first, second = slots.ask("1.0.0"), slots.ask("1.1.0")
    for _ in range(100):
        slots.now += 30
        assert slots.runs("1.0.0", first) == slots.runs("1.1.0", second) == Heard()


@pytest.mark.parametrize("pause", [600, 36_000])
def test_no_slot_is_lost_if_the_driver_received_no_messages(slots, pause):
    for slot in ("1.0.0", "1.1.0"):
        slots.hello(slot)
    first, second = slots.ask("1.0.0"), slots.ask("1.1.0")
    slots.now += pause  # as after a network outage, or on a suspended laptop
    assert slots.runs("1.1.0", second) == Heard()
    slots.now += 30
    assert slots.runs("1.1.0", second) == Heard()
    assert slots.runs("1.0.0", first) == Heard()
