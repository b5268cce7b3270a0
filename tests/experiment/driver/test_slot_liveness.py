"""Which slots are lost, told from what slots say: with a real coordinator, and a clock of ours."""

import pytest

from experiment.driver.slot_liveness import SlotLiveness
from search.grid import PointSearch
from search.trial import Trial
from spark_jobs import time_limits
from spark_jobs.messages import Attempt, Heard, Hello, Next, Reports, Stop, Wait
from tests.experiment.driver.test_coordinator import Search

GIVEN_UP = Heard("its slot was given up")


class Waiting(PointSearch):
    """Makes who asks wait for more, as a search by generations does."""

    @property
    def finished(self):
        return False

    def ask(self):
        if self._next == self.total:
            return None
        self._next += 1
        return Trial(self._next - 1, self._points[self._next - 1])


class Slots:
    """A search that waits for its trials, whose slots are heard at the seconds of `now`."""

    def __init__(self, root, trials=2):
        self.now = 0.0
        self.search = Search(root, Waiting([{"x": x} for x in range(trials)]))
        self.liveness = SlotLiveness(self.search.coordinator, lambda: self.now)

    def hello(self, slot):
        self.liveness.hello(Hello(slot, "host"))

    def ask(self, slot):
        return self.liveness.next(Next(slot))

    def runs(self, slot, work):
        return self.liveness.report(Reports(slot, work.trial.id, work.number, ()))


@pytest.fixture
def slots(tmp_path):
    return Slots(tmp_path)


def test_the_next_attempt_of_a_task_tells_that_the_one_before_is_lost(slots):
    for slot in ("1.0.0", "1.1.0"):
        slots.hello(slot)
    lost, other = slots.ask("1.0.0"), slots.ask("1.1.0")
    slots.hello("1.0.1")
    again = slots.ask("1.0.1")
    assert (again.trial.id, again.number) == (lost.trial.id, lost.number + 1)
    assert slots.runs("1.0.0", lost) == GIVEN_UP
    assert slots.ask("1.0.0") == Stop()
    assert slots.runs("1.1.0", other) == Heard("")


def test_an_attempt_that_says_hello_again_is_itself(slots):
    slots.hello("1.0.1")
    work = slots.ask("1.0.1")
    slots.hello("1.0.1")
    slots.hello("1.0.0")  # late
    slots.hello("2.0.2")  # of another job
    assert slots.runs("1.0.1", work) == Heard("")


def test_a_slot_that_is_silent_while_others_speak_is_lost(slots):
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


def test_a_slot_that_only_says_that_its_trial_runs_is_not_lost(slots):
    for slot in ("1.0.0", "1.1.0"):
        slots.hello(slot)
    first, second = slots.ask("1.0.0"), slots.ask("1.1.0")
    for _ in range(100):
        slots.now += 30
        assert slots.runs("1.0.0", first) == slots.runs("1.1.0", second) == Heard("")


@pytest.mark.parametrize("pause", [600, 36_000])
def test_a_driver_that_heard_nobody_blames_none(slots, pause):
    for slot in ("1.0.0", "1.1.0"):
        slots.hello(slot)
    first, second = slots.ask("1.0.0"), slots.ask("1.1.0")
    slots.now += pause  # as of a network that was away, or a laptop that slept
    assert slots.runs("1.1.0", second) == Heard("")
    slots.now += 30
    assert slots.runs("1.1.0", second) == Heard("")
    assert slots.runs("1.0.0", first) == Heard("")
